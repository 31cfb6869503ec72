/* SPDX-License-Identifier: BSD-3-Clause */
/* own_follow.c - the watch thread sends the peers handles of new memory, and maps and
 * unmaps theirs
 */
#include <string.h>

#include "runtime/backend/nccl/nccl.h"
#include "runtime/backend/nccl/own.h"

#define AT_ONCE 32       /* most allocations that one poll announces, opens or checks */
#define STATE_EVERY 5000 /* polls with a waiting kernel: 10 s or more */

/* An IPC handle of the allocation. */
static bool handle_of(const struct mu_own *o, const struct mu_own_entry *e,
                      cudaIpcMemHandle_t *handle)
{
    bool ok = cudaIpcGetMemHandle(handle, (void *)e->at.base) == cudaSuccess;

    cudaGetLastError();
    return ok && mu_own_id(o, (void *)e->at.base) == e->at.id;
}

/* A new allocation, on its way to the peers. */
struct fresh {
    struct mu_own_entry e;
    cudaIpcMemHandle_t handle;
    CUmemGenericAllocationHandle kept;
    uint8_t sent;
    enum mu_sent result;
    bool freed;
};

/* False: there is nothing to announce. */
static bool fresh_take(struct mu_own *o, int slot, struct fresh *f)
{
    bool ok;

    pthread_mutex_lock(&o->entries);
    *f = (struct fresh){ .e = o->table.entry[slot],
                         .kept = o->kept[slot],
                         .sent = o->sent[slot] };
    ok = !o->refused[slot] && !(f->e.at.is_virtual && o->left) &&
         mu_own_unannounced(&o->table, slot);
    if (ok)
        o->kept[slot] = 0;
    else
        mu_own_let_go(o, slot); /* of a range that was freed before it was sent */
    pthread_mutex_unlock(&o->entries);
    return ok;
}

static void fresh_send(struct mu_own *o, int slot, struct fresh *f)
{
    f->freed = mu_own_id(o, (void *)f->e.at.base) != f->e.at.id;
    if (f->freed)
        return;
    if (f->e.at.is_virtual)
        f->result = mu_virtual_send(&o->virtual_memory, slot, f->e.generation, &f->e.at,
                                    f->kept, &f->sent);
    else
        f->result = handle_of(o, &f->e, &f->handle) ? MU_SENT : MU_SEND_NEVER;
}

/* Unless the slot has been given to other memory meanwhile. */
static void fresh_announce(struct mu_own *o, int slot, struct fresh *f)
{
    pthread_mutex_lock(&o->entries);
    if (o->table.entry[slot].generation == f->e.generation) {
        o->sent[slot] = f->sent;
        o->refused[slot] = !f->freed && f->result == MU_SEND_NEVER;
        o->left = o->left || f->result == MU_SEND_LEFT;
        if (f->freed)
            mu_own_retire(&o->table, slot);
        else if (f->result == MU_SENT && f->e.at.is_virtual)
            mu_own_announce(&o->table, slot, MU_BY_DESCRIPTOR, NULL);
        else if (f->result == MU_SENT)
            mu_own_announce(&o->table, slot, MU_BY_HANDLE, &f->handle);
        if (!f->freed && f->result == MU_SEND_LATER) {
            o->kept[slot] = f->kept;
            f->kept = 0;
        }
    }
    pthread_mutex_unlock(&o->entries);
    mu_virtual_let_go(&o->virtual_memory, f->kept);
}

/* Handles of new allocations. One that CUDA cannot share (of a pool, managed memory)
 * stays staged.
 */
static void announce(struct mu_own *o)
{
    for (int slot = 0, n = 0; slot < MU_OWN_SLOTS && n < AT_ONCE; slot++) {
        struct fresh f;

        if (!fresh_take(o, slot, &f))
            continue;
        n++;
        fresh_send(o, slot, &f);
        fresh_announce(o, slot, &f);
    }
}

/* Retire what the program has freed: a few entries at a time. */
static void retire(struct mu_own *o)
{
    for (int i = 0; i < AT_ONCE; i++) {
        int slot = (int)(o->scan++ % MU_OWN_SLOTS);
        const struct mu_own_entry *e = &o->table.entry[slot];

        pthread_mutex_lock(&o->entries);
        if ((e->generation & 1) && mu_own_id(o, (void *)e->at.base) != e->at.id)
            mu_own_retire(&o->table, slot);
        pthread_mutex_unlock(&o->entries);
    }
}

/* False: not now. */
static bool map(struct mu_own *o, const struct mu_own_change *c)
{
    char **base = &o->mirror->base[c->peer][c->slot];
    cudaIpcMemHandle_t handle;

    if (c->by == MU_BY_DESCRIPTOR)
        return mu_virtual_map(&o->virtual_memory, c->peer, c->slot, c->generation,
                              base);
    memcpy(&handle, c->handle, sizeof(handle));
    if (cudaIpcOpenMemHandle((void **)base, handle, cudaIpcMemLazyEnablePeerAccess) !=
        cudaSuccess)
        *base = NULL;
    return true;
}

/* A peer's allocation: open it, or close the mapping. False: not now. */
static bool follow(struct mu_own *o, const struct mu_own_change *c, bool may_close,
                   bool *held)
{
    char **base = &o->mirror->base[c->peer][c->slot];
    bool opens = c->generation & 1;

    *held = false;
    if (!opens && *base && !may_close)
        return false;
    if (!opens && *base)
        mu_own_unmap(o, c->peer, c->slot);
    if (opens && !*base) {
        if (!map(o, c))
            return false;
        o->before = atomic_load(&o->launched);
    }
    *held = *base != NULL;
    cudaGetLastError();
    return true;
}

/* A kernel uses only what was mapped before its launch. So the owner has our answer
 * when the kernels that were launched before have ended.
 */
static bool launched_before_have_ended(struct mu_nccl_backend *b)
{
    struct mu_own *o = &b->ours;
    uint32_t done = o->before - 1;

    if (cudaMemcpyAsync(&done, &b->reach.flags[b->reach.rank]->own_done, sizeof(done),
                        cudaMemcpyDeviceToHost, o->stream) != cudaSuccess ||
        cudaStreamSynchronize(o->stream) != cudaSuccess)
        done = o->before - 1;
    cudaGetLastError();
    return (int32_t)(done - o->before) >= 0;
}

/* Deal with what the peers allocated and freed. */
static void follow_peers(struct mu_nccl_backend *b, bool may_close)
{
    struct mu_own *o = &b->ours;
    struct mu_own_change change = { .handle = NULL }, done[AT_ONCE];
    bool held[AT_ONCE], ended;
    int n = 0;

    while (n < AT_ONCE && mu_own_next(&o->table, &change))
        if (follow(o, &change, may_close, &held[n]))
            done[n++] = change;
    if (n == 0 || !mu_own_upload(o))
        return;
    ended = launched_before_have_ended(b);
    for (int i = 0; i < n; i++)
        if (ended || !held[i])
            mu_own_answer(&o->table, &done[i], held[i]);
}

/* Which of our allocations the kernels may offer. True: that has changed. */
static bool direct_update(struct mu_own *o)
{
    bool changed = false;

    pthread_mutex_lock(&o->entries);
    for (int slot = 0; slot < MU_OWN_SLOTS; slot++) {
        uint32_t direct =
            mu_own_held(&o->table, slot) ? o->table.entry[slot].generation : 0;

        changed = changed || o->mirror->direct[slot] != direct;
        o->mirror->direct[slot] = direct;
    }
    pthread_mutex_unlock(&o->entries);
    return changed;
}

/* For who looks for the reason of a hang. Without these lines this thread hangs too. */
static void say_state(struct mu_nccl_backend *b)
{
    struct mu_own *o = &b->ours;
    struct mu_own_change change = { .handle = NULL };
    unsigned in_use = 0, direct = 0, here = 0, unanswered = 0;

    pthread_mutex_lock(&o->entries);
    for (int slot = 0; slot < MU_OWN_SLOTS; slot++) {
        in_use += o->table.entry[slot].generation & 1;
        direct += o->mirror->direct[slot] != 0;
        for (int p = 0; p < b->env.local_size; p++)
            here += o->mirror->base[p][slot] != NULL;
    }
    pthread_mutex_unlock(&o->entries);
    while (mu_own_next(&o->table, &change))
        unanswered++;
    mu_log(b->env.log, MU_LOG_DEBUG,
           "nccl: rank %d: kernels wait for peers in each of %u polls; %u allocations, "
           "%u offered; of the peers' %u are mapped here, %u changes are unanswered, "
           "%d descriptors are not mapped",
           b->env.rank, o->waited, in_use, direct, here, unanswered,
           o->virtual_memory.waiting);
}

void mu_own_poll(struct mu_nccl_backend *b)
{
    struct mu_own *o = &b->ours;
    bool may_close;

    if (!o->open)
        return;
    pthread_mutex_lock(&o->work);
    /* Closing waits for running kernels: not while one waits for a late peer. */
    may_close = o->waiting == b->words->waiting;
    o->waiting = b->words->waiting;
    o->waited = may_close ? 0 : o->waited + 1;
    if (o->waited > 0 && o->waited % STATE_EVERY == 0)
        say_state(b);
    retire(o);
    announce(o);
    mu_virtual_receive(&o->virtual_memory, &o->table);
    follow_peers(b, may_close);
    if (direct_update(o))
        mu_own_upload(o);
    pthread_mutex_unlock(&o->work);
}
