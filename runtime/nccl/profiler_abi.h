/* SPDX-License-Identifier: BSD-3-Clause */
/* profiler_abi.h - NCCL's profiler interfaces 1 to 7, as far as the plugin needs them
 *
 * NCCL looks up the symbols ncclProfiler_v7 to ncclProfiler_v1, and takes the newest
 * that it can use. Its sources document the layouts: src/include/plugin/profiler/
 * profiler_vN.h, and ext-profiler/README.md for the order of the calls. No header of an
 * installed NCCL has them.
 *
 *   interface   since NCCL   what changed
 *   1           2.23         names are numbers
 *   2           2.24         names are strings
 *   3           2.26         events of kernel channels
 *   4           2.27         init gets the communicator; channels have GPU times
 *   5           2.28         the type has 64 bits; init gets the communicator first
 *   6           2.30         more types behind those used here
 *   7           2.32         more fields behind those used here
 */
#ifndef MU_PROFILER_ABI_H
#define MU_PROFILER_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Types of events, bits of the activation mask. */
#define MU_NCCL_EVENT_GROUP (1 << 0)
#define MU_NCCL_EVENT_COLL (1 << 1)
#define MU_NCCL_EVENT_CHANNEL (1 << 6)
#define MU_NCCL_EVENT_GROUP_API (1 << 8) /* from interface 5 on */
#define MU_NCCL_EVENT_COLL_API (1 << 9)

/* The state in which a channel's event has the time of its end. */
#define MU_NCCL_STATE_CHANNEL_STOP 22

/* A descriptor's beginning is the same in all interfaces: the type (8 bits, 64 from
 * interface 5 on), the parent's handle, the rank. The rest is a union from byte 24 on.
 */
struct mu_nccl_descr {
    union {
        uint8_t narrow;
        uint64_t wide;
    } type;
    void *parent;
    int rank;
    uint32_t padding;
    union {
        struct { /* interface 1: algo and proto follow as numbers */
            const char *comm_name;
            uint64_t comm_hash, sequence;
            uint8_t func;
            void *buffers[2];
            size_t count;
            int root;
            uint8_t dtype;
            uint32_t op;
            size_t traffic;
            uint8_t channels, warps, algo, proto;
        } coll1;
        struct {
            const char *comm_name;
            uint64_t comm_hash, sequence;
            const char *func;
            void *buffers[2];
            size_t count;
            int root;
            const char *dtype;
            size_t traffic; /* gone in interface 3 */
            uint8_t channels, warps;
            const char *algo, *proto;
        } coll2;
        struct {
            const char *comm_name;
            uint64_t comm_hash, sequence;
            const char *func;
            void *buffers[2];
            size_t count;
            int root;
            const char *dtype;
            uint8_t channels, warps;
            const char *algo, *proto;
        } coll3;
        struct { /* 4 to 7 */
            uint64_t sequence;
            const char *func;
            void *buffers[2];
            size_t count;
            int root;
            const char *dtype;
            uint8_t channels, warps;
            const char *algo, *proto;
        } coll4;
        struct { /* 5 to 7 */
            bool captured;
        } group_api;
        struct { /* 3 to 7; start: from 4 on */
            uint8_t id;
            uint64_t start; /* ns of the GPU's clock */
        } channel;
    } u;
};

/* What comes with a state; NULL for some. Interfaces 4 to 7. */
union mu_nccl_state {
    uint64_t stop; /* of a channel, ns of the GPU's clock */
    uint64_t padding;
};

_Static_assert(offsetof(struct mu_nccl_descr, u) == 24, "where the union begins");
_Static_assert(offsetof(struct mu_nccl_descr, u.coll1.proto) == 107, "interface 1");
_Static_assert(offsetof(struct mu_nccl_descr, u.coll2.proto) == 120, "interface 2");
_Static_assert(offsetof(struct mu_nccl_descr, u.coll3.proto) == 112, "interface 3");
_Static_assert(offsetof(struct mu_nccl_descr, u.coll4.proto) == 96, "interface 4");
_Static_assert(offsetof(struct mu_nccl_descr, u.channel.start) == 32, "a channel");

typedef void (*mu_nccl_logger)(int level, unsigned long flags, const char *file,
                               int line, const char *fmt, ...);
typedef int (*mu_nccl_start)(void *context, void **handle, struct mu_nccl_descr *descr);
typedef int (*mu_nccl_stop)(void *handle);
typedef int (*mu_nccl_record)(void *handle, int state, union mu_nccl_state *args);
typedef int (*mu_nccl_finalize)(void *context);

/* Each returns ncclSuccess, 0. */
struct mu_nccl_profiler1 { /* 1 to 3 */
    const char *name;
    int (*init)(void **context, int *mask);
    mu_nccl_start start;
    mu_nccl_stop stop;
    mu_nccl_record record;
    mu_nccl_finalize finalize;
};

struct mu_nccl_profiler4 {
    const char *name;
    int (*init)(void **context, int *mask, const char *comm_name, uint64_t comm_hash,
                int nodes, int size, int rank, mu_nccl_logger logger);
    mu_nccl_start start;
    mu_nccl_stop stop;
    mu_nccl_record record;
    mu_nccl_finalize finalize;
};

struct mu_nccl_profiler5 { /* 5 to 7 */
    const char *name;
    int (*init)(void **context, uint64_t comm_hash, int *mask, const char *comm_name,
                int nodes, int size, int rank, mu_nccl_logger logger);
    mu_nccl_start start;
    mu_nccl_stop stop;
    mu_nccl_record record;
    mu_nccl_finalize finalize;
};

#endif
