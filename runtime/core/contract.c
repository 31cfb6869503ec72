/* SPDX-License-Identifier: BSD-3-Clause */
/* contract.c - what all ranks must agree on, and which ranks differ */
#include "runtime/core/contract.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/core/ranks.h"
#include "runtime/core/text.h"
#include "runtime/muster.h"

/* FNV-1a, then a final mix: without it, inputs that differ in the last byte have hashes
 * that differ in few bits.
 */
uint64_t mu_hash(uint64_t seed, const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    uint64_t h = seed ^ UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    h ^= h >> 32;
    h *= UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static int grow(struct mu_contract *c, struct mu_err *err)
{
    int room = c->room ? c->room * 2 : 64;
    uint64_t *hash = realloc(c->hash, (size_t)room * sizeof *hash);
    char(*line)[MU_CONTRACT_TEXT];

    if (hash)
        c->hash = hash;
    line = realloc(c->line, (size_t)room * sizeof *line);
    if (line)
        c->line = line;
    if (!hash || !line)
        return mu_err_set(err, MUSTER_EMEMORY,
                          "out of memory for a contract of %d lines", room);
    c->room = room;
    return 0;
}

int mu_contract_add(struct mu_contract *c, struct mu_err *err, const char *fmt, ...)
{
    char *whole = NULL;
    va_list ap;
    int n;

    if (c->n == c->room && grow(c, err) < 0)
        return -1;
    va_start(ap, fmt);
    n = vasprintf(&whole, fmt, ap);
    va_end(ap);
    if (n < 0)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for a contract");
    c->hash[c->n] = mu_hash(0, whole, (size_t)n);
    snprintf(c->line[c->n], MU_CONTRACT_TEXT, "%s", whole);
    c->n++;
    free(whole);
    return 0;
}

void mu_contract_clear(struct mu_contract *c)
{
    free(c->hash);
    free(c->line);
    *c = (struct mu_contract){ 0 };
}

uint64_t mu_contract_total(const struct mu_contract *c)
{
    return mu_hash((uint64_t)c->n, c->hash, (size_t)c->n * sizeof *c->hash);
}

int mu_contract_first_difference(const uint64_t *const *hash, const int *n, int size)
{
    for (int i = 0;; i++) {
        int ended = 0;

        for (int r = 0; r < size; r++)
            ended += i >= n[r];
        if (ended == size)
            return -1;
        if (ended > 0)
            return i;
        for (int r = 1; r < size; r++)
            if (hash[r][i] != hash[0][i])
                return i;
    }
}

void mu_contract_sides(const char *const *line, int size, const char *const *host_of,
                       char *text, size_t len)
{
    bool *done = calloc((size_t)size, sizeof *done);
    bool *side = calloc((size_t)size, sizeof *side);
    size_t n = 0;

    text[0] = '\0';
    for (int r = 0; done && side && r < size; r++) {
        char ranks[192];

        if (done[r])
            continue;
        for (int s = 0; s < size; s++) {
            side[s] = strcmp(line[s], line[r]) == 0;
            done[s] |= side[s];
        }
        mu_ranks_text_at(side, size, host_of, ranks, sizeof ranks);
        mu_text_add(text, len, &n, "%s%s on %s", n ? ", but " : "",
                    line[r][0] ? line[r] : "no such line", ranks);
    }
    free(done);
    free(side);
}
