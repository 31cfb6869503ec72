/* SPDX-License-Identifier: BSD-3-Clause */
/* tuner_abi.h - NCCL's tuner interfaces 2 to 6, as far as the plugin needs them
 *
 * NCCL looks up the symbols ncclTunerPlugin_v6 to ncclTunerPlugin_v2, and takes the
 * newest that it can use. Its sources document them: src/include/plugin/tuner/
 * tuner_vN.h, and ext-tuner/README.md. Every function returns ncclSuccess, 0.
 *
 *   interface   what changed
 *   2           the plugin names algorithm and protocol
 *   3           the plugin changes a table of costs instead
 *   4           whether the buffers are registered
 *   5           init gets more, of which nothing is used here
 *   6           a chunk size, NULL: NCCL's
 */
#ifndef MU_TUNER_ABI_H
#define MU_TUNER_ABI_H

#include <stddef.h>
#include <stdint.h>

/* Entry of the cost table that cannot be used. */
#define MU_NCCL_IGNORE (-1.0f)

typedef void (*mu_nccl_tuner_logger)(int level, unsigned long flags, const char *file,
                                     int line, const char *fmt, ...);
typedef int (*mu_nccl_tuner_init)(size_t ranks, size_t nodes,
                                  mu_nccl_tuner_logger logger, void **context);
/* nvl: the NVLink domains; constants: of NCCL's own model */
typedef int (*mu_nccl_tuner_init5)(void **context, uint64_t comm, size_t ranks,
                                   size_t nodes, mu_nccl_tuner_logger logger, void *nvl,
                                   void *constants);
/* costs: algorithms times protocols of them, in one piece in spite of its type */
typedef int (*mu_nccl_tuner_info4)(void *context, int func, size_t bytes, int ops,
                                   float **costs, int algos, int protos, int registered,
                                   int *channels);

struct mu_nccl_tuner2 {
    const char *name;
    mu_nccl_tuner_init init;
    int (*info)(void *context, int func, size_t bytes, int collnet, int nvls, int ops,
                int *algo, int *proto, int *channels);
    int (*destroy)(void *context);
};

struct mu_nccl_tuner3 {
    const char *name;
    mu_nccl_tuner_init init;
    int (*info)(void *context, int func, size_t bytes, int ops, float **costs,
                int algos, int protos, int *channels);
    int (*destroy)(void *context);
};

struct mu_nccl_tuner4 {
    const char *name;
    mu_nccl_tuner_init init;
    mu_nccl_tuner_info4 info;
    int (*destroy)(void *context);
};

struct mu_nccl_tuner5 {
    const char *name;
    mu_nccl_tuner_init5 init;
    mu_nccl_tuner_info4 info;
    int (*finalize)(void *context);
};

struct mu_nccl_tuner6 {
    const char *name;
    mu_nccl_tuner_init5 init;
    mu_nccl_tuner_info4 info;
    int (*finalize)(void *context);
    int (*chunk)(void *context, int func, size_t bytes, int algo, int proto,
                 int channels, size_t *size);
};

#endif
