/* SPDX-License-Identifier: BSD-3-Clause */
/* test_own_memory.c - when the program's memory is mapped, offered to kernels and
 * closed: rank 0 of two on a fake of CUDA; the test plays rank 1 on its board
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/backend/nccl/nccl.h"

#define BYTES ((size_t)4096)

static struct mu_nccl_backend b;
static struct mu_host_words words;
static struct mu_own_table peer;     /* of rank 1 */
static struct mu_own_buffers launch; /* of the last kernel */
static int peer_fd, answer;          /* can rank 1 share? */
static int opened, handles;          /* open mappings; handles given */
static bool no_handle, no_copy, captured;
static bool map_memory = true; /* MUSTER_MAP_MEMORY */
static struct mu_flags flags;  /* of rank 0, in device memory */
/* The program's allocations: memory `at` has the id, 0: freed. */
static struct {
    char *at;
    unsigned long long id;
} memory[4];

/* ---- CUDA ------------------------------------------------------------------------ */

static CUresult attribute(void *value, CUpointer_attribute which, CUdeviceptr p)
{
    for (int i = 0; i < 4; i++)
        if (memory[i].at && (uintptr_t)memory[i].at <= p &&
            p < (uintptr_t)memory[i].at + BYTES && memory[i].id) {
            *(unsigned long long *)value = memory[i].id;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult range(CUdeviceptr *base, size_t *bytes, CUdeviceptr p)
{
    for (int i = 0; i < 4; i++)
        if (memory[i].at && (uintptr_t)memory[i].at <= p &&
            p < (uintptr_t)memory[i].at + BYTES) {
            *base = (uintptr_t)memory[i].at;
            *bytes = BYTES;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

cudaError_t
cudaGetDriverEntryPointByVersion(const char *symbol, void **at, unsigned version,
                                 unsigned long long flags,
                                 enum cudaDriverEntryPointQueryResult *found)
{
    PFN_cuPointerGetAttribute_v4000 a = attribute;
    PFN_cuMemGetAddressRange_v3020 r = range;

    if (strcmp(symbol, "cuPointerGetAttribute") == 0)
        memcpy(at, &a, sizeof a);
    else
        memcpy(at, &r, sizeof r);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    *p = calloc(1, bytes);
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    free(p);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    *s = NULL;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
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

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t s)
{
    if (no_copy)
        return cudaErrorInvalidValue;
    memcpy(dst, src, bytes);
    return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *p)
{
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &p, sizeof p);
    handles++;
    return no_handle ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t handle, unsigned flags)
{
    memcpy(p, &handle, sizeof *p);
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

char *mu_parts_of(const struct mu_nccl_backend *backend, int local_rank)
{
    return NULL;
}

cudaError_t mu_own(const struct mu_reach *reach, const struct mu_own_map *map,
                   const struct mu_own_buffers *buffers, size_t count,
                   enum muster_dtype dtype, double scale, int blocks, cudaStream_t s)
{
    launch = *buffers;
    return cudaSuccess;
}

/* Each rank's number is its board's descriptor, or whether it can share. */
int mu_peers_collect(struct mu_nccl_backend *backend, const char *key, const void *mine,
                     size_t len, void *all, struct mu_err *err)
{
    int32_t *record = (int32_t *)all + len / 4;

    memcpy(all, mine, len);
    if (strcmp(key, "mu.nccl.board") == 0) {
        const int32_t board[2] = { (int32_t)getpid(), peer_fd };
        int fd = ((const int32_t *)mine)[1];

        assert_int_equal(len, sizeof board);
        memcpy(record, board, len);
        peer.board[0] =
            fd < 0 ? NULL
                   : mmap(NULL, sizeof *peer.board[0], PROT_READ, MAP_SHARED, fd, 0);
        assert_ptr_not_equal(peer.board[0], MAP_FAILED);
        peer.board[1] = mmap(NULL, sizeof *peer.board[1], PROT_READ | PROT_WRITE,
                             MAP_SHARED, peer_fd, 0);
        assert_ptr_not_equal(peer.board[1], MAP_FAILED);
    } else {
        memcpy(record, &answer, len);
    }
    return 0;
}

/* ---- Rank 0 ---------------------------------------------------------------------- */

static int start(void **state)
{
    static char *control[2];
    struct mu_err err = { 0 };

    memset(&b, 0, sizeof b);
    memset(&words, 0, sizeof words);
    memset(&peer, 0, sizeof peer);
    opened = handles = 0;
    no_handle = no_copy = captured = false;
    memset(&flags, 0, sizeof flags);
    b.reach.flags[0] = &flags;
    for (int i = 0; i < 4; i++) {
        memory[i].at = i < 2 ? aligned_alloc(4096, BYTES) : NULL;
        memory[i].id = (unsigned long long)i + 10;
    }
    for (int i = 0; i < 2; i++)
        b.peer_control[i] = control[i] = aligned_alloc(4096, BYTES);
    b.control = control[0];
    b.control_bytes = BYTES;
    b.words = &words;
    b.own = true;
    b.env = (struct mu_backend_env){
        .size = 2, .local_size = 2, .nnodes = 1, .map_memory = map_memory
    };
    peer.rank = 1;
    peer.n = 2;
    peer_fd = memfd_create("peer", 0);
    assert_int_equal(ftruncate(peer_fd, sizeof(struct mu_own_board)), 0);
    assert_int_equal(mu_own_open(&b, &err), 0);
    return 0;
}

static int close_both(void **state)
{
    mu_own_close(&b);
    assert_int_equal(opened, 0);
    for (int i = 0; i < 2; i++) {
        free(memory[i].at);
        free(b.peer_control[i]);
        munmap(peer.board[i], sizeof *peer.board[i]);
    }
    close(peer_fd);
    return 0;
}

static int with_peer(void **state)
{
    answer = 1;
    return start(state);
}

static int without_peer(void **state)
{
    answer = 0;
    return start(state);
}

static int not_asked(void **state)
{
    map_memory = false;
    return with_peer(state);
}

/* A call on memory k; returns its slot. */
static int call(int k, size_t offset)
{
    const struct mu_coll c = { .dtype = MUSTER_F32,
                               .send = memory[k].at + offset,
                               .recv = memory[k].at + offset,
                               .count = 16 };

    assert_int_equal(mu_own_launch(&b, &c, 1, captured), cudaSuccess);
    return launch.to.slot;
}

static bool offered(void)
{
    return launch.to.slot >= 0 &&
           b.ours.map->direct[launch.to.slot] == launch.to.generation;
}

/* Rank 1 answers what it sees; returns how many. */
static int peer_answers(void)
{
    struct mu_own_change c = { .handle = NULL };
    int n = 0;

    for (; mu_own_next(&peer, &c); n++)
        mu_own_answer(&peer, &c, c.generation & 1);
    return n;
}

static void memory_is_offered_when_the_peer_has_mapped_it(void **state)
{
    assert_true(call(0, 64) >= 0);
    assert_int_equal(launch.to.offset, 64);
    assert_false(offered());
    mu_own_poll(&b);
    assert_false(offered());
    assert_int_equal(peer_answers(), 1);
    assert_false(offered());
    mu_own_poll(&b);
    assert_true(offered()); /* also a launch that was captured before */
    call(0, 0);
    assert_true(offered());
    assert_int_equal(handles, 1);
}

static void a_new_id_at_an_address_is_not_offered(void **state)
{
    int slot = call(0, 0);

    mu_own_poll(&b);
    peer_answers();
    mu_own_poll(&b);
    assert_true(offered());
    memory[0].id = 99;
    assert_int_not_equal(call(0, 0), slot);
    assert_false(offered());
    assert_true(peer_answers() > 0); /* it closes the old mapping */
    mu_own_poll(&b);
    peer_answers();
    mu_own_poll(&b);
    assert_true(offered());
}

/* Without a call the peer would keep the memory. */
static void freed_memory_is_retired_within_polls(void **state)
{
    call(0, 0);
    mu_own_poll(&b);
    peer_answers();
    memory[0].id = 0;
    for (int i = 0; i < MU_OWN_SLOTS; i++)
        mu_own_poll(&b);
    assert_int_equal(peer_answers(), 1);
    assert_false(offered());
}

static void memory_without_a_handle_is_asked_for_once(void **state)
{
    no_handle = true;
    assert_true(call(0, 0) >= 0);
    for (int i = 0; i < 3; i++)
        mu_own_poll(&b);
    assert_int_equal(handles, 1);
    assert_int_equal(peer_answers(), 0);
    assert_false(offered());
}

/* The id that the handle was made for is not the one of the call. */
static void memory_freed_before_its_handle_is_not_announced(void **state)
{
    call(0, 0);
    memory[0].id = 77;
    mu_own_poll(&b);
    peer_answers();
    mu_own_poll(&b);
    assert_false(offered());
}

static int peer_allocates(uint64_t id)
{
    const struct mu_own_allocation at = { id, id << 20, BYTES };
    unsigned char handle[MU_OWN_HANDLE] = { 0 };
    void *p = &words; /* any address */
    int slot = mu_own_add(&peer, &at);

    memcpy(handle, &p, sizeof p);
    mu_own_announce(&peer, slot, handle);
    return slot;
}

static void a_mapping_is_closed_only_while_no_kernel_waits(void **state)
{
    int slot = peer_allocates(5);

    mu_own_poll(&b);
    assert_int_equal(opened, 1);
    assert_true(mu_own_held(&peer, slot));
    assert_ptr_equal(b.ours.map->base[1][slot], &words);
    mu_own_retire(&peer, slot);
    for (int i = 0; i < 3; i++) {
        words.waiting++;
        mu_own_poll(&b);
        assert_int_equal(opened, 1);
    }
    mu_own_poll(&b);
    assert_int_equal(opened, 0);
}

static void the_peer_has_its_answer_after_the_kernels_have_the_mapping(void **state)
{
    int slot = peer_allocates(5);

    no_copy = true;
    mu_own_poll(&b);
    assert_false(mu_own_held(&peer, slot));
    no_copy = false;
    mu_own_poll(&b);
    assert_true(mu_own_held(&peer, slot));
    assert_int_equal(opened, 1);
}

/* A kernel does not use what is mapped after its launch. */
static void the_peer_has_its_answer_after_the_kernels_launched_before(void **state)
{
    int slot;

    call(0, 0);
    call(1, 0);
    assert_true(launch.counted);
    slot = peer_allocates(5);
    for (int i = 0; i < 2; i++) {
        mu_own_poll(&b);
        assert_int_equal(opened, 1);
        assert_false(mu_own_held(&peer, slot));
        flags.own_done++;
    }
    call(0, 0); /* after the mapping: not waited for */
    mu_own_poll(&b);
    assert_true(mu_own_held(&peer, slot));
    captured = true; /* replayed any number of times: not counted */
    call(0, 0);
    assert_false(launch.counted);
    slot = peer_allocates(6);
    flags.own_done++;
    mu_own_poll(&b);
    assert_true(mu_own_held(&peer, slot));
}

static void what_cannot_be_offered(void **state)
{
    const struct mu_coll c = {
        .dtype = MUSTER_F32, .send = b.control + 32, .recv = memory[1].at, .count = 16
    };

    assert_int_equal(call(0, 4), -1); /* not aligned */
    memory[0].id = 0;
    assert_int_equal(call(0, 0), -1); /* not the GPU's */
    assert_int_equal(mu_own_launch(&b, &c, 1, captured), cudaSuccess);
    assert_int_equal(launch.from.slot, MU_OWN_CONTROL); /* mapped from the start */
    assert_int_equal(launch.from.offset, 32);
    assert_true(launch.to.slot >= 0);
}

static void one_rank_that_cannot_share_decides_for_all(void **state)
{
    assert_false(b.ours.open);
    mu_own_poll(&b);
}

static void nothing_is_shared_unless_it_was_asked_for(void **state)
{
    assert_false(b.ours.open);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, with_peer, close_both)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(memory_is_offered_when_the_peer_has_mapped_it),
        TEST(a_new_id_at_an_address_is_not_offered),
        TEST(freed_memory_is_retired_within_polls),
        TEST(memory_without_a_handle_is_asked_for_once),
        TEST(memory_freed_before_its_handle_is_not_announced),
        TEST(a_mapping_is_closed_only_while_no_kernel_waits),
        TEST(the_peer_has_its_answer_after_the_kernels_have_the_mapping),
        TEST(the_peer_has_its_answer_after_the_kernels_launched_before),
        TEST(what_cannot_be_offered),
        cmocka_unit_test_setup_teardown(one_rank_that_cannot_share_decides_for_all,
                                        without_peer, close_both),
        cmocka_unit_test_setup_teardown(nothing_is_shared_unless_it_was_asked_for,
                                        not_asked, close_both),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
