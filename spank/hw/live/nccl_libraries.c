/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/hw/live/nccl_libraries.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

static int add_library(const char *dir, struct mu_library *list, int n, int max)
{
    char path[8300], *real, *version;

    snprintf(path, sizeof path, "%s/libnccl.so.2", dir);
    real = realpath(path, NULL);
    for (int i = 0; real && i < n; i++)
        if (strcmp(list[i].path, real) == 0)
            max = n; /* listed already */
    if (real && n < max) {
        version = strstr(real, ".so.");
        mu_copy(list[n].path, sizeof list[n].path, real);
        mu_copy(list[n].version, sizeof list[n].version, version ? version + 4 : "?");
        n++;
    }
    free(real);
    return n;
}

int mu_nccl_libraries(const char *ld_path, struct mu_library *list, int max)
{
    static const char *const usual[] = {
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/local/lib",
        "/usr/local/cuda/lib64",
        NULL,
    };
    char dirs[8192], *rest = dirs, *dir;
    int n = 0;

    if (ld_path && mu_copy(dirs, sizeof dirs, ld_path))
        while ((dir = mu_parse_next(&rest, ':')))
            if (dir[0])
                n = add_library(dir, list, n, max);
    for (int i = 0; usual[i]; i++)
        n = add_library(usual[i], list, n, max);
    return n;
}
