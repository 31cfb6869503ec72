/* SPDX-License-Identifier: BSD-3-Clause */
/* replay.c - run a fuzz target over the files of its corpus with any compiler (TAP) */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *data = NULL;
    size_t size = 0, n;
    char chunk[65536];

    if (!f)
        return -1;
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0) {
        data = realloc(data, size + n);
        memcpy(data + size, chunk, n);
        size += n;
    }
    fclose(f);
    LLVMFuzzerTestOneInput((const uint8_t *)(data ? data : chunk), size);
    free(data);
    return 0;
}

static int run_dir(const char *dir)
{
    struct dirent **list;
    int n = scandir(dir, &list, NULL, alphasort), files = 0;

    for (int i = 0; i < n; i++) {
        char path[4096];

        snprintf(path, sizeof path, "%s/%s", dir, list[i]->d_name);
        if (list[i]->d_name[0] != '.' && run_file(path) == 0)
            files++;
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    return files;
}

/* Arguments: folders; without any, the corpus named after the program. */
int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/');
    char dir[4096];
    int files = 0;

    name = name ? name + 1 : argv[0];
    if (strncmp(name, "lt-", 3) == 0)
        name += 3;
    snprintf(dir, sizeof dir, "%s/tests/fuzz/corpus/%s",
             getenv("MUSTER_SRCDIR") ? getenv("MUSTER_SRCDIR") : ".", name + 5);
    if (argc < 2)
        files = run_dir(dir);
    for (int i = 1; i < argc; i++)
        files += run_dir(argv[i]);
    printf("%s 1 - %s: %d corpus files without a crash\n1..1\n",
           files ? "ok" : "not ok", name, files);
    return files == 0;
}
