/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/hw/live/slurm_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spank/hw/io/sysfile.h"

#define TEXT_MAX (4 << 20)

static char *read_text(const char *path)
{
    char *text = malloc(TEXT_MAX), *fitted;
    long len = text ? mu_sysfile_read("", text, TEXT_MAX, "%s", path) : -1;

    if (len < 0) {
        free(text);
        return NULL;
    }
    fitted = realloc(text, (size_t)len + 1);
    text = fitted ? fitted : text;
    mu_slurm_conf_join(text);
    return text;
}

static void add(struct mu_slurm_files *files, const char *name, int from, int line)
{
    const char *first = files->file[0].path, *slash = strrchr(first, '/');
    struct mu_slurm_file *file = &files->file[files->n];
    int n;

    if (files->n == MU_SLURM_FILES_MAX)
        return;
    *file = (struct mu_slurm_file){ .from = from, .line = line };
    n = name[0] == '/' || from < 0 || !slash
            ? snprintf(file->path, sizeof file->path, "%s", name)
            : snprintf(file->path, sizeof file->path, "%.*s/%s", (int)(slash - first),
                       first, name);
    if (n < 0 || n >= (int)sizeof file->path)
        return;
    for (int i = 0; i < files->n; i++) /* a file that includes itself */
        if (strcmp(files->file[i].path, file->path) == 0)
            return;
    file->text = read_text(file->path);
    files->n++;
}

void mu_slurm_files_load(const char *path, struct mu_slurm_files *files)
{
    char name[1024];

    memset(files, 0, sizeof *files);
    add(files, path, -1, 0);
    for (int i = 0; i < files->n; i++) {
        int number = 1;

        for (const char *line = files->file[i].text; line; number++) {
            if (mu_slurm_include_of_line(line, name, sizeof name))
                add(files, name, i, number);
            line = strchr(line, '\n');
            line = line ? line + 1 : NULL;
        }
    }
}

void mu_slurm_files_clear(struct mu_slurm_files *files)
{
    for (int i = 0; i < files->n; i++)
        free(files->file[i].text);
    memset(files, 0, sizeof *files);
}

const char *mu_slurm_conf_path(void)
{
    const char *path = getenv("SLURM_CONF");

    return path && path[0] == '/' ? path : "/etc/slurm/slurm.conf";
}
