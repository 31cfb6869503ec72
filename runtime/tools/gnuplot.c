/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/tools/gnuplot.h"

#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

FILE *mu_gnuplot_open(int width, int height)
{
    FILE *script = tmpfile();

    if (script)
        fprintf(script,
                "set terminal svg size %d,%d dynamic noenhanced font "
                "'sans-serif,12' background rgb 'white'\n"
                "set grid lc rgb '#dddddd'\nset border 3\nset tics nomirror\n"
                "set key above left\n",
                width, height);
    return script;
}

/* gnuplot substitutes nothing in single quotes. */
void mu_gnuplot_text(FILE *script, const char *text)
{
    putc('\'', script);
    for (; *text; text++)
        putc(*text >= ' ' && *text <= '~' && *text != '\'' ? *text : '?', script);
    putc('\'', script);
}

static int run(FILE *script, FILE *drawn)
{
    static char name[] = "gnuplot", plain[] = "-d";
    char *argv[] = { name, plain, NULL }; /* -d: no start file of the user */
    posix_spawn_file_actions_t files;
    int status, rc;
    pid_t pid;

    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, fileno(script), 0);
    posix_spawn_file_actions_adddup2(&files, fileno(drawn), 1);
    rc = posix_spawnp(&pid, name, &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    if (rc != 0) {
        errno = rc;
        return -1;
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    errno = EINVAL;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

/* Without what precedes the element: it belongs to a file of its own. */
static int copy_svg(FILE *drawn, FILE *to)
{
    char line[4096];
    int inside = 0;

    rewind(drawn);
    while (fgets(line, sizeof line, drawn)) {
        if (strncmp(line, "<svg", 4) == 0)
            inside = 1;
        if (inside)
            fputs(line, to);
    }
    return inside;
}

int mu_gnuplot_close(FILE *script, FILE *to, struct mu_err *err)
{
    FILE *drawn = tmpfile();
    int rc = 0;

    if (!drawn || fflush(script) == EOF || lseek(fileno(script), 0, SEEK_SET) < 0)
        rc =
            mu_err_set(err, errno, "no temporary file for a plot: %s", strerror(errno));
    else if (run(script, drawn) < 0)
        rc = mu_err_set(err, errno, "gnuplot does not run: %s%s", strerror(errno),
                        errno == ENOENT ? "; install gnuplot for the plots" : "");
    else if (!copy_svg(drawn, to))
        rc = mu_err_set(err, EINVAL, "gnuplot has drawn nothing");
    fclose(script);
    if (drawn)
        fclose(drawn);
    return rc;
}
