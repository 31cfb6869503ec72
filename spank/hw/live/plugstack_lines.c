/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/hw/live/plugstack_lines.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/io/sysfile.h"

#define TEXT_MAX (256 * 1024)
#define INCLUDE_DEPTH 4

struct walk {
    void (*each)(void *arg, const char *file, int number,
                 const struct mu_plugstack_line *line);
    void *arg;
};

static void read_file(const struct walk *walk, const char *path, int depth);

/* Reads the files of a pattern, relative to the folder of the including file. */
static void read_included(const struct walk *walk, const char *from,
                          const char *pattern, int depth)
{
    const char *slash = strrchr(from, '/');
    char full[1600];
    glob_t found;
    int n = pattern[0] == '/' || !slash ? snprintf(full, sizeof full, "%s", pattern)
                                        : snprintf(full, sizeof full, "%.*s/%s",
                                                   (int)(slash - from), from, pattern);

    if (n < 0 || n >= (int)sizeof full || glob(full, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        read_file(walk, found.gl_pathv[i], depth);
    globfree(&found);
}

static void read_file(const struct walk *walk, const char *path, int depth)
{
    struct mu_plugstack_line line;
    char *text = NULL, *rest, *next;

    if (depth == INCLUDE_DEPTH || mu_sysfile_text(path, TEXT_MAX, &text, NULL) < 0)
        return;
    rest = text;
    for (int number = 1; (next = mu_parse_next(&rest, '\n')); number++) {
        mu_plugstack_parse(next, &line);
        if (line.kind == MU_PLUGSTACK_INCLUDE)
            read_included(walk, path, line.path, depth + 1);
        else if (line.kind != MU_PLUGSTACK_OTHER)
            walk->each(walk->arg, path, number, &line);
    }
    free(text);
}

void mu_plugstack_lines(const char *path,
                        void (*each)(void *arg, const char *file, int number,
                                     const struct mu_plugstack_line *line),
                        void *arg)
{
    struct walk walk = { each, arg };

    read_file(&walk, path, 0);
}
