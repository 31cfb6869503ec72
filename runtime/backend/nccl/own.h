/* SPDX-License-Identifier: BSD-3-Clause */
/* own.h - memory that the program allocated: mapped by the peers, closed when it is
 * freed (own_table.h has the flow)
 *
 * A call only looks the buffers up. The watch thread asks CUDA for handles, opens and
 * closes mappings. Until all peers have mapped an allocation, the kernel stages it.
 */
#ifndef MU_NCCL_OWN_H
#define MU_NCCL_OWN_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>

#include "runtime/base/err.h"
#include "runtime/backend/nccl/kernels/kernels.h"
#include "runtime/backend/nccl/own_table.h"
#include "runtime/backend/nccl/virtual.h"

struct mu_nccl_backend;

/* Memory that the program allocated. The ranks agree on `open`. */
struct mu_own {
    bool open;
    bool for_virtual; /* a rank's program asks for virtual memory; the same on all */
    pthread_mutex_t entries; /* of the table, refused, sent and kept */
    pthread_mutex_t work;    /* held while mappings change */
    struct mu_own_table table;
    bool refused[MU_OWN_SLOTS]; /* CUDA gives no handle */
    uint8_t sent[MU_OWN_SLOTS]; /* peers that have the descriptor, as bits */
    struct mu_virtual virtual_memory;
    bool left; /* a peer has closed its socket: no more of it is sent */
    CUmemGenericAllocationHandle kept[MU_OWN_SLOTS]; /* of it, to be sent; 0: none */
    struct mu_own_map *mirror, *map;                 /* on the host and on the device */
    cudaStream_t stream;                             /* copies the one to the other */
    unsigned scan;                                   /* the next entry to check */
    uint32_t waiting;     /* mu_host_words.waiting, a poll ago */
    unsigned waited;      /* polls behind each other that found a wait */
    atomic_uint launched; /* blocks of counted launches */
    uint32_t before;      /* those before the last mapping */
    PFN_cuPointerGetAttribute_v4000 attribute;
    PFN_cuMemGetAddressRange_v3020 range;
};

/* open is collective. launch: own_call.c; poll, for the watch thread: own_follow.c */
int mu_own_open(struct mu_nccl_backend *b, struct mu_err *err);
void mu_own_poll(struct mu_nccl_backend *b);
void mu_own_close(struct mu_nccl_backend *b);
cudaError_t mu_own_launch(struct mu_nccl_backend *b, const struct mu_work *work,
                          int blocks, bool captured);

/* For these files. mu_own_id: the buffer's id, 0 where CUDA knows none. */
uint64_t mu_own_id(const struct mu_own *o, const void *p);
bool mu_own_upload(struct mu_own *o); /* the map that the kernels read */
void mu_own_let_go(struct mu_own *o, int slot);
void mu_own_unmap(struct mu_own *o, int peer, int slot);

#endif
