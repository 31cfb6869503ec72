/* SPDX-License-Identifier: BSD-3-Clause */
/* own_table.h - which allocations of a program its peers have mapped; no CUDA
 *
 *   owner, in a call      reads the buffer id -> slot and generation, or a new slot
 *   owner, watch thread   handle -> board; a freed allocation -> retired
 *   peer, watch thread    board -> opens or closes its mapping -> answers on its board
 *   owner, watch thread   all peers hold the mapping -> direct for kernels
 *
 * The buffer id is the key, never the address: a peer's mapping outlives cudaFree, the
 * next cudaMalloc may return the same address, and the old mapping reads the old bytes.
 * A kernel has slot and generation, so nothing changes under it: a slot gets its next
 * allocation when all peers have closed the one before.
 *
 * One lock of the caller protects the entries; boards are shared among processes.
 */
#ifndef MU_NCCL_OWN_TABLE_H
#define MU_NCCL_OWN_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MU_OWN_PEERS 8   /* as MU_PEERS */
#define MU_OWN_SLOTS 512 /* allocations of one rank */
#define MU_OWN_HANDLE 64 /* bytes of a CUDA IPC handle */

/* How a peer gets at an allocation. */
enum mu_own_by {
    MU_BY_HANDLE,     /* a CUDA IPC handle on the board */
    MU_BY_DESCRIPTOR, /* a file descriptor, sent before (virtual.c) */
};

/* Shared memory of one rank: it writes, its peers read. */
struct mu_own_board {
    struct {
        atomic_uint generation; /* odd: an allocation; even: none */
        uint32_t by;            /* enum mu_own_by */
        unsigned char handle[MU_OWN_HANDLE];
    } slot[MU_OWN_SLOTS];
    /* Answers, by owner. seen: the generation that this rank has dealt with. held: it
     * has mapped that allocation.
     */
    atomic_uint seen[MU_OWN_PEERS][MU_OWN_SLOTS];
    atomic_bool held[MU_OWN_PEERS][MU_OWN_SLOTS];
};

struct mu_own_allocation {
    uint64_t id; /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
    uintptr_t base;
    size_t bytes;
    bool is_virtual; /* mapped from a handle, perhaps one range of several */
};

struct mu_own_entry {
    struct mu_own_allocation at;
    uint32_t generation; /* as the kernels have it; odd: in use */
};

struct mu_own_table {
    int rank, n;                              /* among the ranks of this node */
    struct mu_own_board *board[MU_OWN_PEERS]; /* by local rank, including our own */
    struct mu_own_entry entry[MU_OWN_SLOTS];
};

/* The slot of the allocation `id`, in which all of [p, p + bytes) lies; -1: none. */
int mu_own_find(const struct mu_own_table *t, uint64_t id, const void *p, size_t bytes);
/* A slot for an allocation that mu_own_find does not find. Entries of the same
 * addresses are retired. -1: no slot is free.
 */
int mu_own_add(struct mu_own_table *t, const struct mu_own_allocation *at);
/* Is the allocation new, so that it needs a handle? */
bool mu_own_unannounced(const struct mu_own_table *t, int slot);
/* handle: NULL for a descriptor, which the peers have been sent. */
void mu_own_announce(struct mu_own_table *t, int slot, enum mu_own_by by,
                     const void *handle);
/* The allocation was freed. */
void mu_own_retire(struct mu_own_table *t, int slot);
/* Have all peers mapped it? */
bool mu_own_held(const struct mu_own_table *t, int slot);

/* A slot of a peer whose generation this rank has not answered. */
struct mu_own_change {
    int peer, slot;
    uint32_t generation; /* odd: map `handle`; even: close the mapping */
    bool held;           /* a mapping of an earlier generation is open */
    enum mu_own_by by;
    const unsigned char *handle;
};

/* The first change behind *after ({0} at first). False: none is left. */
bool mu_own_next(const struct mu_own_table *t, struct mu_own_change *after);
void mu_own_answer(struct mu_own_table *t, const struct mu_own_change *change,
                   bool held);

#endif
