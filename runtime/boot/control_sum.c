/* SPDX-License-Identifier: BSD-3-Clause */
/* control_sum.c - what the root puts together: gathers, absent-gradient agreements */
#include "runtime/boot/control_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/core/contract.h"
#include "runtime/core/ranks.h"
#include "runtime/muster.h"

/* ---- The rank that differs ---------------------------------------------------------
 */

/* The first rank whose value differs from that of most ranks, -1: all are equal. *usual
 * is a rank of the majority, others its list.
 */
static int first_of_minority(const uint64_t *value, int size, int *usual, char *others,
                             size_t len)
{
    int most = 0, odd = -1;
    bool *same;

    for (int r = 0; r < size; r++) {
        int n = 0;

        if (r > 0 && value[r] == value[r - 1])
            continue;
        for (int s = 0; s < size; s++)
            n += value[s] == value[r];
        if (n > most) {
            most = n;
            *usual = r;
        }
    }
    if (most >= size)
        return -1;
    same = calloc((size_t)size, sizeof *same);
    for (int r = size - 1; r >= 0; r--) {
        if (value[r] != value[*usual])
            odd = r;
        else if (same)
            same[r] = true;
    }
    if (same)
        mu_ranks_text(same, size, others, len);
    else
        snprintf(others, len, "%d other ranks", most);
    free(same);
    return odd;
}

__attribute__((format(printf, 4, 5))) static void
complain(struct mu_complaint *out, int status, int rank, const char *fmt, ...)
{
    va_list ap;

    out->status = status;
    out->rank = rank;
    va_start(ap, fmt);
    vsnprintf(out->text, sizeof out->text, fmt, ap);
    va_end(ap);
}

static void complain_of_memory(const struct mu_control *c, struct mu_complaint *out)
{
    complain(out, MUSTER_EMEMORY, c->rank, "out of memory in rank 0");
}

/* ---- What ranks have sent ------------------------------------------------------- */

struct mu_sum {
    struct mu_sum *next;
    enum mu_frame_type type; /* MU_FRAME_GATHER or MU_FRAME_AGREE */
    uint64_t number;
    int count;
    uint32_t flags;
    /* By rank: length as uint32_t, the bytes, then what the rank calls a gather. */
    char **data;
};

static void free_sum(struct mu_sum *s, int size)
{
    for (int r = 0; s && s->data && r < size; r++)
        free(s->data[r]);
    if (s)
        free(s->data);
    free(s);
}

static struct mu_sum *find_sum(struct mu_control *c, enum mu_frame_type type,
                               uint64_t number)
{
    struct mu_sum *s = c->sums;

    while (s && (s->type != type || s->number != number))
        s = s->next;
    if (s)
        return s;
    s = calloc(1, sizeof *s);
    if (s)
        s->data = calloc((size_t)c->size, sizeof *s->data);
    if (!s || !s->data) {
        free_sum(s, c->size);
        return NULL;
    }
    s->type = type;
    s->number = number;
    s->next = c->sums;
    c->sums = s;
    return s;
}

static size_t length_of(const struct mu_sum *s, int rank)
{
    uint32_t len;

    memcpy(&len, s->data[rank], sizeof len);
    return len;
}

static const char *bytes_of(const struct mu_sum *s, int rank)
{
    return s->data[rank] + sizeof(uint32_t);
}

static const char *called(const struct mu_sum *s, int rank)
{
    return bytes_of(s, rank) + length_of(s, rank);
}

/* ---- Do they agree? ------------------------------------------------------------- */

struct difference {
    int odd, usual;   /* the first rank of the minority, one of the others */
    char others[128]; /* their list */
};

static bool differ(const struct mu_control *c, const struct mu_sum *s,
                   uint64_t (*value_of)(const struct mu_sum *s, int rank),
                   struct difference *d, struct mu_complaint *out)
{
    uint64_t *value = calloc((size_t)c->size, sizeof *value);

    if (!value) {
        complain_of_memory(c, out);
        return false;
    }
    for (int r = 0; r < c->size; r++)
        value[r] = value_of(s, r);
    d->odd = first_of_minority(value, c->size, &d->usual, d->others, sizeof d->others);
    free(value);
    return d->odd >= 0;
}

static uint64_t name_of(const struct mu_sum *s, int rank)
{
    return mu_hash(0, called(s, rank), strlen(called(s, rank)));
}

static uint64_t layout_of(const struct mu_sum *s, int rank)
{
    uint64_t hash;

    memcpy(&hash, bytes_of(s, rank), sizeof hash);
    return hash;
}

static uint64_t order_of(const struct mu_sum *s, int rank)
{
    uint64_t hash;

    memcpy(&hash, bytes_of(s, rank) + sizeof hash, sizeof hash);
    return hash;
}

/* Gathers are matched by number, so ranks in different calls would meet in one and
 * misread each other's bytes.
 */
static void check_gather(const struct mu_control *c, const struct mu_sum *s,
                         struct mu_complaint *out)
{
    struct difference d;

    if (differ(c, s, name_of, &d, out))
        complain(out, MUSTER_ECONTRACT, d.odd,
                 "rank %d (node %s) entered %s where %s entered %s", d.odd,
                 c->env.world->host_of[d.odd], called(s, d.odd), d.others,
                 called(s, d.usual));
}

static void check_agreement(const struct mu_control *c, const struct mu_sum *s,
                            struct mu_complaint *out)
{
    unsigned long long step = s->number;
    struct difference d;

    if (differ(c, s, layout_of, &d, out))
        complain(
            out, MUSTER_ECONTRACT, d.odd,
            "step %llu: rank %d (node %s) disagrees with %s on bucket layout, loss "
            "scale or max_norm",
            step, d.odd, c->env.world->host_of[d.odd], d.others);
    else if (differ(c, s, order_of, &d, out))
        complain(
            out, MUSTER_ECONTRACT, d.odd,
            "step %llu: rank %d (node %s) started collectives in a different order "
            "than %s; all ranks must start the gradients of all ddp objects, and all "
            "other collectives, in the same order",
            step, d.odd, c->env.world->host_of[d.odd], d.others);
}

/* ---- Results -------------------------------------------------------------------- */

void mu_control_result(struct mu_control *c, const struct mu_frame *f, const char *data)
{
    struct mu_result *to = f->type == MU_FRAME_ALL ? &c->all : &c->absent;

    /* After the decision it would let a rank leave its call as if all were well. */
    if (c->ended)
        return;
    mu_control_send_down(c, (enum mu_frame_type)f->type, f->flags, f->number, data,
                         f->len);
    c->goodbye |= (f->flags & MU_FRAME_LAST) != 0;
    free(to->bytes);
    *to = (struct mu_result){ .number = f->number, .len = f->len, .fresh = true };
    to->bytes = malloc(f->len + 1);
    if (to->bytes)
        memcpy(to->bytes, data, f->len);
    pthread_cond_broadcast(&c->changed);
}

static void finish_gather(struct mu_control *c, const struct mu_sum *s,
                          struct mu_complaint *out)
{
    struct mu_frame f = { .type = MU_FRAME_ALL,
                          .flags = s->flags,
                          .number = s->number };
    size_t total = 0, n = 0;
    char *blob;

    for (int r = 0; r < c->size; r++)
        total += sizeof(uint32_t) + length_of(s, r);
    blob = malloc(total + 1);
    if (!blob) {
        complain_of_memory(c, out);
        return;
    }
    for (int r = 0; r < c->size; r++) {
        size_t len = sizeof(uint32_t) + length_of(s, r);

        memcpy(blob + n, s->data[r], len);
        n += len;
    }
    f.len = (uint32_t)total;
    mu_control_result(c, &f, blob);
    free(blob);
}

#define HASHES (2 * sizeof(uint64_t)) /* of an agreement, before the bitmap */

/* What every rank lacks; a rank that sends no bitmap has all gradients. If no rank
 * sends one, none waits for the result.
 */
static void finish_agreement(struct mu_control *c, const struct mu_sum *s,
                             struct mu_complaint *out)
{
    struct mu_frame f = { .type = MU_FRAME_ABSENT, .number = s->number };
    size_t longest = 0;
    char *absent;

    for (int r = 0; r < c->size; r++)
        if (length_of(s, r) - HASHES > longest)
            longest = length_of(s, r) - HASHES;
    if (longest == 0)
        return;
    absent = malloc(longest);
    if (!absent) {
        complain_of_memory(c, out);
        return;
    }
    memset(absent, 0xff, longest);
    for (int r = 0; r < c->size; r++)
        for (size_t i = 0; i < longest; i++)
            absent[i] &= HASHES + i < length_of(s, r) ? bytes_of(s, r)[HASHES + i] : 0;
    f.len = (uint32_t)longest;
    mu_control_result(c, &f, absent);
    free(absent);
}

/* ---- In and out ----------------------------------------------------------------- */

/* All ranks have sent theirs. */
static void finish(struct mu_control *c, struct mu_sum *s, struct mu_complaint *out)
{
    bool gather = s->type == MU_FRAME_GATHER;
    struct mu_sum **at = &c->sums;

    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    (gather ? check_gather : check_agreement)(c, s, out);
    if (out->status == MUSTER_OK)
        (gather ? finish_gather : finish_agreement)(c, s, out);
    free_sum(s, c->size);
}

void mu_control_sum_add(struct mu_control *c, const struct mu_frame *f,
                        const char *what, const void *data, struct mu_complaint *out)
{
    enum mu_frame_type type = (enum mu_frame_type)f->type;
    size_t name = strlen(what) + 1;
    struct mu_sum *s;
    char *entry;

    if (f->from < 0 || f->from >= c->size ||
        (type == MU_FRAME_AGREE && f->len < HASHES))
        return;
    s = find_sum(c, type, f->number);
    entry = malloc(sizeof f->len + f->len + name);
    if (!s || !entry || s->data[f->from]) {
        free(entry);
        return;
    }
    memcpy(entry, &f->len, sizeof f->len);
    if (f->len > 0)
        memcpy(entry + sizeof f->len, data, f->len);
    memcpy(entry + sizeof f->len + f->len, what, name);
    s->flags |= f->flags;
    s->data[f->from] = entry;
    if (++s->count == c->size)
        finish(c, s, out);
}

void mu_control_sums_clear(struct mu_control *c)
{
    while (c->sums) {
        struct mu_sum *s = c->sums;

        c->sums = s->next;
        free_sum(s, c->size);
    }
    free(c->all.bytes);
    free(c->absent.bytes);
    c->all.bytes = c->absent.bytes = NULL;
}
