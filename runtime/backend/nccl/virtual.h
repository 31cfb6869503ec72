/* SPDX-License-Identifier: BSD-3-Clause */
/* virtual.h - virtual memory of a program (cuMemCreate, cuMemMap; PyTorch's expandable
 * segments) in the peers' address spaces
 *
 *   owner, in a call      range -> handle, which keeps the memory until it is sent
 *   owner, watch thread   handle -> file descriptor -> the peers' sockets
 *   peer, watch thread    socket -> kept until the owner's board announces the range ->
 *                         mapped
 *
 * A buffer may lie in several ranges. So a peer maps all ranges of one owner as far
 * from each other as they are there: each of its windows stands for a part of the
 * owner's addresses. Where the owner has freed a range and mapped another one at its
 * addresses, the peer unmaps the old one before, and answers later.
 */
#ifndef MU_NCCL_VIRTUAL_H
#define MU_NCCL_VIRTUAL_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/backend/nccl/descriptors.h"
#include "runtime/backend/nccl/own_table.h"
#include "runtime/base/log.h"

#define MU_WINDOW ((uint64_t)1 << 39) /* bytes, and their alignment at the owner */
#define MU_WINDOWS 16                 /* of one peer */

/* A descriptor that a peer has sent, by its slot. */
struct mu_virtual_sent {
    uint32_t generation; /* 0: none */
    int fd;              /* -1: lost */
    uint64_t base, bytes;
};

/* A peer's range as it is mapped here, by its slot. */
struct mu_virtual_range {
    CUdeviceptr at;
    size_t bytes; /* 0: none */
};

struct mu_virtual {
    bool found;  /* the driver has these calls */
    bool usable; /* all ranks have mapped a trial range */
    int device;
    const struct mu_log *log; /* at debug, the calls that fail */
    struct mu_descriptors link;
    struct mu_virtual_sent (*sent)[MU_OWN_SLOTS]; /* by peer */
    int waiting;                                  /* descriptors among them */
    struct mu_virtual_range (*mapped)[MU_OWN_SLOTS];
    struct {
        uint64_t number;
        CUdeviceptr at; /* 0: none */
    } window[MU_OWN_PEERS][MU_WINDOWS];
    int trial; /* descriptor of a range, -1: none */
    PFN_cuMemCreate_v10020 create;
    PFN_cuMemRelease_v10020 release;
    PFN_cuMemRetainAllocationHandle_v11000 retain;
    PFN_cuMemExportToShareableHandle_v10020 give;
    PFN_cuMemImportFromShareableHandle_v10020 take;
    PFN_cuMemAddressReserve_v10020 reserve;
    PFN_cuMemAddressFree_v10020 unreserve;
    PFN_cuMemMap_v10020 map;
    PFN_cuMemUnmap_v10020 unmap;
    PFN_cuMemSetAccess_v10020 access;
};

/* This rank's part; *mine is for the others. Where virtual memory cannot be shared from
 * here, mine->len is 0.
 */
void mu_virtual_open(struct mu_virtual *v, int device, const struct mu_log *log,
                     struct mu_descriptor_address *mine);
/* All ranks have addresses: send each other a range and map it. True: all of the peers'
 * are mapped within `seconds`.
 */
bool mu_virtual_try(struct mu_virtual *v, int rank, int n,
                    const struct mu_descriptor_address *all, double seconds);
void mu_virtual_close(struct mu_virtual *v);

/* [in a call] A handle of the range at `base`; 0: it has none. Only there the program
 * cannot unmap the range: cuMemRetainAllocationHandle beside cuMemUnmap of the same
 * range returned handles that could not be exported (driver 580).
 */
CUmemGenericAllocationHandle mu_virtual_keep(const struct mu_virtual *v,
                                             uintptr_t base);
void mu_virtual_let_go(const struct mu_virtual *v, CUmemGenericAllocationHandle kept);
/* Send the range to the peers whose bit is not in *sent, and set it. kept: borrowed. */
enum mu_sent mu_virtual_send(struct mu_virtual *v, int slot, uint32_t generation,
                             const struct mu_own_allocation *at,
                             CUmemGenericAllocationHandle kept, uint8_t *sent);
/* Keep what the peers have sent; drop what they have retired since. */
void mu_virtual_receive(struct mu_virtual *v, const struct mu_own_table *t);
/* Map what `peer` has sent of the slot. False: not now, because it is not there yet, or
 * what was at these addresses before is still mapped. *at NULL: it cannot be mapped.
 */
bool mu_virtual_map(struct mu_virtual *v, int peer, int slot, uint32_t generation,
                    char **at);
/* False: nothing of the slot is mapped. */
bool mu_virtual_unmap(struct mu_virtual *v, int peer, int slot);
/* Are the bytes at `base` of an owner in one window of its peers? */
bool mu_virtual_in_window(uintptr_t base, size_t bytes);

#endif
