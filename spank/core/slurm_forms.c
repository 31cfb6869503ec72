/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/core/slurm_forms.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/base/parse.h"

#define FORM_TEXT 4096

static int one_count(char *item, int *count, int *times, struct mu_err *err)
{
    char *open = strchr(item, '(');
    long n, t = 1;

    if (open) {
        size_t len = strlen(open);

        if (open[1] != 'x' || open[len - 1] != ')')
            return mu_err_set(err, EINVAL, "'%.80s' is not of the form N(xTIMES)",
                              item);
        open[len - 1] = '\0';
        *open = '\0';
        if (mu_parse_int("a repetition (xN)", open + 2, 1, 1 << 20, &t, err) < 0)
            return -1;
    }
    if (mu_parse_int("a count", item, 0, INT_MAX, &n, err) < 0)
        return -1;
    *count = (int)n;
    *times = (int)t;
    return 0;
}

int mu_counts_parse(const char *text, int *out, int max, struct mu_err *err)
{
    int total = 0;

    while (text) {
        const char *comma = strchr(text, ',');
        size_t n = comma ? (size_t)(comma - text) : strlen(text);
        char item[64];
        int count = 0, times = 0;

        if (n >= sizeof item)
            return mu_err_set(err, EINVAL, "'%.80s' is not a list of counts", text);
        memcpy(item, text, n);
        item[n] = '\0';
        if (one_count(item, &count, &times, err) < 0)
            return -1;
        for (int i = 0; i < times && total < INT_MAX; i++, total++)
            if (total < max)
                out[total] = count;
        text = comma ? comma + 1 : NULL;
    }
    return total;
}

/* One item of the list: 0 and *count = 0 for a resource that is no GPU. */
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
    } else if (strchr(name, '=')) {
        *count = 0; /* cpu=4, mem=10G */
        return 0;
    }
    last = strpbrk(name, ":=");
    while (last && strpbrk(last + 1, ":="))
        last = strpbrk(last + 1, ":=");
    if (!last && strcmp(name, "gpu") == 0) {
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
    char copy[FORM_TEXT], *rest = copy, *item;
    int total = 0;

    if (!mu_copy(copy, sizeof copy, text))
        return mu_err_set(err, ENAMETOOLONG, "a GPU count of %zu characters",
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
