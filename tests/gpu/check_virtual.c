/* SPDX-License-Identifier: BSD-3-Clause */
/* check_virtual.c - what own.c and virtual.c take for granted of the driver, about
 * virtual memory
 *
 *   check_virtual [race]
 *
 * One process on one GPU, or on two: then the memory is that of the second one, as a
 * peer's is. Lines with # say how the driver does what they do not depend on.
 *
 * race: handles of a range in one thread, while another one unmaps and maps it. They do
 * not depend on that either: the program may end by an alarm after 20 s, or crash.
 */
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/backend/nccl/bench/gpu.h"
#include "runtime/backend/nccl/driver.h"
#include "runtime/base/clock.h"

#define RANGE ((size_t)20 << 20)
#define RANGES 3
#define SPIN_US 300000.0
#define AT_ONCE_MS 100.0 /* longer, and the call has waited for the kernel */

static struct {
    PFN_cuMemCreate_v10020 create;
    PFN_cuMemRelease_v10020 release;
    PFN_cuMemRetainAllocationHandle_v11000 retain;
    PFN_cuMemExportToShareableHandle_v10020 give;
    PFN_cuMemImportFromShareableHandle_v10020 take;
    PFN_cuMemAddressReserve_v10020 reserve;
    PFN_cuMemMap_v10020 map;
    PFN_cuMemUnmap_v10020 unmap;
    PFN_cuMemSetAccess_v10020 access;
    PFN_cuPointerGetAttribute_v4000 attribute;
    PFN_cuMemGetAddressRange_v3020 range;
} driver;

static int owner; /* the GPU that has the memory; kernels run on GPU 0 */
static int tests, failures;

static void find(const char *name, unsigned version, void *at)
{
    if (!mu_driver_find(name, version, at)) {
        printf("1..0 # SKIP the driver has no %s\n", name);
        exit(0);
    }
}

static void find_all(void)
{
    find("cuMemCreate", 10020, &driver.create);
    find("cuMemRelease", 10020, &driver.release);
    find("cuMemRetainAllocationHandle", 11000, &driver.retain);
    find("cuMemExportToShareableHandle", 10020, &driver.give);
    find("cuMemImportFromShareableHandle", 10020, &driver.take);
    find("cuMemAddressReserve", 10020, &driver.reserve);
    find("cuMemMap", 10020, &driver.map);
    find("cuMemUnmap", 10020, &driver.unmap);
    find("cuMemSetAccess", 10020, &driver.access);
    find("cuPointerGetAttribute", 4000, &driver.attribute);
    find("cuMemGetAddressRange", 3020, &driver.range);
}

static void verify(bool ok, const char *what)
{
    failures += !ok;
    printf("%sok %d - %s\n", ok ? "" : "not ", ++tests, what);
    fflush(stdout);
}

static void need(CUresult rc, const char *what)
{
    if (rc == CUDA_SUCCESS)
        return;
    printf("Bail out! %s: CUDA driver error %d\n", what, (int)rc);
    exit(1);
}

/* ---- The driver's calls ---------------------------------------------------------- */

static CUmemGenericAllocationHandle create(void)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = owner }
    };
    CUmemGenericAllocationHandle h;

    need(driver.create(&h, RANGE, &prop, 0), "cuMemCreate");
    return h;
}

static CUdeviceptr reserve(void)
{
    CUdeviceptr at;

    need(driver.reserve(&at, RANGES * RANGE, 0, 0, 0), "cuMemAddressReserve");
    return at;
}

static CUresult allow(CUdeviceptr at)
{
    CUmemAccessDesc desc[2];

    for (int i = 0; i <= owner; i++)
        desc[i] = (CUmemAccessDesc){ .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
                                                   .id = i },
                                     .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    return driver.access(at, RANGE, desc, (size_t)owner + 1);
}

static void map(CUdeviceptr at, CUmemGenericAllocationHandle h)
{
    need(driver.map(at, RANGE, 0, h, 0), "cuMemMap");
    need(allow(at), "cuMemSetAccess");
}

/* New memory, that lives as long as it is mapped. */
static void map_new(CUdeviceptr at)
{
    CUmemGenericAllocationHandle h = create();

    map(at, h);
    need(driver.release(h), "cuMemRelease");
}

static void unmap(CUdeviceptr at)
{
    need(driver.unmap(at, RANGE), "cuMemUnmap");
}

/* 0: the driver gives none. */
static unsigned long long id(CUdeviceptr at)
{
    unsigned long long value = 0;

    if (driver.attribute(&value, CU_POINTER_ATTRIBUTE_BUFFER_ID, at) != CUDA_SUCCESS)
        return 0;
    return value;
}

static int has_handle(CUdeviceptr at)
{
    int value = -1;

    need(driver.attribute(&value, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at),
         "cuPointerGetAttribute");
    return value;
}

/* ---- Ids ------------------------------------------------------------------------- */

static void ids(void)
{
    CUdeviceptr at = reserve(), other = reserve(), second = at + RANGE, base = 0;
    unsigned long long first, before, after, twice;
    CUmemGenericAllocationHandle h;
    size_t bytes = 0;
    void *plain = mu_gpu_alloc(RANGE);

    map_new(at);
    map_new(second);
    first = id(at);
    before = id(second);
    printf("# ids: of two ranges %llu and %llu, of cudaMalloc %llu\n", first, before,
           id((CUdeviceptr)(uintptr_t)plain));
    verify(first != 0 && before != 0 && first != before,
           "ranges behind each other have buffer ids of their own");
    verify(id(second + RANGE - 1) == before, "a range has one buffer id");
    need(driver.range(&base, &bytes, second + RANGE / 2), "cuMemGetAddressRange");
    verify(base == second && bytes == RANGE, "the range of an address is one mapping");
    verify(has_handle(at) == 0 && has_handle((CUdeviceptr)(uintptr_t)plain) == 1,
           "virtual memory has no IPC handle, that of cudaMalloc has one");

    unmap(second);
    printf("# id of an address without memory: %llu\n", id(second));
    verify(id(second) != before, "without memory, the buffer id is not the old one");
    h = create();
    map(second, h);
    after = id(second);
    printf("# other memory at the second range: id %llu, the first has %llu\n", after,
           id(at));
    verify(after != 0 && after != before && after != first && id(at) == first,
           "other memory at an address has another buffer id, its neighbour the same");

    map(other, h);
    twice = id(other);
    unmap(second);
    map(second, h);
    printf("# the same memory: id %llu at first, %llu at another address too, %llu "
           "when mapped again\n",
           after, twice, id(second));
    unmap(other);
    unmap(second);
    map_new(second); /* while its handle is kept, the memory before lives on */
    verify(id(second) != after, "other memory again has another buffer id");
    need(driver.release(h), "cuMemRelease");
    unmap(second);
    unmap(at);
    mu_gpu_free(plain);
}

/* ---- Mappings -------------------------------------------------------------------- */

static bool has(CUdeviceptr at, int byte)
{
    unsigned char got[64];

    mu_gpu_get(got, (void *)(uintptr_t)at, sizeof got);
    for (size_t i = 0; i < sizeof got; i++)
        if (got[i] != byte)
            return false;
    return true;
}

static void fill(CUdeviceptr at, int byte)
{
    mu_gpu_check(cudaMemset((void *)(uintptr_t)at, byte, RANGE), "cudaMemset");
    mu_gpu_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

/* The memory at `at`, by a file descriptor as a peer has it. */
static CUmemGenericAllocationHandle sent(CUdeviceptr at)
{
    CUmemGenericAllocationHandle h, got;
    int fd = -1;

    need(driver.retain(&h, (void *)(uintptr_t)at), "cuMemRetainAllocationHandle");
    need(driver.give(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
         "cuMemExportToShareableHandle");
    need(driver.release(h), "cuMemRelease");
    need(driver.take(&got, (void *)(intptr_t)fd,
                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
         "cuMemImportFromShareableHandle");
    close(fd);
    return got;
}

static void mappings(void)
{
    CUdeviceptr at = reserve(), window = reserve();
    CUmemGenericAllocationHandle h;
    CUresult rc;

    map_new(at);
    fill(at, 1);
    h = sent(at);
    map(window, h);
    need(driver.release(h), "cuMemRelease");
    verify(has(window, 1), "a mapping by file descriptor has the memory");
    unmap(at);
    map_new(at);
    fill(at, 2);
    verify(has(window, 1), "it keeps the memory, when its owner has other memory");
    h = sent(at);
    rc = driver.map(window, RANGE, 0, h, 0);
    printf("# cuMemMap where another range is mapped: %d\n", (int)rc);
    verify(rc != CUDA_SUCCESS && has(window, 1),
           "addresses that are mapped cannot be mapped again");
    unmap(window);
    map(window, h);
    need(driver.release(h), "cuMemRelease");
    verify(has(window, 2), "behind the unmapping they can");
    unmap(window);
    unmap(at);
}

/* As a call keeps it, when the program frees it before it is sent. */
static void kept_handle(void)
{
    CUdeviceptr at = reserve(), window = reserve();
    CUmemGenericAllocationHandle h, got;
    int fd = -1;
    CUresult rc;

    map_new(at);
    fill(at, 4);
    need(driver.retain(&h, (void *)(uintptr_t)at), "cuMemRetainAllocationHandle");
    unmap(at);
    rc = driver.give(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    need(driver.release(h), "cuMemRelease");
    if (rc == CUDA_SUCCESS) {
        need(driver.take(&got, (void *)(intptr_t)fd,
                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
             "cuMemImportFromShareableHandle");
        close(fd);
        map(window, got);
        need(driver.release(got), "cuMemRelease");
    }
    verify(rc == CUDA_SUCCESS && has(window, 4),
           "a handle of a range keeps the memory when the range is unmapped");
    if (rc == CUDA_SUCCESS)
        unmap(window);
}

/* ---- Handles beside unmapping ---------------------------------------------------- */

#define ROUNDS 3000

static CUdeviceptr raced;
static atomic_bool race_ends;
static unsigned long retained, no_range, no_descriptor, no_release;

static void *ask_for_handles(void *arg)
{
    mu_gpu_check(cudaSetDevice(0), "cudaSetDevice");
    while (!atomic_load(&race_ends)) {
        CUmemGenericAllocationHandle h;
        int fd = -1;

        if (driver.retain(&h, (void *)(uintptr_t)raced) != CUDA_SUCCESS) {
            no_range++;
            continue;
        }
        retained++;
        no_descriptor += driver.give(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                     0) != CUDA_SUCCESS;
        if (fd >= 0)
            close(fd);
        no_release += driver.release(h) != CUDA_SUCCESS;
    }
    return arg;
}

static void race(void)
{
    size_t before, after;
    pthread_t thread;

    raced = reserve();
    map_new(raced);
    before = mu_gpu_free_bytes();
    alarm(20);
    if (pthread_create(&thread, NULL, ask_for_handles, NULL) != 0)
        exit(1);
    for (int i = 0; i < ROUNDS; i++) {
        unmap(raced);
        map_new(raced);
    }
    atomic_store(&race_ends, true);
    pthread_join(thread, NULL);
    alarm(0);
    after = mu_gpu_free_bytes();
    printf("# %d times unmapped and mapped: %lu handles, %lu times no range; %lu "
           "handles gave no descriptor, %lu were not released; %zd MiB are lost\n",
           ROUNDS, retained, no_range, no_descriptor, no_release,
           ((ssize_t)before - (ssize_t)after) / (1 << 20));
    verify(true, "handles beside unmapping: the driver goes on");
    unmap(raced);
}

/* ---- Under a running kernel ------------------------------------------------------ */

static double since(double *from)
{
    double now = mu_clock_s(), ms = (now - *from) * 1e3;

    *from = now;
    return ms;
}

static void under_a_kernel(void)
{
    CUdeviceptr at = reserve(), used = at + RANGE;
    CUmemGenericAllocationHandle h;
    void *stream = mu_gpu_stream();
    double t, map_ms, access_ms, unmap_ms;
    bool running;

    map_new(at);
    map_new(used);
    fill(used, 3);
    h = sent(at);
    unmap(at);
    mu_gpu_sync(stream);
    mu_gpu_spin(SPIN_US, stream);
    t = mu_clock_s();
    need(driver.map(at, RANGE, 0, h, 0), "cuMemMap");
    map_ms = since(&t);
    need(allow(at), "cuMemSetAccess");
    access_ms = since(&t);
    running = cudaStreamQuery(stream) == cudaErrorNotReady;
    unmap(used);
    unmap_ms = since(&t);
    printf("# under a kernel of %.0f ms: cuMemMap %.2f ms, cuMemSetAccess %.2f, "
           "cuMemUnmap %.2f (and the kernel %s)\n",
           SPIN_US / 1e3, map_ms, access_ms, unmap_ms,
           cudaStreamQuery(stream) == cudaErrorNotReady ? "runs on" : "has ended");
    cudaGetLastError();
    verify(running && map_ms + access_ms < AT_ONCE_MS,
           "memory is mapped while a kernel runs");
    mu_gpu_sync(stream);
    need(driver.release(h), "cuMemRelease");
    unmap(at);
}

int main(int argc, char **argv)
{
    int n = mu_gpu_count();

    if (n < 1) {
        printf("1..0 # SKIP no GPU\n");
        return 0;
    }
    owner = n > 1;
    mu_gpu_check(cudaSetDevice(0), "cudaSetDevice");
    mu_gpu_check(cudaFree(NULL), "a context");
    find_all();
    if (owner) {
        int can = 0;

        mu_gpu_check(cudaDeviceCanAccessPeer(&can, 0, owner),
                     "cudaDeviceCanAccessPeer");
        owner = can ? owner : 0;
    }
    printf("# memory of GPU %d, kernels on GPU 0\n", owner);
    if (argc > 1 && strcmp(argv[1], "race") == 0) {
        race();
    } else {
        ids();
        mappings();
        kept_handle();
        under_a_kernel();
    }
    printf("1..%d\n", tests);
    return failures ? 1 : 0;
}
