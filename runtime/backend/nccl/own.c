/* SPDX-License-Identifier: BSD-3-Clause */
/* own.c - memory that the program allocated: mapped by the peers, closed when it is
 * freed (own_table.h has the flow)
 *
 * A call only looks the buffers up. The watch thread asks CUDA for handles, opens and
 * closes mappings. Until all peers have mapped an allocation, the kernel stages it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/backend/nccl/driver.h"
#include "runtime/backend/nccl/nccl.h"

_Static_assert(MU_OWN_CONTROL == MU_OWN_SLOTS && MU_OWN_PEERS == MU_PEERS,
               "the kernels have a place for each slot");
_Static_assert(MU_OWN_HANDLE == sizeof(cudaIpcMemHandle_t), "a board holds handles");

#define AT_ONCE 32       /* most allocations that one poll announces, opens or checks */
#define STATE_EVERY 5000 /* polls with a waiting kernel: 10 s or more */

/* ---- Boards: shared memory of the ranks of this node ----------------------------- */

struct board_record {
    int32_t pid, fd;
    struct mu_descriptor_address address;
};

static struct mu_own_board *board_map(int fd)
{
    void *p;

    if (fd < 0)
        return NULL;
    p = mmap(NULL, sizeof(struct mu_own_board), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
             0);
    return p == MAP_FAILED ? NULL : p;
}

static struct mu_own_board *board_of(const struct board_record *record)
{
    struct mu_own_board *board;
    char path[64];
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", record->pid, record->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    board = board_map(fd);
    if (fd >= 0)
        close(fd);
    return board;
}

/* This rank's part of what the ranks agree on, as bits. */
enum { BOARDS = 1, VIRTUAL = 2, NEEDS_VIRTUAL = 4 };
#define TRY_SECONDS 1.0

/* Collective. *asked: all ranks have a board, which all see alike. *has: what this rank
 * has mapped.
 */
static int boards_share(struct mu_nccl_backend *b, int fd, bool *asked, int *has,
                        struct mu_err *err)
{
    struct board_record mine = { .pid = (int32_t)getpid(), .fd = fd }, all[MU_PEERS];
    struct mu_descriptor_address address[MU_PEERS];
    struct mu_own *o = &b->ours;
    struct mu_own_table *t = &o->table;

    mine.address.len = 0;
    if (fd >= 0)
        mu_virtual_open(&o->virtual_memory, b->device, b->env.log, &mine.address);
    if (mu_peers_collect(b, "mu.nccl.board", &mine, sizeof(mine), all, err) < 0)
        return -1;
    t->rank = b->env.local_rank;
    t->n = b->env.local_size;
    *asked = true;
    for (int i = 0; i < t->n; i++) {
        *asked = *asked && all[i].fd >= 0;
        address[i] = all[i].address;
    }
    *has = *asked ? BOARDS : 0;
    for (int i = 0; i < t->n && *asked; i++) {
        t->board[i] = i == t->rank ? board_map(fd) : board_of(&all[i]);
        if (!t->board[i])
            *has = 0;
    }
    if (*asked &&
        mu_virtual_try(&o->virtual_memory, t->rank, t->n, address, TRY_SECONDS))
        *has |= VIRTUAL;
    return 0;
}

/* ---- The map that the kernels read ----------------------------------------------- */

static bool upload(struct mu_own *o)
{
    bool ok = cudaMemcpyAsync(o->map, o->mirror, sizeof(*o->map),
                              cudaMemcpyHostToDevice, o->stream) == cudaSuccess &&
              cudaStreamSynchronize(o->stream) == cudaSuccess;

    cudaGetLastError();
    return ok;
}

static bool map_create(struct mu_nccl_backend *b)
{
    struct mu_own *o = &b->ours;

    o->mirror = calloc(1, sizeof(*o->mirror));
    if (!o->mirror ||
        cudaStreamCreateWithFlags(&o->stream, cudaStreamNonBlocking) != cudaSuccess ||
        cudaMalloc((void **)&o->map, sizeof(*o->map)) != cudaSuccess)
        return false;
    o->mirror->direct[MU_OWN_CONTROL] = 1;
    for (int i = 0; i < b->env.local_size; i++)
        o->mirror->base[i][MU_OWN_CONTROL] = b->peer_control[i];
    return upload(o);
}

static bool driver_find(struct mu_own *o)
{
    return mu_driver_find("cuPointerGetAttribute", 4000, &o->attribute) &&
           mu_driver_find("cuMemGetAddressRange", 3020, &o->range);
}

/* Collective: which memory all ranks can share. */
static int agree(struct mu_nccl_backend *b, int has, struct mu_err *err)
{
    struct mu_own *o = &b->ours;
    int all[MU_PEERS], both = BOARDS | VIRTUAL, any = 0;

    if (b->env.virtual_memory)
        has |= NEEDS_VIRTUAL;
    if (mu_peers_collect(b, "mu.nccl.own", &has, sizeof(has), all, err) < 0)
        return -1;
    for (int r = 0; r < b->env.local_size; r++) {
        both &= all[r];
        any |= all[r];
    }
    o->virtual_memory.usable = both == (BOARDS | VIRTUAL);
    o->for_virtual = any & NEEDS_VIRTUAL;
    o->open = (both & BOARDS) && (o->virtual_memory.usable || !o->for_virtual);
    if (!o->virtual_memory.usable) {
        mu_log(b->env.log, MU_LOG_DEBUG,
               "nccl: virtual memory is copied, because %srank %d cannot map that of "
               "its peers",
               has & VIRTUAL ? "another rank than " : "", b->env.rank);
        mu_virtual_close(&o->virtual_memory);
    }
    return 0;
}

int mu_own_open(struct mu_nccl_backend *b, struct mu_err *err)
{
    struct mu_own *o = &b->ours;
    int fd, has, rc = -1;
    bool asked;

    if (!b->own)
        return 0;
    fd = b->env.map_memory ? memfd_create("muster-own", MFD_CLOEXEC) : -1;
    if (fd >= 0 && ftruncate(fd, sizeof(struct mu_own_board)) < 0) {
        close(fd);
        fd = -1;
    }
    if (boards_share(b, fd, &asked, &has, err) < 0)
        goto out;
    rc = 0;
    if (asked) {
        if (!driver_find(o) || !map_create(b))
            has &= ~BOARDS;
        cudaGetLastError();
        rc = agree(b, has, err);
    }
    if (rc == 0 && !o->open && b->env.map_memory)
        mu_log(b->env.log, MU_LOG_INFO,
               "not all ranks can share the program's GPU memory: collectives on "
               "memory that muster_alloc has not returned use NCCL");
out:
    if (fd >= 0)
        close(fd);
    return rc;
}

/* ---- In a call ------------------------------------------------------------------- */

static uint64_t id_of(const struct mu_own *o, const void *p)
{
    unsigned long long id = 0;

    if (o->attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)(uintptr_t)p) !=
        CUDA_SUCCESS)
        return 0;
    return id;
}

static void let_go(struct mu_own *o, int slot)
{
    mu_virtual_let_go(&o->virtual_memory, o->kept[slot]);
    o->kept[slot] = 0;
}

/* The slot of the allocation at p, which has a new one where p was not seen before.
 * `captured`: none of virtual memory.
 */
static int slot_of(struct mu_own *o, uintptr_t p, bool captured)
{
    struct mu_own_allocation at = { .id = id_of(o, (void *)p) };
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
        let_go(o, slot);
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

/* ---- In the watch thread --------------------------------------------------------- */

/* An IPC handle of the allocation. */
static bool handle_of(const struct mu_own *o, const struct mu_own_entry *e,
                      cudaIpcMemHandle_t *handle)
{
    bool ok = cudaIpcGetMemHandle(handle, (void *)e->at.base) == cudaSuccess;

    cudaGetLastError();
    return ok && id_of(o, (void *)e->at.base) == e->at.id;
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
        let_go(o, slot); /* of a range that was freed before it was sent */
    pthread_mutex_unlock(&o->entries);
    return ok;
}

static void fresh_send(struct mu_own *o, int slot, struct fresh *f)
{
    f->freed = id_of(o, (void *)f->e.at.base) != f->e.at.id;
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
        if ((e->generation & 1) && id_of(o, (void *)e->at.base) != e->at.id)
            mu_own_retire(&o->table, slot);
        pthread_mutex_unlock(&o->entries);
    }
}

static void unmap(struct mu_own *o, int peer, int slot)
{
    char **base = &o->mirror->base[peer][slot];

    if (!mu_virtual_unmap(&o->virtual_memory, peer, slot))
        cudaIpcCloseMemHandle(*base);
    *base = NULL;
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
        unmap(o, c->peer, c->slot);
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
    if (n == 0 || !upload(o))
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
        upload(o);
    pthread_mutex_unlock(&o->work);
}

void mu_own_close(struct mu_nccl_backend *b)
{
    struct mu_own *o = &b->ours;

    pthread_mutex_lock(&o->work);
    o->open = false;
    for (int i = 0; o->mirror && i < b->env.local_size; i++)
        for (int slot = 0; slot < MU_OWN_SLOTS; slot++)
            if (i != b->env.local_rank && o->mirror->base[i][slot])
                unmap(o, i, slot);
    for (int slot = 0; slot < MU_OWN_SLOTS; slot++)
        let_go(o, slot);
    mu_virtual_close(&o->virtual_memory);
    for (int i = 0; i < MU_PEERS; i++) {
        if (o->table.board[i])
            munmap(o->table.board[i], sizeof(struct mu_own_board));
        o->table.board[i] = NULL;
    }
    if (o->stream)
        cudaStreamDestroy(o->stream);
    o->stream = NULL;
    cudaFree(o->map);
    o->map = NULL;
    free(o->mirror);
    o->mirror = NULL;
    cudaGetLastError();
    pthread_mutex_unlock(&o->work);
}
