/* SPDX-License-Identifier: BSD-3-Clause */
/* virtual.c - virtual memory of a program in the peers' address spaces */
#include "runtime/backend/nccl/virtual.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/backend/nccl/driver.h"
#include "runtime/base/clock.h"

#define TRIAL_BYTES ((size_t)2 << 20)

/* Before a descriptor. */
struct note {
    uint32_t slot, generation;
    uint64_t base, bytes;
};

/* ---- The driver's calls ---------------------------------------------------------- */

static bool find(const struct mu_virtual *v, const char *name, unsigned version,
                 void *at)
{
    bool ok = mu_driver_find(name, version, at);

    if (!ok)
        mu_log(v->log, MU_LOG_DEBUG, "nccl: the driver has no %s", name);
    return ok;
}

static bool find_all(struct mu_virtual *v)
{
    return find(v, "cuMemCreate", 10020, &v->create) &&
           find(v, "cuMemRelease", 10020, &v->release) &&
           find(v, "cuMemRetainAllocationHandle", 11000, &v->retain) &&
           find(v, "cuMemExportToShareableHandle", 10020, &v->give) &&
           find(v, "cuMemImportFromShareableHandle", 10020, &v->take) &&
           find(v, "cuMemAddressReserve", 10020, &v->reserve) &&
           find(v, "cuMemAddressFree", 10020, &v->unreserve) &&
           find(v, "cuMemMap", 10020, &v->map) &&
           find(v, "cuMemUnmap", 10020, &v->unmap) &&
           find(v, "cuMemSetAccess", 10020, &v->access);
}

static bool worked(const struct mu_virtual *v, CUresult rc, const char *what)
{
    if (rc != CUDA_SUCCESS)
        mu_log(v->log, MU_LOG_DEBUG, "nccl: virtual memory: %s failed (%d)", what,
               (int)rc);
    return rc == CUDA_SUCCESS;
}

/* -1: it cannot be shared. The descriptor keeps the memory until it is closed. */
static int descriptor_of(const struct mu_virtual *v, CUmemGenericAllocationHandle h)
{
    int fd = -1;

    return worked(v, v->give(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                  "cuMemExportToShareableHandle")
               ? fd
               : -1;
}

/* Map a peer's memory at `at`, in reserved addresses. The mapping keeps the memory. */
static bool attach(const struct mu_virtual *v, int fd, CUdeviceptr at, size_t bytes)
{
    const CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
                                                   .id = v->device },
                                     .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    CUmemGenericAllocationHandle h;
    bool mapped;

    if (!worked(
            v,
            v->take(&h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            "cuMemImportFromShareableHandle"))
        return false;
    mapped = worked(v, v->map(at, bytes, 0, h, 0), "cuMemMap");
    v->release(h);
    if (mapped && !worked(v, v->access(at, bytes, &access, 1), "cuMemSetAccess")) {
        v->unmap(at, bytes);
        mapped = false;
    }
    return mapped;
}

/* ---- Open: does it work here? ---------------------------------------------------- */

static int trial_make(const struct mu_virtual *v)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = v->device }
    };
    CUmemGenericAllocationHandle h;
    int fd;

    if (!worked(v, v->create(&h, TRIAL_BYTES, &prop, 0), "cuMemCreate"))
        return -1;
    fd = descriptor_of(v, h);
    v->release(h);
    return fd;
}

void mu_virtual_open(struct mu_virtual *v, int device, const struct mu_log *log,
                     struct mu_descriptor_address *mine)
{
    *v = (struct mu_virtual){
        .device = device, .log = log, .link = { .fd = -1 }, .trial = -1
    };
    *mine = (struct mu_descriptor_address){ .len = 0 };
    v->found = find_all(v);
    if (v->found)
        v->trial = trial_make(v);
    if (v->trial >= 0) {
        v->sent = calloc(MU_OWN_PEERS, sizeof *v->sent);
        v->mapped = calloc(MU_OWN_PEERS, sizeof *v->mapped);
    }
    if (v->sent && v->mapped)
        mu_descriptors_open(&v->link, mine);
}

static bool trial_map(const struct mu_virtual *v, int fd)
{
    CUdeviceptr at = 0;
    bool ok;

    if (!worked(v, v->reserve(&at, MU_WINDOW, 0, 0, 0), "cuMemAddressReserve"))
        return false;
    ok = attach(v, fd, at, TRIAL_BYTES);
    if (ok)
        v->unmap(at, TRIAL_BYTES);
    v->unreserve(at, MU_WINDOW);
    return ok;
}

static bool trial_send(const struct mu_virtual *v)
{
    const struct note note = { .bytes = TRIAL_BYTES };

    for (int p = 0; p < v->link.n; p++)
        if (p != v->link.rank &&
            mu_descriptors_send(&v->link, p, &note, sizeof note, v->trial) != MU_SENT)
            return false;
    return true;
}

static bool trial_take(const struct mu_virtual *v, double seconds)
{
    double end = mu_clock_s() + seconds, left;
    int missing = v->link.n - 1;
    bool ok = true;

    while (missing > 0 && (left = end - mu_clock_s()) > 0) {
        struct note note;
        int from, fd;

        if (!mu_descriptors_await(&v->link, left))
            continue;
        while (mu_descriptors_take(&v->link, &from, &note, sizeof note, &fd)) {
            ok = fd >= 0 && trial_map(v, fd) && ok;
            if (fd >= 0)
                close(fd);
            missing--;
        }
    }
    return ok && missing == 0;
}

bool mu_virtual_try(struct mu_virtual *v, int rank, int n,
                    const struct mu_descriptor_address *all, double seconds)
{
    bool ok = true;

    for (int p = 0; p < n; p++)
        ok = ok && all[p].len > 0; /* all ranks see that */
    if (ok) {
        mu_descriptors_join(&v->link, rank, n, all);
        ok = trial_send(v) && trial_take(v, seconds);
    }
    if (v->trial >= 0)
        close(v->trial);
    v->trial = -1;
    return ok;
}

static void drop(struct mu_virtual *v, struct mu_virtual_sent *s)
{
    if (s->generation == 0)
        return;
    if (s->fd >= 0)
        close(s->fd);
    *s = (struct mu_virtual_sent){ .fd = -1 };
    v->waiting--;
}

void mu_virtual_close(struct mu_virtual *v)
{
    for (int p = 0; p < MU_OWN_PEERS; p++)
        for (int slot = 0; slot < MU_OWN_SLOTS; slot++) {
            if (v->sent)
                drop(v, &v->sent[p][slot]);
            mu_virtual_unmap(v, p, slot);
        }
    for (int p = 0; p < MU_OWN_PEERS; p++)
        for (int i = 0; i < MU_WINDOWS && v->window[p][i].at; i++)
            v->unreserve(v->window[p][i].at, MU_WINDOW);
    memset(v->window, 0, sizeof v->window);
    if (v->found) {
        mu_descriptors_close(&v->link);
        if (v->trial >= 0)
            close(v->trial);
        v->trial = -1;
    }
    free(v->sent);
    free(v->mapped);
    v->sent = NULL;
    v->mapped = NULL;
    v->usable = v->found = false;
}

/* ---- The owner ------------------------------------------------------------------- */

CUmemGenericAllocationHandle mu_virtual_keep(const struct mu_virtual *v, uintptr_t base)
{
    CUmemGenericAllocationHandle h = 0;

    return v->usable &&
                   worked(v, v->retain(&h, (void *)base), "cuMemRetainAllocationHandle")
               ? h
               : 0;
}

void mu_virtual_let_go(const struct mu_virtual *v, CUmemGenericAllocationHandle kept)
{
    if (kept)
        v->release(kept);
}

enum mu_sent mu_virtual_send(struct mu_virtual *v, int slot, uint32_t generation,
                             const struct mu_own_allocation *at,
                             CUmemGenericAllocationHandle kept, uint8_t *sent)
{
    const struct note note = { (uint32_t)slot, generation, at->base, at->bytes };
    enum mu_sent result = MU_SENT;
    int fd = kept ? descriptor_of(v, kept) : -1;

    if (fd < 0)
        return MU_SEND_NEVER;
    for (int p = 0; p < v->link.n && result == MU_SENT; p++) {
        if (p == v->link.rank || *sent & 1u << p)
            continue;
        result = mu_descriptors_send(&v->link, p, &note, sizeof note, fd);
        if (result == MU_SENT)
            *sent = (uint8_t)(*sent | 1u << p);
    }
    close(fd);
    return result;
}

/* ---- A peer ---------------------------------------------------------------------- */

void mu_virtual_receive(struct mu_virtual *v, const struct mu_own_table *t)
{
    struct note note;
    int from, fd;

    while (v->usable && mu_descriptors_take(&v->link, &from, &note, sizeof note, &fd)) {
        struct mu_virtual_sent *s;

        if (note.slot >= MU_OWN_SLOTS || !(note.generation & 1)) {
            if (fd >= 0)
                close(fd);
            continue;
        }
        s = &v->sent[from][note.slot];
        drop(v, s);
        *s = (struct mu_virtual_sent){ note.generation, fd, note.base, note.bytes };
        v->waiting++;
    }
    for (int p = 0; p < t->n && v->waiting > 0; p++)
        for (int slot = 0; p != t->rank && slot < MU_OWN_SLOTS; slot++) {
            struct mu_virtual_sent *s = &v->sent[p][slot];
            uint32_t now = atomic_load(&t->board[p]->slot[slot].generation);

            if (s->generation != 0 && (int32_t)(now - s->generation) > 0)
                drop(v, s);
        }
}

bool mu_virtual_in_window(uintptr_t base, size_t bytes)
{
    return base / MU_WINDOW == (base + bytes - 1) / MU_WINDOW;
}

/* The window of a peer's addresses, reserved when it is first needed; 0: none. */
static CUdeviceptr window_of(struct mu_virtual *v, int peer, uint64_t number)
{
    int i = 0;

    while (i < MU_WINDOWS && v->window[peer][i].at &&
           v->window[peer][i].number != number)
        i++;
    if (i == MU_WINDOWS)
        return 0;
    if (!v->window[peer][i].at) {
        v->window[peer][i].number = number;
        if (!worked(v, v->reserve(&v->window[peer][i].at, MU_WINDOW, 0, 0, 0),
                    "cuMemAddressReserve"))
            v->window[peer][i].at = 0;
    }
    return v->window[peer][i].at;
}

/* Is a part of [at, at + bytes) mapped, for a range that the peer had there before? */
static bool is_taken(const struct mu_virtual *v, int peer, CUdeviceptr at, size_t bytes)
{
    for (int slot = 0; slot < MU_OWN_SLOTS; slot++) {
        const struct mu_virtual_range *r = &v->mapped[peer][slot];

        if (r->bytes > 0 && r->at < at + bytes && at < r->at + r->bytes)
            return true;
    }
    return false;
}

bool mu_virtual_map(struct mu_virtual *v, int peer, int slot, uint32_t generation,
                    char **at)
{
    struct mu_virtual_sent s;
    CUdeviceptr place = 0;

    *at = NULL;
    if (!v->usable)
        return true;
    s = v->sent[peer][slot];
    if (s.generation != generation)
        return false;
    if (s.fd >= 0 && s.bytes > 0 && mu_virtual_in_window(s.base, s.bytes))
        place = window_of(v, peer, s.base / MU_WINDOW);
    if (place)
        place += s.base % MU_WINDOW;
    if (place && is_taken(v, peer, place, s.bytes))
        return false;
    if (place && attach(v, s.fd, place, s.bytes)) {
        v->mapped[peer][slot] = (struct mu_virtual_range){ place, s.bytes };
        *at = (char *)place;
    }
    drop(v, &v->sent[peer][slot]);
    return true;
}

bool mu_virtual_unmap(struct mu_virtual *v, int peer, int slot)
{
    struct mu_virtual_range *r = v->mapped ? &v->mapped[peer][slot] : NULL;

    if (!r || r->bytes == 0)
        return false;
    worked(v, v->unmap(r->at, r->bytes), "cuMemUnmap");
    *r = (struct mu_virtual_range){ .bytes = 0 };
    return true;
}
