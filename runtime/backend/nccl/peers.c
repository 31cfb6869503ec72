/* SPDX-License-Identifier: BSD-3-Clause */
/* peers.c - mappings of the device memory of this node's other ranks
 *
 * CUDA IPC also reaches GPUs that CUDA_VISIBLE_DEVICES hides from this process, unlike
 * cudaDeviceEnablePeerAccess. Where it fails (containers, MIG), all ranks agree to use
 * NCCL alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/nccl/nccl.h"

/* Bytes: a separate allocation, so that IPC maps its base. */
#define GRANULE ((size_t)2 << 20)
#define SCRATCH_BYTES 4096
#define SIGNATURE_AT ((size_t)32 << 10)
#define PACKETS_AT ((size_t)64 << 10)
#define LINES_AT (PACKETS_AT + MU_PACKETS_BYTES)
#define PARTS_AT (LINES_AT + MU_LINES_BYTES)
#define MAIL_AT (PARTS_AT + MU_PARTS_BYTES)
#define PIPE_AT (MAIL_AT + 2 * MU_PEERS * MU_MAIL_SLOT)
#define CONTROL_BYTES (PIPE_AT + MU_PIPE_BYTES)
#define PIPE_UNIT ((size_t)1 << 20)
#define SIGNED 64 /* bytes that a peer reads to check the mapping */

_Static_assert(sizeof(struct mu_flags) <= SIGNATURE_AT, "flags fit");

static bool wanted(const struct mu_nccl_backend *b)
{
    return b->env.nnodes == 1 && b->env.size > 1 && b->env.size <= MU_PEERS;
}

static void signature(int rank, const char *job, unsigned char *out)
{
    unsigned h = 2166136261u ^ (unsigned)rank;

    for (; *job; job++)
        h = (h ^ (unsigned char)*job) * 16777619u;
    for (int i = 0; i < SIGNED; i++) {
        h = h * 1664525u + 1013904223u;
        out[i] = (unsigned char)(h >> 24);
    }
}

static size_t rounded(size_t bytes)
{
    return (bytes + GRANULE - 1) / GRANULE * GRANULE;
}

int mu_peers_prepare(struct mu_nccl_backend *b, struct mu_nccl_record *mine,
                     struct mu_err *err)
{
    unsigned char sign[SIGNED];
    cudaError_t rc;

    rc = cudaHostAlloc((void **)&b->words, sizeof(*b->words), cudaHostAllocMapped);
    if (rc == cudaSuccess)
        rc = cudaHostGetDevicePointer((void **)&b->reach.words, b->words, 0);
    if (rc != cudaSuccess)
        return mu_cuda_err(err, rc, "cannot map host memory into the GPU");
    memset(b->words, 0, sizeof(*b->words));
    rc = cudaMalloc((void **)&b->scratch, SCRATCH_BYTES);
    if (rc == cudaSuccess)
        rc = cudaMemset(b->scratch, 0, SCRATCH_BYTES);
    if (rc != cudaSuccess)
        return mu_cuda_err(err, rc, "cannot allocate device memory");
    if (!wanted(b))
        return 0;
    b->control_bytes = rounded(CONTROL_BYTES);
    rc = cudaMalloc((void **)&b->control, b->control_bytes);
    if (rc != cudaSuccess)
        return mu_cuda_err(err, rc,
                           "cannot allocate the backend's 90 MiB of device memory");
    signature(b->env.rank, b->env.job, sign);
    rc = cudaMemset(b->control, 0, b->control_bytes);
    if (rc == cudaSuccess)
        rc =
            cudaMemcpy(b->control + SIGNATURE_AT, sign, SIGNED, cudaMemcpyHostToDevice);
    if (rc == cudaSuccess)
        rc = cudaDeviceSynchronize();
    if (rc != cudaSuccess)
        return mu_cuda_err(err, rc, "clearing the backend's device memory");
    mine->mappable = cudaIpcGetMemHandle(&mine->control, b->control) == cudaSuccess;
    cudaGetLastError();
    return 0;
}

/* Read the peer's signature with a kernel, as the collectives read its data. */
static bool proved(struct mu_nccl_backend *b, int local)
{
    unsigned char got[SIGNED] = { 0 }, sign[SIGNED];
    struct mu_pack_piece piece = { b->peer_control[local] + SIGNATURE_AT, 0,
                                   SIGNED / 4 };
    char *here = b->scratch;
    bool ok;

    signature(b->local_ranks[local], b->env.job, sign);
    ok = mu_pack_launch(&piece, 1, true, here, MUSTER_I32, MUSTER_I32, 1.0,
                        b->stream) == cudaSuccess &&
         cudaMemcpyAsync(got, here, SIGNED, cudaMemcpyDeviceToHost, b->stream) ==
             cudaSuccess &&
         cudaStreamSynchronize(b->stream) == cudaSuccess &&
         memcmp(got, sign, SIGNED) == 0;
    return ok;
}

static bool map_controls(struct mu_nccl_backend *b)
{
    for (int i = 0; i < b->env.local_size; i++) {
        const struct mu_nccl_record *record = &b->records[b->local_ranks[i]];

        if (i == b->env.local_rank) {
            b->peer_control[i] = b->control;
            continue;
        }
        if (!record->mappable ||
            cudaIpcOpenMemHandle((void **)&b->peer_control[i], record->control,
                                 cudaIpcMemLazyEnablePeerAccess) != cudaSuccess ||
            !proved(b, i)) {
            cudaGetLastError();
            return false;
        }
    }
    return true;
}

/* One round: every rank publishes a value; collect those of this node. */
int mu_peers_collect(struct mu_nccl_backend *b, const char *key, const void *mine,
                     size_t len, void *all, struct mu_err *err)
{
    const struct mu_exchange *x = &b->env.exchange;

    if (x->publish(x->arg, key, mine, len, err) < 0 ||
        x->fence(x->arg, b->env.init_timeout, err) < 0)
        return mu_err_context(err, "nccl backend, %s", key);
    for (int i = 0; i < b->env.local_size; i++) {
        int rank = b->local_ranks[i];
        void *value = NULL;
        size_t got = 0;

        if (x->fetch(x->arg, rank, key, &value, &got, b->env.init_timeout, err) < 0)
            return mu_err_context(err, "nccl backend, %s of rank %d", key, rank);
        if (got == len)
            memcpy((char *)all + i * len, value, len);
        free(value);
        if (got != len)
            return mu_err_set(err, MUSTER_ECONTRACT,
                              "rank %d (node %s) runs another version of the nccl "
                              "backend (it sent %zu bytes of %s, not %zu)",
                              rank, b->env.host_of[rank], got, key, len);
    }
    return 0;
}

static void reach_fill(struct mu_nccl_backend *b)
{
    struct mu_reach *r = &b->reach;

    r->rank = b->env.local_rank;
    r->n = b->env.local_size;
    r->packet_slot = MU_PACKETS_BYTES / 2 / r->n / 128 * 128;
    r->lines_half = MU_LINES_BYTES / 2;
    r->pipe_room = MU_PIPE_BYTES / (r->n - 1) / PIPE_UNIT * PIPE_UNIT;
    r->limit_ns = (uint64_t)(b->env.init_timeout / 2 * 1e9); /* until measured */
    for (int i = 0; i < r->n; i++) {
        r->flags[i] = (struct mu_flags *)b->peer_control[i];
        r->packets[i] = b->peer_control[i] + PACKETS_AT;
        r->lines[i] = b->peer_control[i] + LINES_AT;
        r->mail[i] = b->peer_control[i] + MAIL_AT;
        r->pipe[i] = b->peer_control[i] + PIPE_AT;
    }
}

char *mu_parts_of(const struct mu_nccl_backend *b, int local_rank)
{
    return b->peer_control[local_rank] + PARTS_AT;
}

/* Where a rank has mapped the memory of the local ranks. */
struct mapped {
    char *at[MU_PEERS]; /* NULL: it cannot map that */
};

static bool has_all(const struct mapped *m, int n)
{
    for (int i = 0; i < n; i++)
        if (!m->at[i])
            return false;
    return true;
}

/* there: ours, by local rank. */
static void take_ours(const struct mu_nccl_backend *b, const struct mapped *all,
                      char **there)
{
    for (int i = 0; i < b->env.local_size; i++)
        there[i] = all[i].at[b->env.local_rank];
}

int mu_peers_connect(struct mu_nccl_backend *b, struct mu_err *err)
{
    struct mapped mine = { { NULL } }, all[MU_PEERS];

    if (!wanted(b))
        return 0;
    if (map_controls(b))
        memcpy(mine.at, b->peer_control, sizeof mine.at);
    if (mu_peers_collect(b, "mu.nccl.mapped", &mine, sizeof(mine), all, err) < 0)
        return -1;
    take_ours(b, all, b->control_there);
    b->own = true;
    for (int i = 0; i < b->env.local_size; i++)
        if (!has_all(&all[i], b->env.local_size)) {
            mu_log(
                b->env.log, MU_LOG_INFO,
                "rank %d (node %s) cannot map its peers' GPU memory: all collectives "
                "use NCCL",
                b->local_ranks[i], b->env.host_of[b->env.rank]);
            b->own = false;
        }
    if (b->own)
        reach_fill(b);
    return 0;
}

void mu_peers_close(struct mu_nccl_backend *b)
{
    for (int i = 0; i < MU_PEERS; i++)
        if (b->peer_control[i] && b->peer_control[i] != b->control)
            cudaIpcCloseMemHandle(b->peer_control[i]);
    cudaFree(b->control);
    cudaFree(b->scratch);
    cudaFreeHost(b->words);
}

/* ---- Arenas --------------------------------------------------------------------- */

struct arena_record {
    uint64_t bytes; /* 0: no memory */
    cudaIpcMemHandle_t handle;
};

static int arenas_equal(const struct mu_nccl_backend *b, const struct mu_nccl_arena *a,
                        const struct arena_record *all, struct mu_err *err)
{
    const char *host = b->env.host_of[b->env.rank];

    for (int i = 0; i < b->env.local_size; i++) {
        if (all[i].bytes == 0)
            return mu_err_set(err, MUSTER_EMEMORY,
                              "rank %d (node %s) could not allocate %zu bytes of "
                              "device memory",
                              b->local_ranks[i], host, a->bytes);
        if (all[i].bytes != a->bytes)
            return mu_err_set(
                err, MUSTER_ECONTRACT,
                "rank %d allocates %zu bytes of device memory, rank %d %zu, both on "
                "node %s: all ranks must allocate the same sizes in the same order",
                b->env.rank, a->bytes, b->local_ranks[i], (size_t)all[i].bytes, host);
    }
    return 0;
}

/* Each rank publishes where it has mapped the others' memory: a kernel gives a peer the
 * address of its buffer there.
 */
static int arena_map(struct mu_nccl_backend *b, struct mu_nccl_arena *a,
                     struct mu_err *err)
{
    struct arena_record mine = { 0 }, all[MU_PEERS];
    struct mapped here = { { NULL } }, mapped[MU_PEERS];
    unsigned number = b->arena_count++;
    char key[48];

    if (a->base) {
        mine.bytes = a->bytes;
        if (b->own && cudaIpcGetMemHandle(&mine.handle, a->base) != cudaSuccess)
            mine.bytes = 0;
    }
    snprintf(key, sizeof(key), "mu.nccl.arena.%u", number);
    if (mu_peers_collect(b, key, &mine, sizeof(mine), all, err) < 0 ||
        arenas_equal(b, a, all, err) < 0)
        return -1;
    for (int i = 0; i < b->env.local_size; i++)
        if (i == b->env.local_rank)
            a->peer[i] = a->base;
        else if (cudaIpcOpenMemHandle((void **)&a->peer[i], all[i].handle,
                                      cudaIpcMemLazyEnablePeerAccess) != cudaSuccess)
            a->peer[i] = NULL;
    memcpy(here.at, a->peer, sizeof(here.at));
    snprintf(key, sizeof(key), "mu.nccl.there.%u", number);
    if (mu_peers_collect(b, key, &here, sizeof(here), mapped, err) < 0)
        return -1;
    take_ours(b, mapped, a->there);
    a->mapped = true;
    for (int i = 0; i < b->env.local_size; i++)
        if (!has_all(&mapped[i], b->env.local_size))
            return mu_err_set(
                err, MUSTER_EDEVICE,
                "rank %d (node %s) cannot map the %zu bytes that the other ranks "
                "allocated",
                b->local_ranks[i], b->env.host_of[b->env.rank], a->bytes);
    return 0;
}

static void arena_unmap(struct mu_nccl_arena *a)
{
    for (int i = 0; i < MU_PEERS; i++) {
        if (a->peer[i] && a->peer[i] != a->base)
            cudaIpcCloseMemHandle(a->peer[i]);
        a->peer[i] = NULL;
    }
    a->mapped = false;
    cudaGetLastError();
}

static void arena_drop(struct mu_nccl_backend *b, struct mu_nccl_arena *a)
{
    arena_unmap(a);
    cudaFree(a->base);
    cudaGetLastError();
    free(a);
}

void *mu_nccl_arena_alloc(struct mu_nccl_backend *b, size_t bytes, struct mu_err *err)
{
    struct mu_nccl_arena *a = calloc(1, sizeof(*a));
    cudaError_t rc;

    if (!a) {
        mu_err_set(err, MUSTER_EMEMORY, "no memory for an arena");
        return NULL;
    }
    a->id = b->env.generation << 32 | ++b->arenas_made;
    a->bytes = rounded(bytes ? bytes : 1);
    rc = cudaMalloc((void **)&a->base, a->bytes);
    if (rc == cudaSuccess)
        rc = cudaMemset(a->base, 0, a->bytes);
    if (rc == cudaSuccess)
        rc = cudaDeviceSynchronize();
    if (rc != cudaSuccess && a->base) {
        cudaFree(a->base);
        a->base = NULL;
    }
    cudaGetLastError();
    if (b->own) {
        if (arena_map(b, a, err) < 0)
            goto fail;
    } else if (rc != cudaSuccess) {
        mu_cuda_err(err, rc, "cannot allocate device memory for the buckets");
        goto fail;
    }
    a->next = b->arenas;
    b->arenas = a;
    return a->base;
fail:
    arena_drop(b, a);
    return NULL;
}

void mu_nccl_arena_free(struct mu_nccl_backend *b, void *p)
{
    for (struct mu_nccl_arena **at = &b->arenas; *at; at = &(*at)->next)
        if ((*at)->base == p) {
            struct mu_nccl_arena *a = *at;

            *at = a->next;
            arena_drop(b, a);
            return;
        }
}

static bool contains(const uint64_t *ids, size_t n, uint64_t id)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* ids[0] is their number, in theirs too; an arena that a rank of this node does not
 * have becomes 0.
 */
static int keep_common(struct mu_nccl_backend *b, uint64_t *ids, struct mu_err *err)
{
    const struct mu_exchange *x = &b->env.exchange;
    const char *key = "mu.nccl.arenas";
    const size_t n = ids[0];

    if (x->publish(x->arg, key, ids, (n + 1) * sizeof *ids, err) < 0 ||
        x->fence(x->arg, b->env.init_timeout, err) < 0)
        return mu_err_context(err, "nccl backend, %s", key);
    for (int i = 0; i < b->env.local_size; i++) {
        int rank = b->local_ranks[i];
        uint64_t *theirs = NULL;
        size_t len = 0;

        if (i == b->env.local_rank)
            continue;
        if (x->fetch(x->arg, rank, key, (void **)&theirs, &len, b->env.init_timeout,
                     err) < 0)
            return mu_err_context(err, "nccl backend, %s of rank %d", key, rank);
        for (size_t k = 1; k <= n; k++)
            if (!contains(theirs + 1, len / sizeof *theirs - 1, ids[k]))
                ids[k] = 0;
        free(theirs);
    }
    return 0;
}

/* Take them from `from`: oldest first, the order of their allocation. */
static struct mu_nccl_arena *arenas_take(struct mu_nccl_backend *from, size_t *n)
{
    struct mu_nccl_arena *oldest = NULL, *a;

    for (*n = 0; (a = from->arenas); ++*n) {
        from->arenas = a->next;
        arena_unmap(a);
        a->next = oldest;
        oldest = a;
    }
    return oldest;
}

/* Our memory stays in place; the ranks of the new world map again what all of them
 * have, in the order of its allocation. Collective.
 */
int mu_nccl_arena_adopt(struct mu_nccl_backend *b, struct mu_nccl_backend *from,
                        struct mu_err *err)
{
    struct mu_nccl_arena *oldest = NULL, *a;
    uint64_t *ids;
    size_t n = 0, k = 0;
    int rc = 0;

    if (from) {
        /* Work that still runs there was aborted and ends. */
        mu_nccl_drain(from, NULL, NULL);
        oldest = arenas_take(from, &n);
    }
    ids = calloc(n + 1, sizeof *ids);
    if (!ids)
        rc = mu_err_set(err, MUSTER_EMEMORY, "no memory for a list of %zu arenas", n);
    for (a = oldest; a && ids; a = a->next)
        ids[++ids[0]] = a->id;
    if (rc == 0 && b->own)
        rc = keep_common(b, ids, err);
    while ((a = oldest)) {
        oldest = a->next;
        a->next = b->arenas;
        b->arenas = a;
        if (rc == 0 && b->own && ids[++k] != 0)
            rc = arena_map(b, a, err);
    }
    free(ids);
    return rc;
}

bool mu_nccl_arena_peers(const struct mu_nccl_backend *b, const void *p, size_t bytes,
                         struct mu_places *out)
{
    for (const struct mu_nccl_arena *a = b->arenas; a; a = a->next) {
        const char *c = p;

        if (!a->mapped || c < a->base || c + bytes > a->base + a->bytes)
            continue;
        for (int i = 0; i < b->env.local_size; i++) {
            out->peer[i] = a->peer[i] + (c - a->base);
            out->there[i] = a->there[i] + (c - a->base);
        }
        return true;
    }
    return false;
}
