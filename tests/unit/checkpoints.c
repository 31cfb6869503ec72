/* SPDX-License-Identifier: BSD-3-Clause */
/* checkpoints.c - a world of one with a folder of checkpoints whose items tell the step
 */
#include "tests/unit/checkpoints.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/folder.h"

struct muster *m;
char folder[64];
uint64_t weights[WORDS], odd[3];

struct muster_item items[2] = {
    { .name = "weights", .data = weights, .bytes = sizeof weights },
    { .name = "odd", .data = odd, .bytes = 17 },
};

void fill(uint64_t step)
{
    for (size_t i = 0; i < WORDS; i++)
        weights[i] = step * 1000003 + i;
    odd[0] = odd[1] = odd[2] = step;
}

int holds(uint64_t step)
{
    for (size_t i = 0; i < WORDS; i++)
        if (weights[i] != step * 1000003 + i)
            return 0;
    return odd[0] == step && odd[1] == step;
}

int make_folder(void **state)
{
    strcpy(folder, "/tmp/muster-checkpoint-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

int remove_folder(void **state)
{
    return folder_remove(folder);
}

struct muster_checkpoint *opened(const struct muster_checkpoint_options *options)
{
    struct muster_checkpoint *c;

    if (muster_checkpoint_open(m, folder, options, &c) != MUSTER_OK)
        fail_msg("%s", muster_error(m));
    return c;
}

int alone(void **state)
{
    struct muster_options one = { .single = 1, .backend = "host", .log = "error" };

    return muster_init(&m, &one) == MUSTER_OK ? 0 : muster_report(NULL);
}

int together(void **state)
{
    return muster_finalize(m);
}

void path_of(char *path, uint64_t step)
{
    sprintf(path, "%s/checkpoint-%012llu.muster", folder, (unsigned long long)step);
}

int exists(uint64_t step)
{
    char path[128];

    path_of(path, step);
    return access(path, F_OK) == 0;
}
