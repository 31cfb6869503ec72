/* SPDX-License-Identifier: BSD-3-Clause */
/* own_call.c - a call looks its buffers up, and starts the kernel */
#include "runtime/backend/nccl/nccl.h"
#include "runtime/backend/nccl/own.h"

/* The slot of the allocation at p, which has a new one where p was not seen before.
 * `captured`: none of virtual memory.
 */
static int slot_of(struct mu_own *o, uintptr_t p, bool captured)
{
    struct mu_own_allocation at = { .id = mu_own_id(o, (void *)p) };
    CUdeviceptr base = 0;
    int slot, has_handle = 1;

    if (at.id == 0)
        return -1;
    slot = mu_own_find(&o->table, at.id, (void *)p, 1);
    if (slot >= 0 || o->range(&base, &at.bytes, p) != CUDA_SUCCESS)
        return slot;
    at.base = (uintptr_t)base;
    if (p < at.base || p - at.base >= at.bytes)
        return -1;
    if (o->attribute(&has_handle, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p) ==
        CUDA_SUCCESS)
        at.is_virtual = !has_handle;
    if (captured && at.is_virtual)
        return -1;
    slot = mu_own_add(&o->table, &at);
    if (slot >= 0) {
        o->refused[slot] = false;
        o->sent[slot] = 0;
        mu_own_let_go(o, slot);
        if (at.is_virtual)
            o->kept[slot] = mu_virtual_keep(&o->virtual_memory, at.base);
    }
    return slot;
}

/* The allocations below [p, p + bytes). Several only where the peers map them behind
 * each other too. Of virtual memory none in a captured call: a program may map other
 * memory at its addresses before it replays the graph, and nothing reads ids then.
 */
static struct mu_own_place place_of(struct mu_nccl_backend *b, const void *p,
                                    size_t bytes, bool captured)
{
    struct mu_own *o = &b->ours;
    struct mu_own_place place = { .n = 0 };
    const uintptr_t begin = (uintptr_t)p, end = begin + bytes;
    uintptr_t at = begin;
    bool chained = true;

    if (begin % 16 != 0)
        return place;
    if ((const char *)p >= b->control &&
        (const char *)p < b->control + b->control_bytes) {
        place.n = 1;
        place.offset = (size_t)((const char *)p - b->control);
        place.piece[0].slot = MU_OWN_CONTROL;
        place.piece[0].generation = 1;
        return place;
    }
    pthread_mutex_lock(&o->entries);
    while (at < end && place.n < MU_OWN_RUN) {
        int slot = slot_of(o, at, captured);
        const struct mu_own_entry *e = &o->table.entry[slot < 0 ? 0 : slot];

        if (slot < 0 || (captured && e->at.is_virtual))
            break;
        if (place.n == 0)
            place.offset = begin - e->at.base;
        chained = chained && e->at.is_virtual;
        place.piece[place.n].slot = slot;
        place.piece[place.n++].generation = e->generation;
        at = e->at.base + e->at.bytes;
    }
    pthread_mutex_unlock(&o->entries);
    if (at < end || (place.n > 1 &&
                     !(chained && mu_virtual_in_window(begin - place.offset,
                                                       at - (begin - place.offset)))))
        place.n = 0;
    return place;
}

/* Peers read what is added up, and write what all ranks get. */
static void places_of(struct mu_nccl_backend *b, const struct mu_work *w, bool captured,
                      struct mu_own_buffers *buffers)
{
    size_t bytes = w->count * mu_work_element(w);
    size_t larger = w->shape == MU_ALLREDUCE || w->shape == MU_BROADCAST
                        ? bytes
                        : bytes * (size_t)b->env.local_size;
    bool sums = mu_shape_sums(w->shape), all = w->shape != MU_REDUCE_SCATTER;

    if (sums)
        buffers->from = place_of(b, w->send, larger, captured);
    if (sums && all && w->recv == w->send)
        buffers->to = buffers->from;
    else if (all)
        buffers->to = place_of(b, w->recv, larger, captured);
}

cudaError_t mu_own_launch(struct mu_nccl_backend *b, const struct mu_work *work,
                          int blocks, bool captured)
{
    struct mu_own_buffers buffers = { .stage_bytes = MU_PARTS_BYTES,
                                      .counted = !captured };
    cudaError_t rc;

    places_of(b, work, captured, &buffers);
    for (int i = 0; i < b->env.local_size; i++)
        buffers.stage[i] = mu_parts_of(b, i);
    if (buffers.counted)
        atomic_fetch_add(&b->ours.launched, (unsigned)blocks);
    rc = mu_own(&b->reach, b->ours.map, work, &buffers, blocks, b->stream);
    if (buffers.counted && rc != cudaSuccess)
        atomic_fetch_sub(&b->ours.launched, (unsigned)blocks);
    return rc;
}
