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

#include "runtime/backend/nccl/nccl.h"
#include "runtime/core/dtype.h"

_Static_assert(MU_OWN_CONTROL == MU_OWN_SLOTS && MU_OWN_PEERS == MU_PEERS,
               "the kernels have a place for each slot");
_Static_assert(MU_OWN_HANDLE == sizeof(cudaIpcMemHandle_t), "a board holds handles");

#define AT_ONCE 32 /* most allocations that one poll announces, opens or checks */

/* ---- Boards: shared memory of the ranks of this node ----------------------------- */

struct board_record {
    int32_t pid, fd;
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

/* Collective. *asked: all ranks have a board, which all see alike. *ok: this rank has
 * mapped them.
 */
static int boards_share(struct mu_nccl_backend *b, int fd, bool *asked, bool *ok,
                        struct mu_err *err)
{
    struct board_record mine = { (int32_t)getpid(), fd }, all[MU_PEERS];
    struct mu_own_table *t = &b->ours.table;

    if (mu_peers_collect(b, "mu.nccl.board", &mine, sizeof(mine), all, err) < 0)
        return -1;
    t->rank = b->env.local_rank;
    t->n = b->env.local_size;
    *asked = *ok = true;
    for (int i = 0; i < t->n; i++)
        *asked = *asked && all[i].fd >= 0;
    for (int i = 0; i < t->n && *asked; i++) {
        t->board[i] = i == t->rank ? board_map(fd) : board_of(&all[i]);
        *ok = *ok && t->board[i];
    }
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
    enum cudaDriverEntryPointQueryResult found;
    void *attribute = NULL, *range = NULL;

    if (cudaGetDriverEntryPointByVersion("cuPointerGetAttribute", &attribute, 4000,
                                         cudaEnableDefault, &found) != cudaSuccess ||
        cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &range, 3020,
                                         cudaEnableDefault, &found) != cudaSuccess ||
        !attribute || !range)
        return false;
    memcpy(&o->attribute, &attribute, sizeof(attribute));
    memcpy(&o->range, &range, sizeof(range));
    return true;
}

int mu_own_open(struct mu_nccl_backend *b, struct mu_err *err)
{
    struct mu_own *o = &b->ours;
    int fd, mine, all[MU_PEERS], rc = -1;
    bool asked, ok;

    if (!b->own)
        return 0;
    fd = b->env.map_memory ? memfd_create("muster-own", MFD_CLOEXEC) : -1;
    if (fd >= 0 && ftruncate(fd, sizeof(struct mu_own_board)) < 0) {
        close(fd);
        fd = -1;
    }
    if (boards_share(b, fd, &asked, &ok, err) < 0)
        goto out;
    rc = 0;
    if (asked) {
        mine = ok && driver_find(o) && map_create(b);
        cudaGetLastError();
        rc = mu_peers_collect(b, "mu.nccl.own", &mine, sizeof(mine), all, err);
        o->open = rc == 0;
        for (int r = 0; r < b->env.local_size && o->open; r++)
            o->open = all[r];
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

static struct mu_own_place place_of(struct mu_nccl_backend *b, const void *p,
                                    size_t bytes)
{
    const struct mu_own_place none = { -1, 0, 0 };
    struct mu_own *o = &b->ours;
    struct mu_own_allocation at = { .id = 0 };
    struct mu_own_place place;
    CUdeviceptr base = 0;
    int slot;

    if ((uintptr_t)p % 16 != 0)
        return none;
    if ((const char *)p >= b->control &&
        (const char *)p < b->control + b->control_bytes)
        return (struct mu_own_place){ MU_OWN_CONTROL, 1,
                                      (size_t)((const char *)p - b->control) };
    at.id = id_of(o, p);
    if (at.id == 0)
        return none;
    pthread_mutex_lock(&o->entries);
    slot = mu_own_find(&o->table, at.id, p, bytes);
    if (slot < 0 &&
        o->range(&base, &at.bytes, (CUdeviceptr)(uintptr_t)p) == CUDA_SUCCESS) {
        at.base = (uintptr_t)base;
        if (at.bytes - ((uintptr_t)p - at.base) >= bytes)
            slot = mu_own_add(&o->table, &at);
        if (slot >= 0)
            o->refused[slot] = false;
    }
    place = none;
    if (slot >= 0) {
        const struct mu_own_entry *e = &o->table.entry[slot];

        place = (struct mu_own_place){ slot, e->generation,
                                       (size_t)((uintptr_t)p - e->at.base) };
    }
    pthread_mutex_unlock(&o->entries);
    return place;
}

cudaError_t mu_own_launch(struct mu_nccl_backend *b, const struct mu_coll *coll,
                          int blocks, bool captured)
{
    size_t bytes = coll->count * mu_dtype_size(coll->dtype);
    struct mu_own_buffers buffers = { .send = coll->send,
                                      .recv = coll->recv,
                                      .stage_bytes = MU_PARTS_BYTES,
                                      .counted = !captured };
    cudaError_t rc;

    buffers.from = place_of(b, coll->send, bytes);
    buffers.to =
        coll->recv == coll->send ? buffers.from : place_of(b, coll->recv, bytes);
    for (int i = 0; i < b->env.local_size; i++)
        buffers.stage[i] = mu_parts_of(b, i);
    if (buffers.counted)
        atomic_fetch_add(&b->ours.launched, (unsigned)blocks);
    rc = mu_own(&b->reach, b->ours.map, &buffers, coll->count, coll->dtype, coll->scale,
                blocks, b->stream);
    if (buffers.counted && rc != cudaSuccess)
        atomic_fetch_sub(&b->ours.launched, (unsigned)blocks);
    return rc;
}

/* ---- In the watch thread --------------------------------------------------------- */

/* Handles of new allocations. One that CUDA cannot share (a pool, virtual or managed
 * memory) stays staged.
 */
static void announce(struct mu_own *o)
{
    for (int slot = 0, n = 0; slot < MU_OWN_SLOTS && n < AT_ONCE; slot++) {
        struct mu_own_entry e;
        cudaIpcMemHandle_t handle;
        bool ok;

        pthread_mutex_lock(&o->entries);
        e = o->table.entry[slot];
        ok = !o->refused[slot] && mu_own_unannounced(&o->table, slot);
        pthread_mutex_unlock(&o->entries);
        if (!ok)
            continue;
        n++;
        ok = cudaIpcGetMemHandle(&handle, (void *)e.at.base) == cudaSuccess &&
             id_of(o, (void *)e.at.base) == e.at.id;
        cudaGetLastError();
        pthread_mutex_lock(&o->entries);
        if (o->table.entry[slot].generation == e.generation) {
            if (ok)
                mu_own_announce(&o->table, slot, &handle);
            o->refused[slot] = !ok;
        }
        pthread_mutex_unlock(&o->entries);
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

/* A peer's allocation: open it, or close the mapping. False: not now. */
static bool follow(struct mu_own *o, const struct mu_own_change *c, bool may_close,
                   bool *held)
{
    char **base = &o->mirror->base[c->peer][c->slot];
    bool opens = c->generation & 1;
    cudaIpcMemHandle_t handle;

    *held = false;
    if (!opens && *base && !may_close)
        return false;
    if (!opens && *base) {
        cudaIpcCloseMemHandle(*base);
        *base = NULL;
    }
    if (opens && !*base) {
        memcpy(&handle, c->handle, sizeof(handle));
        if (cudaIpcOpenMemHandle((void **)base, handle,
                                 cudaIpcMemLazyEnablePeerAccess) != cudaSuccess)
            *base = NULL;
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
    retire(o);
    announce(o);
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
                cudaIpcCloseMemHandle(o->mirror->base[i][slot]);
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
