/* SPDX-License-Identifier: BSD-3-Clause */
/* own_table.c - which allocations of a program its peers have mapped; no CUDA */
#include "runtime/backend/nccl/own_table.h"

#include <string.h>

static bool in_use(uint32_t generation)
{
    return generation & 1;
}

static bool inside(const struct mu_own_allocation *a, uintptr_t p, size_t bytes)
{
    return p >= a->base && bytes <= a->bytes && p - a->base <= a->bytes - bytes;
}

/* Ids are numbered upwards, so most allocations have a slot of their own. */
int mu_own_find(const struct mu_own_table *t, uint64_t id, const void *p, size_t bytes)
{
    for (unsigned i = 0; i < MU_OWN_SLOTS; i++) {
        int slot = (int)((id + i) % MU_OWN_SLOTS);
        const struct mu_own_entry *e = &t->entry[slot];

        if (in_use(e->generation) && e->at.id == id &&
            inside(&e->at, (uintptr_t)p, bytes))
            return slot;
    }
    return -1;
}

/* A peer that still reads the handle, or maps it, has not answered the generation. */
static bool vacant(const struct mu_own_table *t, int slot)
{
    uint32_t generation = t->entry[slot].generation;

    if (in_use(generation))
        return false;
    for (int p = 0; p < t->n; p++)
        if (p != t->rank &&
            atomic_load(&t->board[p]->seen[t->rank][slot]) != generation)
            return false;
    return true;
}

static bool overlaps(const struct mu_own_allocation *a,
                     const struct mu_own_allocation *b)
{
    return a->base < b->base + b->bytes && b->base < a->base + a->bytes;
}

int mu_own_add(struct mu_own_table *t, const struct mu_own_allocation *at)
{
    for (int slot = 0; slot < MU_OWN_SLOTS; slot++)
        if (in_use(t->entry[slot].generation) && overlaps(&t->entry[slot].at, at))
            mu_own_retire(t, slot);
    for (unsigned i = 0; i < MU_OWN_SLOTS; i++) {
        int slot = (int)((at->id + i) % MU_OWN_SLOTS);

        if (!vacant(t, slot))
            continue;
        t->entry[slot].at = *at;
        t->entry[slot].generation++;
        return slot;
    }
    return -1;
}

bool mu_own_unannounced(const struct mu_own_table *t, int slot)
{
    uint32_t generation = t->entry[slot].generation;

    return in_use(generation) &&
           atomic_load(&t->board[t->rank]->slot[slot].generation) != generation;
}

void mu_own_announce(struct mu_own_table *t, int slot, enum mu_own_by by,
                     const void *handle)
{
    struct mu_own_board *mine = t->board[t->rank];

    mine->slot[slot].by = by;
    if (handle)
        memcpy(mine->slot[slot].handle, handle, MU_OWN_HANDLE);
    atomic_store(&mine->slot[slot].generation, t->entry[slot].generation);
}

void mu_own_retire(struct mu_own_table *t, int slot)
{
    uint32_t generation = ++t->entry[slot].generation;

    atomic_store(&t->board[t->rank]->slot[slot].generation, generation);
}

bool mu_own_held(const struct mu_own_table *t, int slot)
{
    uint32_t generation = t->entry[slot].generation;

    if (!in_use(generation) || mu_own_unannounced(t, slot))
        return false;
    for (int p = 0; p < t->n; p++) {
        const struct mu_own_board *board = t->board[p];

        if (p != t->rank && (atomic_load(&board->seen[t->rank][slot]) != generation ||
                             !atomic_load(&board->held[t->rank][slot])))
            return false;
    }
    return true;
}

bool mu_own_next(const struct mu_own_table *t, struct mu_own_change *after)
{
    const struct mu_own_board *mine = t->board[t->rank];
    int slot = after->handle ? after->slot + 1 : 0;

    for (int p = after->peer; p < t->n; p++, slot = 0)
        for (; p != t->rank && slot < MU_OWN_SLOTS; slot++) {
            uint32_t generation = atomic_load(&t->board[p]->slot[slot].generation);

            if (generation == atomic_load(&mine->seen[p][slot]))
                continue;
            *after = (struct mu_own_change){ p,
                                             slot,
                                             generation,
                                             atomic_load(&mine->held[p][slot]),
                                             (enum mu_own_by)t->board[p]->slot[slot].by,
                                             t->board[p]->slot[slot].handle };
            return true;
        }
    return false;
}

void mu_own_answer(struct mu_own_table *t, const struct mu_own_change *change,
                   bool held)
{
    struct mu_own_board *mine = t->board[t->rank];

    atomic_store(&mine->held[change->peer][change->slot], held);
    atomic_store(&mine->seen[change->peer][change->slot], change->generation);
}
