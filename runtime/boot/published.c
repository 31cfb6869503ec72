/* SPDX-License-Identifier: BSD-3-Clause */
/* published.c - an exchange over any all-gather of bytes
 *
 * A fence gathers the length of what each rank has published since the last one, then
 * the bytes, padded to the longest.
 */
#include "runtime/boot/published.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/core/reporter.h"
#include "runtime/muster.h"

#define LONGEST ((uint64_t)1 << 24) /* of one rank: more than any rendezvous needs */

#define LONGEST_KEY 64 /* with the end */
#define LONGEST_NAME 320

/* Before a key and its value, on their way. */
struct head {
    uint32_t key_len, len;
};

struct mu_published_entry {
    struct mu_published_entry *next;
    int rank;
    char key[LONGEST_KEY];
    size_t len;
    char value[];
};

static int publish(void *arg, const char *key, const void *value, size_t len,
                   struct mu_err *err)
{
    struct mu_published *p = arg;
    struct head e = { (uint32_t)strlen(key), (uint32_t)len };
    char *more = realloc(p->out, p->out_len + sizeof e + e.key_len + len);

    if (!more)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %s", key);
    p->out = more;
    more += p->out_len;
    memcpy(more, &e, sizeof e);
    memcpy(more + sizeof e, key, e.key_len);
    memcpy(more + sizeof e + e.key_len, value, len);
    p->out_len += sizeof e + e.key_len + len;
    return 0;
}

/* The key has key_len bytes and no end. */
static int add(struct mu_published *p, int rank, const char *key, size_t key_len,
               const void *value, size_t len, struct mu_err *err)
{
    struct mu_published_entry *e;

    if (key_len >= sizeof e->key)
        return mu_err_set(err, MUSTER_EINTERNAL, "the key %.*s is too long",
                          LONGEST_KEY, key);
    e = calloc(1, sizeof *e + len + 1);
    if (!e)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %.*s", (int)key_len,
                          key);
    e->rank = rank;
    memcpy(e->key, key, key_len);
    e->len = len;
    memcpy(e->value, value, len);
    e->next = p->first; /* the newest of a key is found first */
    p->first = e;
    return 0;
}

/* "rank 3 (node b)": its node, where it is known already. */
static const char *name(const struct mu_published *p, int rank, char text[LONGEST_NAME])
{
    const char *host = p->host_of ? p->host_of[rank] : NULL;

    mu_rank_name_text(&(struct mu_rank_name){ .rank = rank, .host = host ? host : "" },
                      text, LONGEST_NAME);
    return text;
}

static int absorb(struct mu_published *p, int rank, const char *bytes, size_t len,
                  struct mu_err *err)
{
    char who[LONGEST_NAME];
    struct head e;

    for (size_t at = 0; at < len; at += (size_t)e.key_len + e.len) {
        if (len - at >= sizeof e)
            memcpy(&e, bytes + at, sizeof e);
        at += sizeof e;
        if (at > len || len - at < (size_t)e.key_len + e.len)
            return mu_err_set(err, MUSTER_ERENDEZVOUS,
                              "what %s sent in a fence is truncated",
                              name(p, rank, who));
        if (add(p, rank, bytes + at, e.key_len, bytes + at + e.key_len, e.len, err) < 0)
            return -1;
    }
    return 0;
}

/* The bytes of all ranks, each `longest` long. */
static int gather_bytes(struct mu_published *p, const uint64_t *len, uint64_t longest,
                        double timeout, struct mu_err *err)
{
    char *all = calloc((size_t)p->size + 1, longest), *mine;
    int rc = -1;

    if (!all)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", p->size);
    mine = all + (size_t)p->size * longest;
    if (p->out_len > 0)
        memcpy(mine, p->out, p->out_len);
    if (p->gather(p->arg, mine, longest, all, timeout, err) < 0)
        goto out;
    for (int r = 0; r < p->size; r++)
        if (absorb(p, r, all + (size_t)r * longest, len[r], err) < 0)
            goto out;
    rc = 0;
out:
    free(all);
    return rc;
}

static int fence(void *arg, double timeout, struct mu_err *err)
{
    struct mu_published *p = arg;
    double until = mu_clock_s() + timeout, left;
    uint64_t *len = calloc((size_t)p->size, sizeof *len), mine = p->out_len;
    uint64_t longest = 0;
    char who[LONGEST_NAME];
    int rc = -1;

    if (!len)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", p->size);
    if (p->gather(p->arg, &mine, sizeof mine, len, timeout, err) < 0)
        goto out;
    for (int r = 0; r < p->size; r++) {
        if (len[r] > LONGEST) {
            mu_err_set(err, MUSTER_ERENDEZVOUS,
                       "%s sent a length of %llu bytes in a fence", name(p, r, who),
                       (unsigned long long)len[r]);
            goto out;
        }
        longest = len[r] > longest ? len[r] : longest;
    }
    left = until - mu_clock_s();
    rc = longest == 0 ? 0 : gather_bytes(p, len, longest, left > 0 ? left : 0, err);
out:
    free(len);
    free(p->out);
    p->out = NULL;
    p->out_len = 0;
    return rc;
}

static int fetch(void *arg, int rank, const char *key, void **value, size_t *len,
                 double timeout, struct mu_err *err)
{
    const struct mu_published *p = arg;
    const struct mu_published_entry *e = p->first;
    char *copy, who[LONGEST_NAME];

    while (e && (e->rank != rank || strcmp(e->key, key) != 0))
        e = e->next;
    if (!e)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "%s published no %s",
                          name(p, rank, who), key);
    copy = malloc(e->len + 1);
    if (!copy)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %s", key);
    memcpy(copy, e->value, e->len);
    *value = copy;
    *len = e->len;
    return 0;
}

struct mu_exchange mu_published_exchange(struct mu_published *p)
{
    return (struct mu_exchange){ p, publish, fence, fetch, NULL };
}

void mu_published_clear(struct mu_published *p)
{
    while (p->first) {
        struct mu_published_entry *e = p->first;

        p->first = e->next;
        free(e);
    }
    free(p->out);
    p->out = NULL;
    p->out_len = 0;
}
