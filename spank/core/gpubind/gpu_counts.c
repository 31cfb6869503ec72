/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu_counts.c - counts the GPUs in the text of Slurm's options and variables */
#include "spank/core/gpubind/gpu_counts.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "runtime/base/parse.h"

#define COUNT_TEXT 4096

/* Count the GPUs of one item. *count is 0 if the item is another resource. */
static int one_gpu_count(char *item, int *count, struct mu_err *err)
{
    char *name = item, *last;
    long n;

    if (strncmp(name, "gres/", 5) == 0 || strncmp(name, "gres:", 5) == 0) {
        name += 5;
        if (strncmp(name, "gpu", 3) != 0 || !strchr(":=", name[3] ? name[3] : ':')) {
            *count = 0;
            return 0;
        }
    } else if (strchr(name, '=') || strncmp(name, "cpu:", 4) == 0) {
        *count = 0; /* cpu=4, mem=10G, cpu:4 of older releases */
        return 0;
    }
    last = strpbrk(name, ":=");
    while (last && strpbrk(last + 1, ":="))
        last = strpbrk(last + 1, ":=");
    /* "gpu", "a100", "gpu:a100": without a number Slurm counts one GPU. */
    if (isalpha((unsigned char)*name) &&
        (!last || (last == name + 3 && strncmp(name, "gpu", 3) == 0 &&
                   isalpha((unsigned char)last[1])))) {
        *count = 1;
        return 0;
    }
    if (mu_parse_int("a number of GPUs", last ? last + 1 : name, 0, 4096, &n, err) < 0)
        return -1;
    *count = (int)n;
    return 0;
}

int mu_gpu_count_parse(const char *text, int *out, struct mu_err *err)
{
    char copy[COUNT_TEXT], *rest = copy, *item;
    int total = 0;

    if (!mu_copy(copy, sizeof copy, text))
        return mu_err_set(err, ENAMETOOLONG, "the GPU count has %zu characters",
                          strlen(text));
    while ((item = mu_parse_next(&rest, ','))) {
        int n = 0;

        if (one_gpu_count(item, &n, err) < 0)
            return -1;
        total += n;
    }
    *out = total;
    return 0;
}
