/* SPDX-License-Identifier: BSD-3-Clause */
/* serve.h - what backend_nccl.so does for a program that calls NCCL
 *
 * All of it for a backend that was opened with the program's communicator. One thread
 * at a time calls it.
 */
#ifndef MU_SERVE_H
#define MU_SERVE_H

#include "runtime/backend/backend.h"

/* One of Muster's two ways at one size, of float32, beside NCCL. */
struct mu_trial {
    enum mu_coll_kind kind; /* all-reduce, reduce-scatter, all-gather or broadcast */
    bool mapped;            /* the way, as for carry */
    size_t bytes;           /* of the larger buffer */
    bool
        graph; /* the GPU's time alone, as in a graph; else with that of the launches */
    float us, nccl_us; /* one call on this rank; 0: not measured */
};

/* NCCL's own call of c on c->stream, which carry does not change. 0: it was started. */
typedef int mu_nccl_call_fn(void *arg, const struct mu_coll *c);

struct mu_nccl_serve {
    /* An all-reduce, reduce-scatter, all-gather or broadcast on coll->stream, which may
     * be captured. Of the last two count are bytes, whatever the dtype. mapped: on
     * memory that the peers map, for large ones; else by one-shot. *carried is false on
     * all ranks where that way is not open or not made for the size: NCCL has to do it.
     */
    int (*carry)(struct mu_backend *b, const struct mu_coll *coll, bool mapped,
                 bool *carried, struct mu_err *err);
    /* Collective, with the same n trials on all ranks: fills the times. Sizes for which
     * a rank has no memory are left out on all. Blocks.
     */
    int (*measure)(struct mu_backend *b, struct mu_trial *trials, int n,
                   mu_nccl_call_fn *nccl, void *arg, struct mu_err *err);
    /* "NVIDIA H200 0000:1b:00.0, CUDA 13000": this rank's GPU and driver, and whether
     * the peers map memory.
     */
    int (*describe)(const struct mu_backend *b, char *text, size_t len,
                    struct mu_err *err);
};

extern const struct mu_nccl_serve mu_nccl_serve; /* found with dlsym */

#endif
