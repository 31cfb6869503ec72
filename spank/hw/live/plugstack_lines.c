/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/hw/live/plugstack_lines.h"

#include <errno.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/io/sysfile.h"

#define TEXT_MAX (256 * 1024)

/* The line that includes a file; file is NULL for the first one. */
struct from {
    const char *file;
    int number, depth;
};

static void read_file(const struct mu_plugstack_reader *reader, const char *path,
                      const struct from *from);

/* Reads the files of a pattern, relative to the folder of the including file. */
static void read_included(const struct mu_plugstack_reader *reader, const char *pattern,
                          const struct from *from)
{
    const char *slash = strrchr(from->file, '/');
    char full[1600];
    glob_t found;
    int n = pattern[0] == '/' || !slash
                ? snprintf(full, sizeof full, "%s", pattern)
                : snprintf(full, sizeof full, "%.*s/%s", (int)(slash - from->file),
                           from->file, pattern);

    if (n < 0 || n >= (int)sizeof full || glob(full, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        read_file(reader, found.gl_pathv[i], from);
    globfree(&found);
}

static void read_file(const struct mu_plugstack_reader *reader, const char *path,
                      const struct from *from)
{
    struct from here = { .file = path, .depth = from->depth + 1 };
    bool deep = from->depth == MU_PLUGSTACK_DEPTH;
    struct mu_plugstack_line line;
    struct mu_err err = { 0 };
    char *text = NULL, *rest, *next;

    if (deep || mu_sysfile_text(path, TEXT_MAX, &text, &err) < 0) {
        if (err.code != ENOENT && reader->unread)
            reader->unread(reader->arg, path, from->file, from->number, err.code);
        return;
    }
    rest = text;
    while ((next = mu_parse_next(&rest, '\n'))) {
        here.number++;
        mu_plugstack_parse(next, &line);
        if (line.kind == MU_PLUGSTACK_INCLUDE)
            read_included(reader, line.path, &here);
        else if (line.kind != MU_PLUGSTACK_OTHER)
            reader->line(reader->arg, path, here.number, &line);
    }
    free(text);
}

void mu_plugstack_lines(const char *path, const struct mu_plugstack_reader *reader)
{
    read_file(reader, path, &(struct from){ 0 });
}
