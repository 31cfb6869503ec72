/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_buckets.c - libmuster's buckets: ready, started, ended, exposed
 *
 * The first step has no begin and is left out: it also connects and learns the order.
 */
#include <stdlib.h>

#include "runtime/base/array.h"
#include "runtime/tools/profile.h"

#define NS_PER_US 1000.0
#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

/* A record, with the communicator that all files have in common. */
struct of_comm {
    struct mu_ledger_bucket b;
    uint64_t hash;
};

static int by_bucket(const void *one, const void *other)
{
    const struct of_comm *a = one, *b = other;
    int order = ORDER(a->hash, b->hash);

    order = order ? order : ORDER(a->b.ddp, b->b.ddp);
    return order ? order : ORDER(a->b.bucket, b->b.bucket);
}

/* The step first, then in the order in which they are ready. */
static int by_ready(const void *one, const void *other)
{
    const struct mu_profile_bucket *a = one, *b = other;
    int order = ORDER(a->hash, b->hash);

    order = order ? order : ORDER(a->ddp, b->ddp);
    order =
        order ? order : ORDER(b->bucket == MU_LEDGER_STEP, a->bucket == MU_LEDGER_STEP);
    return order ? order : ORDER(a->ready, b->ready);
}

/* The records of all files, in order. Caller frees *out. */
static int gather(const struct mu_profile *p, struct of_comm **out, size_t *n)
{
    for (int i = 0; i < p->nfiles; i++) {
        const struct mu_ledger_head *head = p->files[i].head;
        struct of_comm one;
        uint64_t end;

        for (uint64_t k = mu_ledger_oldest_bucket(head, &end); k < end; k++) {
            if (!mu_ledger_bucket(head, k, &one.b) || !one.b.begin)
                continue;
            if (mu_array_room(out, sizeof one, *n) < 0)
                return -1;
            one.hash = mu_ledger_comms(p->files[i].image)[one.b.comm].hash;
            (*out)[(*n)++] = one;
        }
    }
    if (*n > 0)
        qsort(*out, *n, sizeof **out, by_bucket);
    return 0;
}

/* Median of the time between two moments, both of which are known. */
static double between(const struct of_comm *r, size_t n, size_t from, size_t to,
                      double *value)
{
    size_t known = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t begin = *(const uint64_t *)((const char *)&r[i].b + from);
        uint64_t end = *(const uint64_t *)((const char *)&r[i].b + to);

        if (begin && end >= begin)
            value[known++] = (double)(end - begin) / NS_PER_US;
    }
    return mu_profile_median(value, known);
}

/* n records of one bucket; `value` has room for as many. */
static void make_bucket(const struct of_comm *r, size_t n, double *value,
                        struct mu_profile_bucket *out)
{
#define BETWEEN(from, to)                                                              \
    between(r, n, offsetof(struct mu_ledger_bucket, from),                             \
            offsetof(struct mu_ledger_bucket, to), value)
    *out = (struct mu_profile_bucket){ .hash = r->hash,
                                       .ddp = r->b.ddp,
                                       .bucket = r->b.bucket,
                                       .records = (long)n,
                                       .bytes = (double)r->b.bytes,
                                       .ready = BETWEEN(begin, ready),
                                       .launch = BETWEEN(ready, launched),
                                       .queue = BETWEEN(launched, started),
                                       .work = BETWEEN(started, ended),
                                       .joined = BETWEEN(begin, joined) };
    for (size_t i = 0; i < n; i++)
        value[i] = (double)r[i].b.exposed / NS_PER_US;
    out->exposed = mu_profile_median(value, n);
    out->exposed_most = value[n - 1];
}

int mu_profile_buckets_find(struct mu_profile *p)
{
    struct of_comm *all = NULL;
    double *value = NULL;
    size_t n = 0, of;
    int kinds = 0, rc = -1;

    if (gather(p, &all, &n) < 0)
        goto out;
    for (size_t at = 0; at < n; at++)
        kinds += at == 0 || by_bucket(&all[at - 1], &all[at]) != 0;
    value = malloc((n + 1) * sizeof *value);
    p->buckets = calloc((size_t)kinds + 1, sizeof *p->buckets);
    if (!value || !p->buckets)
        goto out;
    for (size_t at = 0; at < n; at += of) {
        for (of = 1; at + of < n && by_bucket(&all[at], &all[at + of]) == 0;)
            of++;
        make_bucket(&all[at], of, value, &p->buckets[p->nbuckets++]);
    }
    qsort(p->buckets, (size_t)p->nbuckets, sizeof *p->buckets, by_ready);
    rc = 0;
out:
    free(all);
    free(value);
    return rc;
}
