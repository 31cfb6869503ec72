/* SPDX-License-Identifier: BSD-3-Clause */
/* test_own_memory.c - when the program's memory is mapped, offered to kernels and
 * closed: rank 0 of two on a fake of CUDA; the test plays rank 1 on its board
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/backend/nccl/nccl.h"

#define BYTES ((size_t)4096)

static struct mu_nccl_backend b;
static struct mu_host_words words;
static struct mu_own_table peer;        /* of rank 1 */
static struct mu_own_buffers launch;    /* of the last kernel */
static struct mu_descriptors peer_link; /* the same */
static int peer_fd, answer;             /* what rank 1 can share */
static bool no_socket;                  /* rank 1 has none */
static int opened, handles;             /* open mappings; handles given */
static int references;                  /* to handles of virtual memory */
static int given;                       /* descriptors made of them */
static bool in_call;                    /* the program cannot unmap its memory */
static int retained_late;               /* handles asked for elsewhere */
static int mapped, reserved;            /* ranges and windows of it */
static struct {
    CUdeviceptr at;
    size_t bytes;
} ranges[8]; /* that are mapped */
static bool no_handle, no_copy, no_map, captured;
static void (*during_send)(void);   /* by the program, in another thread */
static bool map_memory = true;      /* MUSTER_MAP_MEMORY */
static bool virtual_memory = false; /* the program allocates that */
static struct mu_flags flags;       /* of rank 0, in device memory */
/* The program's allocations: memory `at` has the id, 0: freed. The last two are
 * virtual, one behind the other.
 */
static struct {
    char *at;
    unsigned long long id;
    bool is_virtual;
} memory[4];

/* As virtual.c sends it. */
struct note {
    uint32_t slot, generation;
    uint64_t base, bytes;
};

/* ---- CUDA ------------------------------------------------------------------------ */

static CUresult attribute(void *value, CUpointer_attribute which, CUdeviceptr p)
{
    for (int i = 0; i < 4; i++)
        if (memory[i].at && (uintptr_t)memory[i].at <= p &&
            p < (uintptr_t)memory[i].at + BYTES && memory[i].id) {
            if (which == CU_POINTER_ATTRIBUTE_BUFFER_ID)
                *(unsigned long long *)value = memory[i].id;
            else
                *(int *)value = !memory[i].is_virtual;
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

static CUresult create(CUmemGenericAllocationHandle *h, size_t bytes,
                       const CUmemAllocationProp *prop, unsigned long long flags)
{
    *h = 1;
    references++;
    return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle h)
{
    references--;
    return CUDA_SUCCESS;
}

/* Beside cuMemUnmap of the same range the driver gave handles that are of no use. */
static CUresult retain(CUmemGenericAllocationHandle *h, void *at)
{
    retained_late += !in_call;
    for (int i = 0; i < 4; i++)
        if (memory[i].is_virtual && memory[i].at == at && memory[i].id) {
            *h = memory[i].id;
            references++;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult give(void *fd, CUmemGenericAllocationHandle h,
                     CUmemAllocationHandleType type, unsigned long long flags)
{
    void (*call)(void) = during_send;

    during_send = NULL;
    if (call)
        call();
    given++;
    *(int *)fd = memfd_create("handle", 0);
    return !no_handle && pwrite(*(int *)fd, &h, sizeof h, 0) == sizeof h
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult take(CUmemGenericAllocationHandle *h, void *fd,
                     CUmemAllocationHandleType type)
{
    assert_int_equal(pread((int)(intptr_t)fd, h, sizeof *h, 0), sizeof *h);
    references++;
    return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *at, size_t bytes, size_t alignment,
                        CUdeviceptr wanted, unsigned long long flags)
{
    *at = (uint64_t)(++reserved) << 44; /* is not accessed here */
    return CUDA_SUCCESS;
}

static CUresult unreserve(CUdeviceptr at, size_t bytes)
{
    reserved--;
    return CUDA_SUCCESS;
}

/* As the driver has it: what is mapped cannot be mapped again. */
static CUresult map(CUdeviceptr at, size_t bytes, size_t offset,
                    CUmemGenericAllocationHandle h, unsigned long long flags)
{
    if (no_map)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < mapped; i++)
        if (at < ranges[i].at + ranges[i].bytes && ranges[i].at < at + bytes)
            return CUDA_ERROR_INVALID_VALUE;
    assert_true((size_t)mapped < sizeof ranges / sizeof ranges[0]);
    ranges[mapped].at = at;
    ranges[mapped++].bytes = bytes;
    return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr at, size_t bytes)
{
    for (int i = 0; i < mapped; i++)
        if (ranges[i].at == at && ranges[i].bytes == bytes) {
            ranges[i] = ranges[--mapped];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult give_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access,
                            size_t n)
{
    return CUDA_SUCCESS;
}

/* The named call of the driver. */
#define FOUND(name, fake)                                                              \
    if (strcmp(symbol, name) == 0) {                                                   \
        __typeof__(&fake) call = fake;                                                 \
        memcpy(at, &call, sizeof call);                                                \
        return cudaSuccess;                                                            \
    }

cudaError_t
cudaGetDriverEntryPointByVersion(const char *symbol, void **at, unsigned version,
                                 unsigned long long flags,
                                 enum cudaDriverEntryPointQueryResult *found)
{
    FOUND("cuPointerGetAttribute", attribute)
    FOUND("cuMemGetAddressRange", range)
    FOUND("cuMemCreate", create)
    FOUND("cuMemRelease", release)
    FOUND("cuMemRetainAllocationHandle", retain)
    FOUND("cuMemExportToShareableHandle", give)
    FOUND("cuMemImportFromShareableHandle", take)
    FOUND("cuMemAddressReserve", reserve)
    FOUND("cuMemAddressFree", unreserve)
    FOUND("cuMemMap", map)
    FOUND("cuMemUnmap", unmap)
    FOUND("cuMemSetAccess", give_access)
    return cudaErrorInvalidValue;
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
                   const struct mu_work *work, const struct mu_own_buffers *buffers,
                   int blocks, cudaStream_t s)
{
    launch = *buffers;
    return cudaSuccess;
}

struct board_record {
    int32_t pid, fd;
    struct mu_descriptor_address address;
};

/* A descriptor of rank 1's memory with that handle. */
static void peer_sends(const struct note *note, CUmemGenericAllocationHandle h)
{
    int fd;

    assert_int_equal(give(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                     CUDA_SUCCESS);
    assert_int_equal(mu_descriptors_send(&peer_link, 0, note, sizeof *note, fd),
                     MU_SENT);
    close(fd);
}

/* Rank 1 sends its trial range at once. */
static void peer_opens(const struct mu_descriptor_address *mine,
                       struct mu_descriptor_address *of_peer)
{
    const struct note trial = { .bytes = 2 << 20 };
    struct mu_descriptor_address all[2];

    mu_descriptors_open(&peer_link, of_peer);
    if (no_socket || mine->len == 0) {
        of_peer->len = 0;
        return;
    }
    all[0] = *mine;
    all[1] = *of_peer;
    mu_descriptors_join(&peer_link, 1, 2, all);
    peer_sends(&trial, 7);
}

/* What each rank publishes: addresses of board and socket, or what it shares. */
int mu_peers_collect(struct mu_nccl_backend *backend, const char *key, const void *mine,
                     size_t len, void *all, struct mu_err *err)
{
    char *record = (char *)all + len;

    memcpy(all, mine, len);
    if (strcmp(key, "mu.nccl.board") == 0) {
        const struct board_record *own = mine;
        struct board_record board = { .pid = (int32_t)getpid(), .fd = peer_fd };
        int fd = own->fd;

        assert_int_equal(len, sizeof board);
        peer_opens(&own->address, &board.address);
        memcpy(record, &board, len);
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
    opened = handles = references = given = retained_late = mapped = reserved = 0;
    no_handle = no_copy = captured = false;
    peer_link.fd = -1;
    memset(&flags, 0, sizeof flags);
    b.reach.flags[0] = &flags;
    for (int i = 0; i < 4; i++) {
        memory[i].at = i < 2    ? aligned_alloc(4096, BYTES)
                       : i == 2 ? aligned_alloc(4096, 2 * BYTES)
                                : memory[2].at + BYTES;
        memory[i].id = (unsigned long long)i + 10;
        memory[i].is_virtual = i >= 2;
    }
    for (int i = 0; i < 2; i++)
        b.peer_control[i] = control[i] = aligned_alloc(4096, BYTES);
    b.control = control[0];
    b.control_bytes = BYTES;
    b.words = &words;
    b.own = true;
    b.env = (struct mu_backend_env){ .size = 2,
                                     .local_size = 2,
                                     .nnodes = 1,
                                     .map_memory = map_memory,
                                     .virtual_memory = virtual_memory };
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
    mu_descriptors_close(&peer_link);
    assert_int_equal(opened, 0);
    assert_int_equal(references, 0);
    assert_int_equal(retained_late, 0);
    assert_int_equal(mapped, 0);
    assert_int_equal(reserved, 0);
    free(memory[2].at);
    for (int i = 0; i < 2; i++) {
        free(memory[i].at);
        free(b.peer_control[i]);
        munmap(peer.board[i], sizeof *peer.board[i]);
    }
    close(peer_fd);
    return 0;
}

/* Of virtual memory too: bit 1. */
static int with_peer(void **state)
{
    answer = 3;
    return start(state);
}

static int without_peer(void **state)
{
    answer = 0;
    return start(state);
}

static int not_asked(void **state)
{
    int rc;

    map_memory = false;
    rc = with_peer(state);
    map_memory = true;
    return rc;
}

/* The peers share memory of cudaMalloc alone; `needs`: the program has virtual memory.
 */
static int without_virtual(void **state, bool needs)
{
    int rc;

    virtual_memory = needs;
    rc = start(state);
    virtual_memory = no_socket = no_map = false;
    return rc;
}

static int peer_without_virtual(void **state)
{
    answer = 1;
    return without_virtual(state, false);
}

static int peer_without_needed_virtual(void **state)
{
    answer = 1;
    return without_virtual(state, true);
}

static int peer_without_socket(void **state)
{
    answer = 1;
    no_socket = true;
    return without_virtual(state, false);
}

static int without_mapping(void **state)
{
    answer = 3;
    no_map = true;
    return without_virtual(state, false);
}

/* A call on memory k; returns its slot. */
static int call(int k, size_t offset)
{
    const struct mu_work c = { .dtype = MUSTER_F32,
                               .send = memory[k].at + offset,
                               .recv = memory[k].at + offset,
                               .count = 16 };

    in_call = true;
    assert_int_equal(mu_own_launch(&b, &c, 1, captured), cudaSuccess);
    in_call = false;
    return launch.to.n > 0 ? launch.to.piece[0].slot : -1;
}

static bool offered(void)
{
    for (int i = 0; i < launch.to.n; i++)
        if (b.ours.map->direct[launch.to.piece[i].slot] !=
            launch.to.piece[i].generation)
            return false;
    return launch.to.n > 0;
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
    for (int k = 0; k < 4; k += 2) {
        call(k, 0);
        memory[k].id = 77 + (unsigned long long)k;
        mu_own_poll(&b);
        peer_answers();
        mu_own_poll(&b);
        assert_false(offered());
        assert_int_equal(peer.board[0]->slot[launch.to.piece[0].slot].generation & 1,
                         0);
    }
}

static int peer_allocates(uint64_t id)
{
    const struct mu_own_allocation at = { id, id << 20, BYTES, false };
    unsigned char handle[MU_OWN_HANDLE] = { 0 };
    void *p = &words; /* any address */
    int slot = mu_own_add(&peer, &at);

    memcpy(handle, &p, sizeof p);
    mu_own_announce(&peer, slot, MU_BY_HANDLE, handle);
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
    const struct mu_work c = {
        .dtype = MUSTER_F32, .send = b.control + 32, .recv = memory[1].at, .count = 16
    };

    assert_int_equal(call(0, 4), -1); /* not aligned */
    memory[0].id = 0;
    assert_int_equal(call(0, 0), -1); /* not the GPU's */
    assert_int_equal(mu_own_launch(&b, &c, 1, captured), cudaSuccess);
    assert_int_equal(launch.from.n, 1);
    assert_int_equal(launch.from.piece[0].slot, MU_OWN_CONTROL); /* from the start */
    assert_int_equal(launch.from.offset, 32);
    assert_int_equal(launch.to.n, 1);
}

/* ---- Virtual memory -------------------------------------------------------------- */

/* The 32 last bytes of one range and the 32 first of the next. */
#define ACROSS (BYTES - 32)

/* The next descriptor that rank 1 has been sent is of memory k. */
static void peer_is_sent(int k, int piece)
{
    CUmemGenericAllocationHandle h;
    struct note note;
    int from, fd;

    assert_true(mu_descriptors_take(&peer_link, &from, &note, sizeof note, &fd));
    assert_int_equal(from, 0);
    assert_int_equal(note.slot, launch.to.piece[piece].slot);
    assert_int_equal(note.generation, launch.to.piece[piece].generation);
    assert_int_equal(note.base, (uintptr_t)memory[k].at);
    assert_int_equal(note.bytes, BYTES);
    assert_int_equal(pread(fd, &h, sizeof h, 0), sizeof h);
    assert_int_equal(h, memory[k].id);
    close(fd);
}

static void peer_drops_trial(void)
{
    struct note note;
    int from, fd;

    assert_true(mu_descriptors_take(&peer_link, &from, &note, sizeof note, &fd));
    close(fd);
}

static void ranges_of_virtual_memory_are_offered_when_all_are_mapped(void **state)
{
    peer_drops_trial();
    assert_true(call(2, ACROSS) >= 0);
    assert_int_equal(launch.to.n, 2);
    assert_int_equal(launch.to.offset, ACROSS);
    mu_own_poll(&b);
    for (int i = 0; i < 2; i++)
        peer_is_sent(launch.to.piece[0].slot < launch.to.piece[1].slot ? 2 + i : 3 - i,
                     launch.to.piece[0].slot < launch.to.piece[1].slot ? i : 1 - i);
    assert_false(offered());
    assert_int_equal(peer_answers(), 2);
    mu_own_poll(&b);
    assert_true(offered());
    assert_int_equal(handles, 0);
    memory[3].id = 77; /* unmapped, and other memory mapped there */
    call(2, ACROSS);
    assert_int_equal(launch.to.n, 2);
    assert_false(offered());
    mu_own_poll(&b);
    peer_is_sent(3, 1);
    peer_answers();
    mu_own_poll(&b);
    assert_true(offered());
    memory[3].id = 0; /* a hole */
    assert_int_equal(call(2, ACROSS), -1);
    assert_true(call(2, 0) >= 0);
    assert_true(offered());
}

/* The graph would use it after other memory was mapped there. */
static void a_captured_call_copies_virtual_memory(void **state)
{
    captured = true;
    assert_int_equal(call(2, 0), -1);
    assert_int_equal(call(2, ACROSS), -1);
    assert_true(call(0, 0) >= 0);
    captured = false;
    assert_true(call(2, ACROSS) >= 0);
    assert_int_equal(launch.to.n, 2);
}

/* By another thread, while the watch thread is busy. */
static void virtual_memory_that_was_freed_before_it_is_sent_is_not_sent(void **state)
{
    const int before = given;
    int slot = call(2, 0);

    assert_int_equal(references, 1);
    memory[2].id = 0;
    mu_own_poll(&b);
    assert_int_equal(given, before);
    assert_int_equal(references, 0);
    assert_false(b.ours.refused[slot]); /* CUDA has not refused it */
    assert_int_equal(b.ours.table.entry[slot].generation & 1, 0);
    memory[2].id = 55; /* the address again, freed before the next poll */
    call(2, 0);
    memory[2].id = 56;
    call(2, 0);
    mu_own_poll(&b);
    assert_int_equal(given, before + 1);
    assert_int_equal(references, 0);
}

static void a_peer_that_takes_no_descriptors_is_tried_again(void **state)
{
    struct note note = { .bytes = 0 };
    int from, fd, n = 0;

    while (mu_descriptors_send(&b.ours.virtual_memory.link, 1, &note, sizeof note, 0) ==
           MU_SENT)
        n++;
    call(2, 0);
    mu_own_poll(&b);
    assert_int_equal(references, 1); /* until it is sent */
    assert_int_equal(peer_answers(), 0);
    while (mu_descriptors_take(&peer_link, &from, &note, sizeof note, &fd))
        close(fd);
    mu_own_poll(&b);
    peer_is_sent(2, 0);
    assert_int_equal(peer_answers(), 1);
    mu_own_poll(&b);
    assert_true(offered());
}

/* It ends first, while this rank still has new memory. */
static void a_peer_that_has_left_is_no_refusal_of_cuda(void **state)
{
    int slot = call(2, 0), tried;

    mu_descriptors_close(&peer_link);
    mu_own_poll(&b);
    tried = given;
    mu_own_poll(&b);
    call(3, 0);
    mu_own_poll(&b);
    assert_int_equal(given, tried);
    assert_false(b.ours.refused[slot]);
    assert_int_equal(references, 0);
    assert_int_equal(peer_answers(), 0);
}

/* Its slot has other memory now. */
static void frees_and_maps(void)
{
    int slot = launch.to.piece[0].slot;

    mu_own_retire(&b.ours.table, slot);
    peer_answers();
    memory[2].id += MU_OWN_SLOTS;
    assert_int_equal(call(2, 0), slot);
}

static void a_slot_that_is_used_again_while_it_is_sent_is_sent_again(void **state)
{
    struct note note;
    int from, fd;

    peer_drops_trial();
    call(2, 0);
    during_send = frees_and_maps;
    mu_own_poll(&b);
    assert_true(mu_descriptors_take(&peer_link, &from, &note, sizeof note, &fd));
    close(fd); /* of the memory before */
    mu_own_poll(&b);
    peer_is_sent(2, 0);
    assert_int_equal(peer_answers(), 1);
    mu_own_poll(&b);
    assert_true(offered());
}

static void virtual_memory_without_descriptors_is_refused(void **state)
{
    no_handle = true;
    assert_int_equal(b.ours.refused[call(2, 0)], false);
    mu_own_poll(&b);
    assert_int_equal(b.ours.refused[call(2, 0)], true);
    assert_int_equal(peer_answers(), 0);
}

/* Rank 1 has ranges k of 64 KiB behind each other. */
static int peer_maps(int k, struct note *note)
{
    const struct mu_own_allocation at = { 100 + (uint64_t)k,
                                          ((uintptr_t)5 << 40) + ((uintptr_t)k << 16),
                                          1 << 16, true };
    int slot = mu_own_add(&peer, &at);

    *note =
        (struct note){ (uint32_t)slot, peer.entry[slot].generation, at.base, at.bytes };
    return slot;
}

static int count_open(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void ranges_of_a_peer_are_mapped_behind_each_other(void **state)
{
    int slot[2], before = count_open();
    struct note note[2];

    for (int k = 1; k >= 0; k--) { /* in any order */
        slot[k] = peer_maps(k, &note[k]);
        peer_sends(&note[k], 50);
        mu_own_poll(&b);
        assert_int_equal(mapped, 1 - k); /* not announced yet */
        mu_own_announce(&peer, slot[k], MU_BY_DESCRIPTOR, NULL);
        mu_own_poll(&b);
        assert_int_equal(mapped, 2 - k);
        assert_true(mu_own_held(&peer, slot[k]));
    }
    assert_int_equal(b.ours.map->base[1][slot[1]] - b.ours.map->base[1][slot[0]],
                     1 << 16);
    assert_int_equal(reserved, 1);
    assert_int_equal(count_open(), before);
    mu_own_retire(&peer, slot[0]);
    mu_own_poll(&b);
    assert_int_equal(mapped, 1);
    assert_null(b.ours.map->base[1][slot[0]]);
}

static void a_range_is_answered_when_its_descriptor_is_there(void **state)
{
    struct note note;
    int slot = peer_maps(0, &note);

    mu_own_announce(&peer, slot, MU_BY_DESCRIPTOR, NULL);
    mu_own_poll(&b);
    assert_int_equal(mapped, 0);
    peer_sends(&note, 50);
    mu_own_poll(&b);
    assert_true(mu_own_held(&peer, slot));
}

/* It would keep the memory. */
static void descriptors_of_freed_ranges_are_closed(void **state)
{
    int before = count_open();
    struct note note;
    int slot = peer_maps(0, &note);

    peer_sends(&note, 50);
    mu_own_poll(&b);
    assert_int_equal(count_open(), before + 1);
    mu_own_retire(&peer, slot);
    mu_own_poll(&b);
    assert_int_equal(count_open(), before);
    note.slot = MU_OWN_SLOTS; /* of no slot */
    peer_sends(&note, 50);
    mu_own_poll(&b);
    assert_int_equal(count_open(), before);
}

static void a_range_that_cannot_be_mapped_is_answered_so(void **state)
{
    struct note note;
    int slot = peer_maps(0, &note);

    peer_sends(&note, 50);
    mu_own_announce(&peer, slot, MU_BY_DESCRIPTOR, NULL);
    no_map = true;
    mu_own_poll(&b);
    no_map = false;
    assert_false(mu_own_held(&peer, slot));
    assert_int_equal(peer.board[1]->slot[slot].generation,
                     peer.board[0]->seen[1][slot]);
}

/* Rank 1 frees ranges 1 and 2, and has one of their size and another id in their place.
 */
static int peer_maps_again(const int *freed, uint64_t id)
{
    const struct mu_own_allocation at = { id, peer.entry[freed[0]].at.base, 2 << 16,
                                          true };
    int slot = mu_own_add(&peer, &at);
    const struct note note = { (uint32_t)slot, peer.entry[slot].generation, at.base,
                               at.bytes };

    peer_sends(&note, 51);
    mu_own_announce(&peer, slot, MU_BY_DESCRIPTOR, NULL);
    return slot;
}

/* The peer maps them at the same place, so the old ones have to be closed before. */
static void a_range_at_addresses_that_were_freed_waits_for_their_mappings(void **state)
{
    static const uint64_t ids[] = { 90, 1200 }; /* slots before and behind 101, 102 */

    for (int later = 0; later < 2; later++)
        for (int i = 0; i < 2; i++) {
            struct note note;
            int freed[2], slot;

            for (int k = 0; k < 2; k++) {
                freed[k] = peer_maps(k + 1, &note);
                peer_sends(&note, 50);
                mu_own_announce(&peer, freed[k], MU_BY_DESCRIPTOR, NULL);
            }
            mu_own_poll(&b);
            assert_true(mu_own_held(&peer, freed[0]) && mu_own_held(&peer, freed[1]));
            slot = peer_maps_again(freed, ids[i]);
            if (later) {
                words.waiting++; /* a kernel waits: nothing is closed */
                mu_own_poll(&b);
                assert_int_equal(mapped, 2);
            }
            for (int polls = 0; polls < 2; polls++)
                mu_own_poll(&b);
            assert_int_equal(mapped, 1);
            assert_true(mu_own_held(&peer, slot));
            mu_own_retire(&peer, slot);
            mu_own_poll(&b);
            assert_int_equal(mapped, 0);
        }
}

static void
without_the_peers_virtual_memory_is_refused_and_other_memory_shared(void **state)
{
    assert_true(b.ours.open);
    call(2, 0);
    mu_own_poll(&b);
    assert_true(b.ours.refused[launch.to.piece[0].slot]);
    call(0, 0);
    mu_own_poll(&b);
    peer_answers();
    mu_own_poll(&b);
    assert_true(offered());
}

static char said[512];

static void keep(void *arg, enum mu_log_level level, const char *text)
{
    snprintf(said, sizeof said, "%s", text);
}

static void a_kernel_that_waits_for_long_is_reported_with_the_state(void **state)
{
    const struct mu_log log = { .level = MU_LOG_DEBUG, .sink = keep };
    struct note note;
    int slot = peer_maps(0, &note);

    b.env.log = &log;
    call(0, 0);
    call(2, 0);
    mu_own_announce(&peer, slot, MU_BY_DESCRIPTOR, NULL); /* without a descriptor */
    said[0] = '\0';
    for (int i = 1; i < 5000; i++) {
        words.waiting++;
        mu_own_poll(&b);
    }
    assert_string_equal(said, "");
    words.waiting++;
    mu_own_poll(&b);
    assert_string_equal(said,
                        "nccl: rank 0: kernels wait for peers in each of 5000 polls; "
                        "2 allocations, 0 offered; of the peers' 0 are mapped here, 1 "
                        "changes are unanswered, 0 descriptors are not mapped");
    said[0] = '\0';
    for (int i = 0; i < 5000; i++)
        mu_own_poll(&b); /* none waits */
    assert_string_equal(said, "");
    b.env.log = NULL;
}

/* The peers read what is added up, and write what all ranks get: the other buffer may
 * be any memory, and is not looked up. Both ranks' parts must be of one allocation.
 */
static void only_what_the_peers_use_is_offered(void **state)
{
    static const struct {
        enum mu_shape shape;
        size_t count;
        bool from, to;
    } rows[] = {
        { MU_REDUCE_SCATTER, BYTES / 2 / sizeof(float), true, false },
        { MU_REDUCE_SCATTER, BYTES / 2 / sizeof(float) + 1, false, false },
        { MU_ALLGATHER, BYTES / 2, false, true },
        { MU_ALLGATHER, BYTES / 2 + 1, false, false },
        { MU_BROADCAST, BYTES, false, true },
        { MU_BROADCAST, BYTES + 1, false, false },
        { MU_ALLREDUCE, BYTES / sizeof(float), true, true },
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct mu_work w = { .shape = rows[i].shape,
                                   .dtype = MUSTER_F32,
                                   .send = memory[0].at,
                                   .recv = memory[1].at,
                                   .count = rows[i].count };

        assert_int_equal(mu_own_launch(&b, &w, 1, captured), cudaSuccess);
        assert_int_equal(launch.from.n > 0, rows[i].from);
        assert_int_equal(launch.to.n > 0, rows[i].to);
    }
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
        TEST(ranges_of_virtual_memory_are_offered_when_all_are_mapped),
        TEST(a_captured_call_copies_virtual_memory),
        TEST(virtual_memory_that_was_freed_before_it_is_sent_is_not_sent),
        TEST(a_peer_that_takes_no_descriptors_is_tried_again),
        TEST(a_peer_that_has_left_is_no_refusal_of_cuda),
        TEST(a_slot_that_is_used_again_while_it_is_sent_is_sent_again),
        TEST(virtual_memory_without_descriptors_is_refused),
        TEST(ranges_of_a_peer_are_mapped_behind_each_other),
        TEST(a_range_is_answered_when_its_descriptor_is_there),
        TEST(descriptors_of_freed_ranges_are_closed),
        TEST(a_range_that_cannot_be_mapped_is_answered_so),
        TEST(a_range_at_addresses_that_were_freed_waits_for_their_mappings),
        TEST(a_kernel_that_waits_for_long_is_reported_with_the_state),
        cmocka_unit_test_setup_teardown(
            without_the_peers_virtual_memory_is_refused_and_other_memory_shared,
            peer_without_virtual, close_both),
        cmocka_unit_test_setup_teardown(
            without_the_peers_virtual_memory_is_refused_and_other_memory_shared,
            peer_without_socket, close_both),
        cmocka_unit_test_setup_teardown(
            without_the_peers_virtual_memory_is_refused_and_other_memory_shared,
            without_mapping, close_both),
        cmocka_unit_test_setup_teardown(nothing_is_shared_unless_it_was_asked_for,
                                        peer_without_needed_virtual, close_both),
        TEST(only_what_the_peers_use_is_offered),
        cmocka_unit_test_setup_teardown(one_rank_that_cannot_share_decides_for_all,
                                        without_peer, close_both),
        cmocka_unit_test_setup_teardown(nothing_is_shared_unless_it_was_asked_for,
                                        not_asked, close_both),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
