/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu_bind.c - Slurm's --gpu-bind and --tres-bind texts, in every stored form */
#include "spank/core/gpubind/gpu_bind.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/cpuset.h"
#include "runtime/base/parse.h"

#define BIND_TEXT 4096

/* The text after `prefix`, or NULL. Slurm ignores case here. */
static char *skip_prefix(char *text, const char *prefix)
{
    size_t n = strlen(prefix);

    return strncasecmp(text, prefix, n) == 0 ? text + n : NULL;
}

char *mu_gpu_bind_skip_prefix(char *text)
{
    /* Slurm stores "gpu:" up to 23.02 and "gres/gpu:" since 23.11. It also accepts
     * "gres:gpu:".
     */
    static const char *const prefixes[] = { "gres/gpu:", "gres:gpu:", "gpu:" };

    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        char *rest = skip_prefix(text, prefixes[i]);

        if (rest)
            return rest;
    }
    return NULL;
}

char *mu_gpu_bind_part(char *list)
{
    char *rest = list, *item;
    bool first = true;

    while ((item = mu_parse_next(&rest, '+'))) {
        char *part = mu_gpu_bind_skip_prefix(item);

        if (part)
            return part;
        if (first && !rest && strncasecmp(item, "gres", 4) != 0)
            return item;
        first = false;
    }
    return NULL;
}

static int count_of(const char *what, const char *text, int *n, struct mu_err *err)
{
    long value;

    if (mu_parse_int(what, text, 1, 65535, &value, err) < 0)
        return -1;
    *n = (int)value;
    return 0;
}

static int map_entry(const char *item, struct mu_cpuset *out, struct mu_err *err)
{
    char *end;
    unsigned long pos;

    errno = 0;
    pos = strtoul(item, &end, 0); /* as in Slurm, 0x is hexadecimal */
    if (!isdigit((unsigned char)item[0]) || *end || errno || pos >= MU_GPUS_MAX)
        return mu_err_set(err, EINVAL,
                          "map_gpu takes GPU numbers from 0 to %d, not '%.80s'",
                          MU_GPUS_MAX - 1, item);
    mu_cpuset_add(out, (int)pos);
    return 0;
}

static int mask_entry(const char *item, struct mu_cpuset *out, struct mu_err *err)
{
    if (mu_cpuset_parse_mask(item, out, NULL) < 0 || mu_cpuset_empty(out))
        return mu_err_set(err, EINVAL,
                          "mask_gpu takes hexadecimal masks with a bit set, not "
                          "'%.80s'",
                          item);
    if (mu_cpuset_next(out, MU_GPUS_MAX - 1) >= 0)
        return mu_err_set(err, EINVAL, "mask_gpu: '%.80s' names a GPU above %d", item,
                          MU_GPUS_MAX - 1);
    return 0;
}

/* The comma list of map and mask; "E*N" means N times E. */
static int parse_list(char *text, struct mu_gpu_bind *bind, struct mu_err *err)
{
    char *item;

    while ((item = mu_parse_next(&text, ','))) {
        struct mu_cpuset set = { { 0 } };
        char *star = strchr(item, '*');
        int times = 1;

        if (star) {
            *star++ = '\0';
            if (count_of("a repetition '*N'", star, &times, err) < 0)
                return -1;
        }
        if ((bind->kind == MU_GPU_BIND_MAP ? map_entry : mask_entry)(item, &set, err) <
            0)
            return -1;
        if (times > MU_GPUS_MAX - bind->nlist)
            return mu_err_set(err, E2BIG, "the GPU list has more than %d entries",
                              MU_GPUS_MAX);
        while (times-- > 0)
            memcpy(bind->list[bind->nlist++], set.word, sizeof bind->list[0]);
    }
    return 0;
}

/* True if text begins with `name`; *arg is then the text after it. */
static bool is_kind(char *text, const char *name, char **arg)
{
    *arg = skip_prefix(text, name);
    return *arg != NULL;
}

static int parse_kind(char *text, struct mu_gpu_bind *bind, struct mu_err *err)
{
    char *arg;

    if (strcasecmp(text, "none") == 0) {
        bind->kind = MU_GPU_BIND_NONE;
    } else if (strcasecmp(text, "closest") == 0) {
        bind->kind = MU_GPU_BIND_CLOSEST;
    } else if (is_kind(text, "single:", &arg)) {
        bind->kind = MU_GPU_BIND_SINGLE;
        return count_of("single:", arg, &bind->n, err);
    } else if (is_kind(text, "per_task:", &arg)) {
        bind->kind = MU_GPU_BIND_PER_TASK;
        return count_of("per_task:", arg, &bind->n, err);
    } else if (is_kind(text, "map_gpu:", &arg) || is_kind(text, "map:", &arg)) {
        bind->kind = MU_GPU_BIND_MAP;
        return parse_list(arg, bind, err);
    } else if (is_kind(text, "mask_gpu:", &arg) || is_kind(text, "mask:", &arg)) {
        bind->kind = MU_GPU_BIND_MASK;
        return parse_list(arg, bind, err);
    } else {
        return mu_err_set(err, EINVAL,
                          "'%.80s' is not a GPU binding; use [verbose,]closest, "
                          "none, single:N, per_task:N, map_gpu:LIST or mask_gpu:LIST",
                          text);
    }
    return 0;
}

int mu_gpu_bind_parse(const char *text, struct mu_gpu_bind *bind, struct mu_err *err)
{
    struct mu_gpu_bind work = { 0 };
    char copy[BIND_TEXT], *part, *rest;
    int rc;

    if (!mu_copy(copy, sizeof copy, text))
        return mu_err_set(err, ENAMETOOLONG,
                          "the GPU binding has %zu characters, at most %zu are allowed",
                          strlen(text), sizeof copy - 1);
    part = mu_gpu_bind_part(copy);
    if (part && (rest = skip_prefix(part, "verbose,"))) {
        work.verbose = true;
        part = rest;
    }
    rc = part ? parse_kind(part, &work, err) : 0;
    if (rc == 0)
        *bind = work;
    return rc < 0 ? mu_err_context(err, "gpu-bind") : 0;
}

bool mu_gpu_bind_has(const struct mu_gpu_bind *bind, int i, int pos)
{
    return bind->list[i][pos / 64] >> (pos % 64) & 1;
}
