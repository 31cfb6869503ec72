/* SPDX-License-Identifier: BSD-3-Clause */
/* cores.c - lists the cores of a step and assigns equally near ones to tasks */
#include "spank/core/plan/cores.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int own_order(const void *a, const void *b)
{
    return ((const struct mu_own_core *)a)->first -
           ((const struct mu_own_core *)b)->first;
}

int mu_cores_own(const struct mu_node *node, const struct mu_alloc *alloc,
                 struct mu_cores *own, struct mu_err *err)
{
    struct mu_cores made = { 0 };

    if (node->ncores == 0)
        return mu_err_set(err, EINVAL,
                          "the source (%s) lists no CPUs: no task can be placed",
                          node->source);
    made.cores = calloc((size_t)node->ncores + 1, sizeof *made.cores);
    if (!made.cores)
        return mu_err_set(err, ENOMEM, "out of memory");
    for (int i = 0; i < node->ncores; i++) {
        const struct mu_core *core = &node->cores[i];
        struct mu_own_core *mine = &made.cores[made.n];

        *mine = (struct mu_own_core){ i, 0, core->numa, core->cache, -1 };
        for (int c = 0; c < core->ncpus; c++)
            if (mu_cpuset_has(&alloc->cpus, core->cpu[c])) {
                if (mine->width++ == 0)
                    mine->first = core->cpu[c];
            }
        if (mine->width > made.width)
            made.width = mine->width;
        made.n += mine->width > 0;
    }
    if (made.n == 0) {
        char list[128];

        mu_cpuset_format(&alloc->cpus, list, sizeof list);
        free(made.cores);
        return mu_err_set(err, EINVAL,
                          "the step owns none of the node's CPUs (it owns "
                          "'%s', the node's %d cores have other numbers)",
                          list, node->ncores);
    }
    qsort(made.cores, (size_t)made.n, sizeof *made.cores, own_order);
    *own = made;
    return 0;
}

void mu_cores_clear(struct mu_cores *own)
{
    free(own->cores);
    memset(own, 0, sizeof *own);
}

/* The property that the cores of one bin share at each level of the packing. */
enum level { BY_NUMA, BY_CACHE, BY_CORE };

static int key_of(const struct mu_own_core *core, enum level level)
{
    return level == BY_NUMA ? core->numa : core->cache;
}

/* Put the pool in bin order (bins by their lowest core); returns the number of bins and
 * fills size[]. sorted[] gets the pool's cores.
 */
static int sort_bins(const struct mu_cores *own, const int *pool, int npool,
                     enum level level, int *sorted, int *size)
{
    int nbins = 0, n = 0;
    char *done = calloc((size_t)npool + 1, 1);

    if (!done)
        return -1;
    for (int i = 0; i < npool; i++) {
        int key = key_of(&own->cores[pool[i]], level);

        if (done[i])
            continue;
        size[nbins] = 0;
        for (int k = i; k < npool; k++)
            if (!done[k] && key_of(&own->cores[pool[k]], level) == key) {
                done[k] = 1;
                sorted[n++] = pool[k];
                size[nbins]++;
            }
        nbins++;
    }
    free(done);
    return nbins;
}

/* share[i * nbins + b]: cores of bin b for task i. Both return the number of pieces. */
static int fill_in_order(const int *size, int nbins, const int *want, int ntasks,
                         int *share)
{
    int pieces = 0, b = 0, left = size[0];

    for (int i = 0; i < ntasks; i++)
        for (int need = want[i]; need > 0;) {
            int take;

            while (left == 0)
                left = size[++b];
            take = need < left ? need : left;
            share[i * nbins + b] += take;
            left -= take;
            need -= take;
            pieces++;
        }
    return pieces;
}

static int fill_first_fit(const int *size, int nbins, const int *want, int ntasks,
                          int *left, int *share)
{
    int pieces = 0;

    memcpy(left, size, (size_t)nbins * sizeof *left);
    for (int i = 0; i < ntasks; i++)
        for (int need = want[i]; need > 0;) {
            int at = -1, take;

            for (int b = 0; b < nbins && at < 0; b++)
                if (left[b] >= need)
                    at = b;
            for (int b = 0; b < nbins && (at < 0 || left[at] < need); b++)
                if (at < 0 || left[b] > left[at])
                    at = b;
            take = need < left[at] ? need : left[at];
            share[i * nbins + at] += take;
            left[at] -= take;
            need -= take;
            pieces++;
        }
    return pieces;
}

/* The arguments that are the same on all levels. */
struct packing {
    const struct mu_cores *own;
    const int *task;
    int ntasks;
    int *task_of;
};

static int pack(const struct packing *p, enum level level, const int *pool, int npool,
                const int *want);

/* Pack each bin separately, one level down. share is tasks x bins. */
static int pack_bins(const struct packing *p, enum level level, const int *sorted,
                     const int *size, int nbins, const int *share)
{
    int *want = calloc((size_t)p->ntasks + 1, sizeof *want), rc = 0;

    if (!want)
        return -1;
    for (int b = 0; b < nbins && rc == 0; sorted += size[b], b++) {
        for (int i = 0; i < p->ntasks; i++)
            want[i] = share[i * nbins + b];
        rc = pack(p, level + 1, sorted, size[b], want);
    }
    free(want);
    return rc;
}

/* Assign the bins in order or by first fit, whichever splits fewer tasks. */
static int pack_level(const struct packing *p, enum level level, const int *sorted,
                      const int *size, int nbins, const int *want)
{
    size_t cells = (size_t)p->ntasks * (size_t)nbins + 1;
    int *ordered = calloc(cells, sizeof *ordered), *left = calloc(cells, sizeof *left);
    int *fitted = calloc(cells, sizeof *fitted), rc = -1;

    if (ordered && fitted && left) {
        int pieces = fill_in_order(size, nbins, want, p->ntasks, ordered);
        bool fit = fill_first_fit(size, nbins, want, p->ntasks, left, fitted) < pieces;

        rc = pack_bins(p, level, sorted, size, nbins, fit ? fitted : ordered);
    }
    free(ordered);
    free(fitted);
    free(left);
    return rc;
}

static int pack(const struct packing *p, enum level level, const int *pool, int npool,
                const int *want)
{
    int *sorted, *size, nbins = -1, rc = -1;

    if (level == BY_CORE) {
        for (int i = 0, at = 0; i < p->ntasks; i++)
            for (int n = 0; n < want[i]; n++)
                p->task_of[pool[at++]] = p->task[i];
        return 0;
    }
    sorted = calloc((size_t)npool + 1, sizeof *sorted);
    size = calloc((size_t)npool + 1, sizeof *size);
    if (sorted && size)
        nbins = sort_bins(p->own, pool, npool, level, sorted, size);
    if (nbins > 0)
        rc = pack_level(p, level, sorted, size, nbins, want);
    free(sorted);
    free(size);
    return rc;
}

int mu_cores_pack(const struct mu_cores *own, const int *pool, int npool,
                  const int *task, const int *want, int ntasks, int *task_of)
{
    struct packing p = { own, task, ntasks, task_of };

    return npool == 0 ? 0 : pack(&p, BY_NUMA, pool, npool, want);
}
