/* SPDX-License-Identifier: BSD-3-Clause */
/* virtual_memory.c - memory as PyTorch's expandable segments have it */
#include "tests/gpu/virtual_memory.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/backend/nccl/driver.h"

#define MIB ((size_t)1 << 20)
#define SMALL (2 * MIB)  /* bytes of a range, where the memory has few */
#define LARGE (20 * MIB) /* or many */
#define MOST 1024        /* memories at a time */

static struct {
    PFN_cuMemCreate_v10020 create;
    PFN_cuMemRelease_v10020 release;
    PFN_cuMemAddressReserve_v10020 reserve;
    PFN_cuMemMap_v10020 map;
    PFN_cuMemUnmap_v10020 unmap;
    PFN_cuMemSetAccess_v10020 access;
    PFN_cuPointerGetAttribute_v4000 attribute;
} driver;

static struct memory {
    CUdeviceptr at;
    size_t bytes, range;
    bool used;
    unsigned freed; /* when */
} memories[MOST];
static unsigned clock_;

static void need(CUresult rc, const char *what)
{
    if (rc == CUDA_SUCCESS)
        return;
    fprintf(stderr, "# %s: CUDA driver error %d\n", what, (int)rc);
    exit(1);
}

static void find(const char *name, unsigned version, void *at)
{
    if (!mu_driver_find(name, version, at)) {
        fprintf(stderr, "# the driver has no %s\n", name);
        exit(1);
    }
}

static void find_all(void)
{
    if (driver.create)
        return;
    cudaFree(NULL); /* a context */
    find("cuMemCreate", 10020, &driver.create);
    find("cuMemRelease", 10020, &driver.release);
    find("cuMemAddressReserve", 10020, &driver.reserve);
    find("cuMemMap", 10020, &driver.map);
    find("cuMemUnmap", 10020, &driver.unmap);
    find("cuMemSetAccess", 10020, &driver.access);
    find("cuPointerGetAttribute", 4000, &driver.attribute);
}

/* Addresses that were freed last, or new ones. */
static struct memory *addresses(size_t bytes, size_t range)
{
    struct memory *m = NULL;

    for (int i = 0; i < MOST; i++) {
        struct memory *k = &memories[i];

        if (k->at && !k->used && k->bytes == bytes && k->range == range &&
            (!m || k->freed > m->freed))
            m = k;
    }
    for (int i = 0; i < MOST && !m; i++)
        if (!memories[i].at) {
            m = &memories[i];
            *m = (struct memory){ .bytes = bytes, .range = range };
            need(driver.reserve(&m->at, bytes, 0, 0, 0), "cuMemAddressReserve");
        }
    if (!m) {
        fprintf(stderr, "# too much virtual memory\n");
        exit(1);
    }
    m->used = true;
    return m;
}

void *virtual_new(size_t bytes)
{
    size_t range = bytes > LARGE / 2 ? LARGE : SMALL;
    CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes =
                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location.type = CU_MEM_LOCATION_TYPE_DEVICE };
    CUmemAccessDesc access = { .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    struct memory *m;

    find_all();
    cudaGetDevice(&prop.location.id);
    access.location = prop.location;
    bytes = (bytes + range - 1) / range * range;
    m = addresses(bytes, range);
    for (size_t at = 0; at < bytes; at += range) {
        CUmemGenericAllocationHandle h;

        need(driver.create(&h, range, &prop, 0), "cuMemCreate");
        need(driver.map(m->at + at, range, 0, h, 0), "cuMemMap");
        need(driver.release(h), "cuMemRelease");
    }
    need(driver.access(m->at, bytes, &access, 1), "cuMemSetAccess");
    return (void *)(uintptr_t)m->at;
}

int virtual_delete(void *p)
{
    for (int i = 0; i < MOST; i++) {
        struct memory *m = &memories[i];

        if (!p || !m->used || m->at != (CUdeviceptr)(uintptr_t)p)
            continue;
        cudaDeviceSynchronize();
        for (size_t at = 0; at < m->bytes; at += m->range)
            need(driver.unmap(m->at + at, m->range), "cuMemUnmap");
        m->used = false;
        m->freed = ++clock_;
        return 1;
    }
    return 0;
}

long virtual_ranges(const void *p)
{
    for (int i = 0; i < MOST; i++)
        if (p && memories[i].used && memories[i].at == (CUdeviceptr)(uintptr_t)p)
            return (long)(memories[i].bytes / memories[i].range);
    return 0;
}

unsigned long long virtual_id(const void *p)
{
    unsigned long long id = 0;

    find_all();
    need(driver.attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                          (CUdeviceptr)(uintptr_t)p),
         "cuPointerGetAttribute");
    return id;
}
