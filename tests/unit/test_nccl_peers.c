/* SPDX-License-Identifier: BSD-3-Clause */
/* test_nccl_peers.c - GPU memory of other ranks is used only where it proves to be
 * theirs, on a fake of CUDA whose device memory is the host's
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/backend/nccl/nccl.h"

static int opened; /* handles that are open */

/* ---- CUDA ------------------------------------------------------------------------ */

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    *p = malloc(bytes);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *p)
{
    free(p);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    return cudaMalloc(p, bytes);
}

cudaError_t cudaFreeHost(void *p)
{
    return cudaFree(p);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
    *device = host;
    return cudaSuccess;
}

cudaError_t cudaMemset(void *p, int byte, size_t bytes)
{
    memset(p, byte, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes,
                       enum cudaMemcpyKind kind)
{
    memcpy(dst, src, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t s)
{
    return cudaMemcpy(dst, src, bytes, kind);
}

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

/* A handle holds the address; 0: a machine on which it cannot be opened. */
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *p)
{
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &p, sizeof p);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t handle, unsigned flags)
{
    void *at;

    memcpy(&at, &handle, sizeof at);
    if (!at)
        return cudaErrorInvalidValue;
    *p = at;
    opened++;
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *p)
{
    opened--;
    return cudaSuccess;
}

/* ---- The rest of the backend ------------------------------------------------------
 */

cudaError_t mu_pack_launch(const struct mu_pack_piece *pieces, int n, bool into,
                           void *buffer, enum muster_dtype own, enum muster_dtype other,
                           double scale, cudaStream_t stream)
{
    assert_int_equal(n, 1);
    memcpy(buffer, pieces[0].at, pieces[0].count * 4);
    return cudaSuccess;
}

int mu_nccl_drain(struct mu_nccl_backend *b, void *stream, struct mu_err *err)
{
    return 0;
}

int mu_cuda_err(struct mu_err *err, cudaError_t rc, const char *what)
{
    return mu_err_set(err, MUSTER_EDEVICE, "%s", what);
}

/* ---- Two ranks, of which the other one only answers --------------------------------
 */

/* Where a rank has mapped the memory of both. */
static char *said[MU_PEERS], *answer[MU_PEERS];
/* Memory of the other rank, as large as ours; NULL: its handle cannot be opened. */
static char *offered;
static uint64_t bytes;
/* The arenas that a rank says it has; [0] is their number. */
static uint64_t listed[8], their_list[8];
static int mapped; /* arenas, by exchanges of it */

/* The addresses of memory, or its size and handle. */
static bool is_offer(const char *key)
{
    return strncmp(key, "mu.nccl.arena.", 14) == 0;
}

static bool is_list(const char *key)
{
    return strcmp(key, "mu.nccl.arenas") == 0;
}

static int publish(void *arg, const char *key, const void *value, size_t len,
                   struct mu_err *err)
{
    if (is_list(key)) {
        assert_true(len <= sizeof listed);
        memcpy(listed, value, len);
        return 0;
    }
    if (is_offer(key)) {
        memcpy(&bytes, value, sizeof bytes);
        mapped++;
        return 0;
    }
    assert_int_equal(len, sizeof said);
    memcpy(said, value, len);
    return 0;
}

static int fence(void *arg, double timeout, struct mu_err *err)
{
    return 0;
}

static int fetch(void *arg, int rank, const char *key, void **value, size_t *len,
                 double timeout, struct mu_err *err)
{
    struct {
        uint64_t bytes;
        cudaIpcMemHandle_t handle;
    } offer = { bytes, { { 0 } } };

    if (is_list(key)) {
        *len = (their_list[0] + 1) * sizeof *their_list;
        *value = malloc(*len);
        memcpy(*value, their_list, *len);
        return 0;
    }
    memcpy(&offer.handle, &offered, sizeof offered);
    *len = is_offer(key) ? sizeof offer : sizeof said;
    *value = malloc(*len);
    if (is_offer(key))
        memcpy(*value, &offer, *len);
    else
        memcpy(*value, rank == 0 ? said : answer, *len);
    return 0;
}

static struct mu_nccl_backend *backend(int rank)
{
    static const char *const hosts[2] = { "a", "a" };
    static int both[2] = { 0, 1 };
    struct mu_nccl_backend *b = calloc(1, sizeof *b);

    b->env = (struct mu_backend_env){ .rank = rank,
                                      .size = 2,
                                      .local_rank = rank,
                                      .local_size = 2,
                                      .nnodes = 1,
                                      .host_of = hosts,
                                      .job = "1.0",
                                      .init_timeout = 1,
                                      .exchange = { NULL, publish, fence, fetch } };
    b->local_ranks = both;
    return b;
}

static const struct peer_case {
    const char *name;
    bool foreign;    /* what the handle leads to is not the peer's */
    bool shut;       /* the handle cannot be opened */
    bool unmappable; /* the peer has no handle */
    int answer;      /* could the peer map ours? */
    int said, own;
} cases[] = {
    { "all is well", false, false, false, 1, 1, 1 },
    { "reads give other bytes than the peer wrote", true, false, false, 1, 0, 0 },
    { "the handle cannot be opened", false, true, false, 1, 0, 0 },
    { "the peer has no handle", false, false, true, 1, 0, 0 },
    { "the peer cannot map ours", false, false, false, 0, 1, 0 },
};

static void row_18_memory_that_is_not_proved_is_left_to_nccl(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct peer_case *c = &cases[i];
        struct mu_nccl_backend *b = backend(0), *peer = backend(1);
        struct mu_nccl_record records[2] = { { .mappable = 0 } };
        struct mu_err err = { 0 };

        assert_int_equal(mu_peers_prepare(b, &records[0], &err), 0);
        assert_int_equal(mu_peers_prepare(peer, &records[1], &err), 0);
        b->records = records;
        if (c->foreign)
            memset(peer->control, 0x55, 64 << 10);
        if (c->shut)
            memset(&records[1].control, 0, sizeof records[1].control);
        if (c->unmappable)
            records[1].mappable = 0;
        answer[0] = c->answer ? b->control : NULL;
        answer[1] = peer->control;
        if (mu_peers_connect(b, &err) < 0)
            fail_msg("%s: %s", c->name, err.text);
        if ((said[0] && said[1]) != c->said || b->own != c->own)
            fail_msg("%s: said %p %p, own paths %d", c->name, (void *)said[0],
                     (void *)said[1], b->own);
        mu_peers_close(b);
        mu_peers_close(peer);
        assert_int_equal(opened, 0);
        free(b);
        free(peer);
    }
}

/* A buffer, and what a kernel gets of it: where it is mapped, here and in the peer. */
static void a_rank_has_the_address_of_its_memory_in_each_peer(void **state)
{
    static char theirs[16], ours_there[16]; /* only their addresses count */
    struct mu_nccl_backend *b = backend(0);
    struct mu_err err = { 0 };
    struct mu_places places;
    char *base;

    b->own = true;
    offered = theirs;
    answer[0] = ours_there;
    answer[1] = theirs;
    base = mu_nccl_arena_alloc(b, 1000, &err);
    assert_non_null(base);
    assert_true(mu_nccl_arena_peers(b, base + 12, 8, &places));
    assert_ptr_equal(places.peer[0], base + 12);
    assert_ptr_equal(places.peer[1], theirs + 12);
    assert_ptr_equal(places.there[1], ours_there + 12);
    mu_nccl_arena_free(b, base);
    assert_int_equal(opened, 0);
    free(b);
}

static void memory_that_one_rank_cannot_map_is_an_error_on_all(void **state)
{
    static char theirs[16];

    for (int here = 0; here < 2; here++) {
        struct mu_nccl_backend *b = backend(0);
        struct mu_err err = { 0 };

        b->own = true;
        offered = here ? NULL : theirs;
        answer[0] = here ? theirs : NULL;
        answer[1] = theirs;
        assert_null(mu_nccl_arena_alloc(b, 1000, &err));
        assert_int_equal(err.code, MUSTER_EDEVICE);
        if (!strstr(err.text,
                    here ? "rank 0 (node a) cannot map" : "rank 1 (node a) cannot map"))
            fail_msg("%s", err.text);
        assert_int_equal(opened, 0);
        free(b);
    }
}

/* The first world, of generation 0, has allocated two arenas, that of 2 another one. */
static struct mu_nccl_backend *with_arenas(char **base, char *theirs)
{
    struct mu_nccl_backend *b = backend(0);
    struct mu_err err = { 0 };

    b->own = true;
    offered = answer[0] = answer[1] = theirs;
    for (int i = 0; i < 3; i++) {
        b->env.generation = i < 2 ? 0 : 2;
        base[i] = mu_nccl_arena_alloc(b, 1000, &err);
        assert_non_null(base[i]);
        base[i][5] = (char)i;
    }
    return b;
}

/* Which of the three arenas the other rank of the next world has. */
static const struct adopt_case {
    const char *name;
    bool theirs[3];
} adopts[] = {
    { "a rank is lost: the others have all", { true, true, true } },
    { "a newcomer has none", { false, false, false } },
    { "it was a newcomer at generation 2", { false, false, true } },
    { "another one has freed the first", { false, true, true } },
};

static void memory_is_mapped_again_where_all_ranks_have_it(void **state)
{
    static char theirs[16];

    for (size_t i = 0; i < sizeof adopts / sizeof adopts[0]; i++) {
        const struct adopt_case *c = &adopts[i];
        char *base[3];
        struct mu_nccl_backend *from = with_arenas(base, theirs), *b = backend(0);
        struct mu_err err = { 0 };
        struct mu_places places;
        int common = 0;

        their_list[0] = 0;
        for (struct mu_nccl_arena *a = from->arenas; a; a = a->next)
            for (int k = 0; k < 3; k++)
                if (a->base == base[k] && c->theirs[k])
                    their_list[++their_list[0]] = a->id;
        b->own = true;
        b->env.generation = 3;
        mapped = 0;
        assert_int_equal(mu_nccl_arena_adopt(b, from, &err), 0);
        assert_int_equal(listed[0], 3);
        assert_null(from->arenas);
        for (int k = 0; k < 3; k++) {
            common += c->theirs[k];
            if (mu_nccl_arena_peers(b, base[k], 8, &places) != c->theirs[k] ||
                base[k][5] != k)
                fail_msg("%s: arena %d", c->name, k);
        }
        assert_int_equal(mapped, common);
        assert_int_equal(opened, common);
        for (int k = 0; k < 3; k++)
            mu_nccl_arena_free(b, base[k]);
        assert_int_equal(opened, 0);
        free(from);
        free(b);
    }
}

static void a_newcomer_says_that_it_has_no_memory(void **state)
{
    struct mu_nccl_backend *b = backend(1);
    struct mu_err err = { 0 };

    b->own = true;
    their_list[0] = 1;
    their_list[1] = 77;
    listed[0] = 5;
    mapped = 0;
    assert_int_equal(mu_nccl_arena_adopt(b, NULL, &err), 0);
    assert_int_equal(listed[0], 0);
    assert_int_equal(mapped, 0);
    assert_null(b->arenas);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_18_memory_that_is_not_proved_is_left_to_nccl),
        cmocka_unit_test(a_rank_has_the_address_of_its_memory_in_each_peer),
        cmocka_unit_test(memory_that_one_rank_cannot_map_is_an_error_on_all),
        cmocka_unit_test(memory_is_mapped_again_where_all_ranks_have_it),
        cmocka_unit_test(a_newcomer_says_that_it_has_no_memory),
    };

    return cmocka_run_group_tests_name("nccl_peers", tests, NULL, NULL);
}
