/* SPDX-License-Identifier: BSD-3-Clause */
/* second_line.c - prints which line of plugstack.conf loads the plugin a second time.
 * Slurm calls every hook once for each such line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/live/plugstack_lines.h"
#include "spank/hw/live/slurm_files.h"
#include "spank/plugin/plugin.h"

struct search {
    int found, wanted; /* lines that load the plugin */
    char file[1024];
    int number;
};

static void look_at(void *arg, const char *file, int number,
                    const struct mu_plugstack_line *line)
{
    struct search *search = arg;

    if (line->kind == MU_PLUGSTACK_INVALID || !strstr(line->path, "muster.so") ||
        ++search->found != search->wanted)
        return;
    mu_copy(search->file, sizeof search->file, file);
    search->number = number;
}

/* PlugStackConfig of slurm.conf, else the file beside it. */
static void plugstack_path(char *buf, size_t len)
{
    struct mu_slurm_files *files = calloc(1, sizeof *files);
    const char *conf = mu_slurm_conf_path(), *slash = strrchr(conf, '/');
    bool found = false;

    if (files)
        mu_slurm_files_load(conf, files);
    for (int i = 0; files && i < files->n && !found; i++)
        found = files->file[i].text &&
                mu_slurm_text_value(files->file[i].text, "PlugStackConfig", buf, len);
    if (!found)
        snprintf(buf, len, "%.*s/plugstack.conf", (int)(slash - conf), conf);
    if (files)
        mu_slurm_files_clear(files);
    free(files);
}

void mu_second_line_report(int nth)
{
    struct search search = { .wanted = nth };
    struct mu_plugstack_reader reader = { .line = look_at, .arg = &search };
    char path[4096];

    plugstack_path(path, sizeof path);
    mu_plugstack_lines(path, &reader);
    if (search.number)
        slurm_error("muster: %s:%d: a second line loads muster.so; it is ignored: "
                    "remove it",
                    search.file, search.number);
    else
        slurm_error("muster: %s: a second line loads muster.so; it is ignored: remove "
                    "it",
                    path);
}
