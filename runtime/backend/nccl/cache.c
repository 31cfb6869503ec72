/* SPDX-License-Identifier: BSD-3-Clause */
/* cache.c - the measured table of a kind of node, kept for the next job
 *
 * One small text file for each GPU, driver, NCCL and number of ranks, in the user's
 * cache folder. It is only an advice: a damaged or missing file means measuring again.
 */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/backend/nccl/nccl.h"

#define FORMAT 1 /* counts up with the meaning of a path or a point */

static bool file_name(const struct mu_backend *b, char *path, size_t len)
{
    struct cudaDeviceProp prop;
    int driver = 0;

    if (!b->env.cache_dir || !b->env.cache_dir[0] ||
        cudaGetDeviceProperties(&prop, b->device) != cudaSuccess ||
        cudaDriverGetVersion(&driver) != cudaSuccess)
        return false;
    for (char *c = prop.name; *c; c++)
        if (!isalnum((unsigned char)*c))
            *c = '-';
    return snprintf(path, len, "%s/paths-%d-%.64s-%d-%d-%d", b->env.cache_dir, FORMAT,
                    prop.name, driver, b->cards[b->env.rank].nccl,
                    b->env.local_size) < (int)len;
}

static bool curve_read(FILE *f, enum mu_path path, struct mu_path_curve *c)
{
    char name[32];

    if (fscanf(f, "%31s %d", name, &c->n) != 2 || strcmp(name, mu_path_names[path]) ||
        c->n < 0 || c->n > MU_PATH_POINTS)
        return false;
    for (int i = 0; i < c->n; i++)
        if (fscanf(f, "%f %f", &c->bytes[i], &c->us[i]) != 2 || !(c->us[i] > 0) ||
            !(c->bytes[i] > (i ? c->bytes[i - 1] : 0)))
            return false;
    return true;
}

bool mu_cache_read(const struct mu_backend *b, struct mu_path_table *table)
{
    struct mu_path_table t = { 0 };
    char path[PATH_MAX];
    bool ok = true;
    FILE *f;

    if (!file_name(b, path, sizeof path) || !(f = fopen(path, "r")))
        return false;
    for (int p = 0; p < MU_PATHS && ok; p++)
        ok = curve_read(f, p, &t.curve[p]);
    fclose(f);
    if (ok)
        *table = t;
    return ok;
}

void mu_cache_write(const struct mu_backend *b)
{
    char path[PATH_MAX], draft[PATH_MAX + 16];
    bool ok;
    FILE *f;

    if (!file_name(b, path, sizeof path))
        return;
    mkdir(b->env.cache_dir, 0700);
    snprintf(draft, sizeof draft, "%s.%d", path, (int)getpid());
    f = fopen(draft, "wx");
    if (!f)
        return;
    for (int p = 0; p < MU_PATHS; p++) {
        const struct mu_path_curve *c = &b->table.curve[p];

        fprintf(f, "%s %d", mu_path_names[p], c->n);
        for (int i = 0; i < c->n; i++)
            fprintf(f, " %.0f %.2f", c->bytes[i], c->us[i]);
        fputc('\n', f);
    }
    ok = fclose(f) == 0;
    if (!ok || rename(draft, path) != 0)
        unlink(draft);
}
