/* SPDX-License-Identifier: BSD-3-Clause */
/* own.c - the ranks agree which memory of the program they can share, and part */
#include "runtime/backend/nccl/own.h"

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

/* ---- Used by the calls and by the watch thread ----------------------------------- */

bool mu_own_upload(struct mu_own *o)
{
    bool ok = cudaMemcpyAsync(o->map, o->mirror, sizeof(*o->map),
                              cudaMemcpyHostToDevice, o->stream) == cudaSuccess &&
              cudaStreamSynchronize(o->stream) == cudaSuccess;

    cudaGetLastError();
    return ok;
}

uint64_t mu_own_id(const struct mu_own *o, const void *p)
{
    unsigned long long id = 0;

    if (o->attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)(uintptr_t)p) !=
        CUDA_SUCCESS)
        return 0;
    return id;
}

void mu_own_let_go(struct mu_own *o, int slot)
{
    mu_virtual_let_go(&o->virtual_memory, o->kept[slot]);
    o->kept[slot] = 0;
}

void mu_own_unmap(struct mu_own *o, int peer, int slot)
{
    char **base = &o->mirror->base[peer][slot];

    if (!mu_virtual_unmap(&o->virtual_memory, peer, slot))
        cudaIpcCloseMemHandle(*base);
    *base = NULL;
}

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
    return mu_own_upload(o);
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

/* ---- The end --------------------------------------------------------------------- */

void mu_own_close(struct mu_nccl_backend *b)
{
    struct mu_own *o = &b->ours;

    pthread_mutex_lock(&o->work);
    o->open = false;
    for (int i = 0; o->mirror && i < b->env.local_size; i++)
        for (int slot = 0; slot < MU_OWN_SLOTS; slot++)
            if (i != b->env.local_rank && o->mirror->base[i][slot])
                mu_own_unmap(o, i, slot);
    for (int slot = 0; slot < MU_OWN_SLOTS; slot++)
        mu_own_let_go(o, slot);
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
