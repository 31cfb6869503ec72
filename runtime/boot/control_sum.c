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

/* ---- Gather ------------------------------------------------------------------------
 */

struct mu_gather {
    struct mu_gather *next;
    uint64_t number;
    int count;
    uint32_t flags;
    char **data; /* by rank: length as uint32_t, the bytes, then what it calls it */
};

static void free_gather(struct mu_gather *g, int size)
{
    for (int r = 0; g && g->data && r < size; r++)
        free(g->data[r]);
    if (g)
        free(g->data);
    free(g);
}

static struct mu_gather *find_gather(struct mu_control *c, uint64_t number)
{
    struct mu_gather *g = c->gathering;

    while (g && g->number != number)
        g = g->next;
    if (g)
        return g;
    g = calloc(1, sizeof *g);
    if (g)
        g->data = calloc((size_t)c->size, sizeof *g->data);
    if (!g || !g->data) {
        free_gather(g, c->size);
        return NULL;
    }
    g->number = number;
    g->next = c->gathering;
    c->gathering = g;
    return g;
}

static uint32_t length_of(const char *entry)
{
    uint32_t len;

    memcpy(&len, entry, sizeof len);
    return len;
}

static const char *called(const struct mu_gather *g, int rank)
{
    return g->data[rank] + sizeof(uint32_t) + length_of(g->data[rank]);
}

/* Gathers are matched by number, so ranks in different calls would meet in one and
 * misread each other's bytes.
 */
static bool names_agree(const struct mu_control *c, const struct mu_gather *g,
                        struct mu_complaint *out)
{
    uint64_t *name = calloc((size_t)c->size, sizeof *name);
    char others[128];
    int odd, usual;

    if (!name) {
        complain_of_memory(c, out);
        return false;
    }
    for (int r = 0; r < c->size; r++)
        name[r] = mu_hash(0, called(g, r), strlen(called(g, r)));
    odd = first_of_minority(name, c->size, &usual, others, sizeof others);
    free(name);
    if (odd < 0)
        return true;
    complain(out, MUSTER_ECONTRACT, odd,
             "rank %d (node %s) entered %s where %s entered %s", odd,
             c->env.world->host_of[odd], called(g, odd), others, called(g, usual));
    return false;
}

/* All ranks have posted: one blob goes to all ranks and to the caller on this one. */
static void finish_gather(struct mu_control *c, struct mu_gather *g,
                          struct mu_complaint *out)
{
    struct mu_gather **at = &c->gathering;
    size_t total = 0, n = 0;
    char *blob;

    if (!names_agree(c, g, out))
        return;
    for (int r = 0; r < c->size; r++)
        total += sizeof(uint32_t) + length_of(g->data[r]);
    blob = malloc(total + 1);
    if (!blob) {
        complain_of_memory(c, out);
        return;
    }
    for (int r = 0; r < c->size; r++) {
        size_t len = sizeof(uint32_t) + length_of(g->data[r]);

        memcpy(blob + n, g->data[r], len);
        n += len;
    }
    c->goodbye |= (g->flags & MU_FRAME_LAST) != 0;
    mu_control_send_down(c, MU_FRAME_ALL, g->flags, g->number, blob, total);
    free(c->all);
    c->all = blob;
    c->all_len = total;
    c->all_number = g->number;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    free_gather(g, c->size);
    pthread_cond_broadcast(&c->changed);
}

void mu_control_gather_add(struct mu_control *c, int from, uint32_t flags,
                           uint64_t number, const char *what, const void *data,
                           size_t len, struct mu_complaint *out)
{
    struct mu_gather *g = find_gather(c, number);
    uint32_t length = (uint32_t)len;
    size_t name = strlen(what) + 1;
    char *entry = malloc(sizeof length + len + name);

    if (!g || !entry || from < 0 || from >= c->size || g->data[from]) {
        free(entry);
        return;
    }
    memcpy(entry, &length, sizeof length);
    if (len > 0)
        memcpy(entry + sizeof length, data, len);
    memcpy(entry + sizeof length + len, what, name);
    g->flags |= flags;
    g->data[from] = entry;
    if (++g->count == c->size)
        finish_gather(c, g, out);
}

/* ---- Absent-gradient agreement -----------------------------------------------------
 */

static void free_agreement(struct mu_agreement *agreement)
{
    if (!agreement)
        return;
    free(agreement->absent);
    free(agreement->hash);
    free(agreement->order);
    free(agreement->here);
    free(agreement);
}

static struct mu_agreement *find_agreement(struct mu_control *c, uint64_t step)
{
    struct mu_agreement *agreement = c->agreements;

    while (agreement && agreement->step != step)
        agreement = agreement->next;
    if (agreement)
        return agreement;
    agreement = calloc(1, sizeof *agreement);
    if (!agreement)
        return NULL;
    agreement->hash = calloc((size_t)c->size, sizeof *agreement->hash);
    agreement->order = calloc((size_t)c->size, sizeof *agreement->order);
    agreement->here = calloc((size_t)c->size, sizeof *agreement->here);
    if (!agreement->hash || !agreement->order || !agreement->here) {
        free_agreement(agreement);
        return NULL;
    }
    agreement->step = step;
    agreement->next = c->agreements;
    c->agreements = agreement;
    return agreement;
}

/* A difference names a rank that has another hash than most. */
static bool hashes_agree(const struct mu_control *c,
                         const struct mu_agreement *agreement, struct mu_complaint *out)
{
    unsigned long long step = agreement->step;
    char others[128];
    int usual, odd = first_of_minority(agreement->hash, c->size, &usual, others,
                                       sizeof others);

    if (odd >= 0) {
        complain(
            out, MUSTER_ECONTRACT, odd,
            "step %llu: rank %d (node %s) disagrees with %s on bucket layout, loss "
            "scale or max_norm",
            step, odd, c->env.world->host_of[odd], others);
        return false;
    }
    odd = first_of_minority(agreement->order, c->size, &usual, others, sizeof others);
    if (odd < 0)
        return true;
    complain(
        out, MUSTER_ECONTRACT, odd,
        "step %llu: rank %d (node %s) started collectives in a different order than "
        "%s; all ranks must start the gradients of all ddp objects, and all other "
        "collectives, in the same order",
        step, odd, c->env.world->host_of[odd], others);
    return false;
}

static void finish_agreement(struct mu_control *c, struct mu_agreement *agreement,
                             struct mu_complaint *out)
{
    struct mu_agreement **at = &c->agreements;

    if (hashes_agree(c, agreement, out) && agreement->lacking) {
        mu_control_send_down(c, MU_FRAME_ABSENT, 0, agreement->step, agreement->absent,
                             agreement->nbytes);
        free(c->absent);
        c->absent = agreement->absent;
        c->absent_len = agreement->nbytes;
        c->absent_step = agreement->step;
        c->absent_known = true;
        agreement->absent = NULL;
        pthread_cond_broadcast(&c->changed);
    }
    while (*at != agreement)
        at = &(*at)->next;
    *at = agreement->next;
    free_agreement(agreement);
}

/* A rank that lacks no gradient makes the common set empty. */
static int add_bitmap(struct mu_agreement *agreement, const uint8_t *bits, size_t n)
{
    if (n > 0 && !agreement->absent) {
        agreement->absent = malloc(n);
        if (!agreement->absent)
            return -1;
        memset(agreement->absent,
               agreement->count > 0 && !agreement->lacking ? 0 : 0xff, n);
        agreement->nbytes = n;
    }
    if (n > 0)
        agreement->lacking = true;
    for (size_t i = 0; i < agreement->nbytes; i++)
        agreement->absent[i] &= i < n ? bits[i] : 0;
    return 0;
}

void mu_control_agree_add(struct mu_control *c, int from, uint64_t step,
                          const void *data, size_t len, struct mu_complaint *out)
{
    struct mu_agreement *agreement = find_agreement(c, step);
    const char *bytes = data;
    const size_t fixed = 2 * sizeof(uint64_t);

    if (!agreement || from < 0 || from >= c->size || agreement->here[from] ||
        len < fixed)
        return;
    memcpy(&agreement->hash[from], bytes, sizeof(uint64_t));
    memcpy(&agreement->order[from], bytes + sizeof(uint64_t), sizeof(uint64_t));
    if (add_bitmap(agreement, (const uint8_t *)bytes + fixed, len - fixed) < 0) {
        complain_of_memory(c, out);
        return;
    }
    agreement->here[from] = true;
    if (++agreement->count == c->size)
        finish_agreement(c, agreement, out);
}

void mu_control_sums_clear(struct mu_control *c)
{
    while (c->gathering) {
        struct mu_gather *g = c->gathering;

        c->gathering = g->next;
        free_gather(g, c->size);
    }
    while (c->agreements) {
        struct mu_agreement *agreement = c->agreements;

        c->agreements = agreement->next;
        free_agreement(agreement);
    }
    free(c->all);
    free(c->absent);
    c->all = NULL;
    c->absent = NULL;
}
