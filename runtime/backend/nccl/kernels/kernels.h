/* SPDX-License-Identifier: BSD-3-Clause */
/* kernels.h - Muster's device code, as C functions that enqueue it on a stream
 *
 * The kernels serve the GPUs of one node that can map each other's memory. Every rank
 * makes the same sequence of calls with the same sizes and grid on one stream (or in
 * one captured graph). Flags are counters in device memory that only grow, so a
 * captured launch can be replayed.
 *
 *   one-shot  every rank sends all of its data to all others; one 16-byte store holds
 *             data and flag, so that no barrier is needed                (latency)
 *   relay     each rank owns a segment: the others push their parts of it, the owner
 *             adds and pushes the sum; lines of 128 bytes carry their flag  (middle)
 *   pull      each rank owns a segment: it reads the parts, adds, writes the sum to
 *             all; a barrier before and after                            (bandwidth)
 *   own       pull on memory that the program allocated: direct where all peers have
 *             mapped it, else staged through an area of ours       (callers' memory)
 *             One-shot and own have reduce-scatter, all-gather and broadcast too.
 *   mail      a small message from one rank to another, in packets      (messages)
 *   pipe      a large one, through an area of the receiver               (messages)
 *   copy      copy engines transfer parts and sums, kernels only add and wait: slower,
 *             but the SMs are free for the computation              (hidden buckets)
 */
#ifndef MU_NCCL_KERNELS_H
#define MU_NCCL_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/core/compress.h"
#include "runtime/core/numeric.h"
#include "runtime/muster.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "runtime/core/dtype.h"

#define MU_PEERS 8         /* most ranks of a node that the kernels serve */
#define MU_BLOCKS 32       /* most blocks of one collective */
#define MU_MAIL_MOST 32768 /* most bytes of a message between two ranks */
#define MU_MAIL_SLOT (2 * MU_MAIL_MOST)  /* bytes of it with its numbers */
#define MU_PIPE_BYTES ((size_t)32 << 20) /* of a rank's pipes, all senders' */
#define MU_PIECES 512                    /* most pieces of one pack or unpack launch */
#define MU_NONFINITE_PIECES 128          /* most pieces of one search for NaN and Inf */
#define MU_INT8_TENSORS 64               /* most tensors of one launch */
#define MU_LOWRANK_TENSORS 64

/* Mapped host memory of one rank. The host sets abort. A kernel that has waited longer
 * than its time limit stores the late rank in stuck and continues to wait. mark_begin
 * and mark_end count collectives of NCCL begun and finished inside captured graphs.
 * waiting changes about every millisecond while a kernel waits for a peer.
 */
struct mu_host_words {
    volatile uint32_t abort;
    volatile uint32_t stuck; /* local rank + 1 */
    volatile uint32_t mark_begin, mark_end;
    volatile uint32_t waiting;
};

/* Flags of one rank, in its device memory, mapped by its peers. Zeroed before use. */
struct mu_flags {
    uint32_t arrived[MU_PEERS][MU_BLOCKS]; /* pull: barriers, written by the peer */
    /* Own counters; only the block of that index accesses them. */
    uint32_t epoch[MU_BLOCKS], barrier[MU_BLOCKS];
    uint32_t barrier_arrived[MU_PEERS], barrier_epoch; /* copy: one block */
    uint32_t gone; /* copy of the host's abort word in device memory */
    /* own: a peer's send and receive buffers, with the epoch; pull: its buffer alone.
     * Written by the peer.
     */
    uint4 offer[MU_PEERS][MU_BLOCKS][2];
    uint32_t own_done; /* blocks of counted launches of own that have ended */
    /* mail, by rank: messages sent, received, and taken by it; it writes the last */
    uint32_t mailed[MU_PEERS], received[MU_PEERS], taken[MU_PEERS];
    /* pipe, by rank and block: chunks in slots; the rank writes filled and taken. Own
     * counters are sent and received.
     */
    uint32_t slots_sent[MU_PEERS][MU_BLOCKS], slots_received[MU_PEERS][MU_BLOCKS];
    uint32_t slots_filled[MU_PEERS][MU_BLOCKS], slots_taken[MU_PEERS][MU_BLOCKS];
};

/* Addresses of the peers' areas for kernels: one per backend, constant after open. */
struct mu_reach {
    int rank, n;                      /* among the ranks of this node */
    struct mu_flags *flags[MU_PEERS]; /* mapped here, including our own */
    char *packets[MU_PEERS];          /* one-shot: receive areas */
    size_t packet_slot;          /* bytes per parity and source in a receive area */
    char *lines[MU_PEERS];       /* relay: receive areas */
    size_t lines_half;           /* bytes of one parity of a receive area */
    struct mu_host_words *words; /* device address of the mapped words */
    uint64_t limit_ns;           /* a longer wait is reported */
    char *mail[MU_PEERS];        /* receive areas: two slots for each rank */
    char *pipe[MU_PEERS];        /* receive areas: a pipe for each other rank */
    size_t pipe_room;            /* bytes of a pipe */
};

/* Largest one-shot in bytes of data that a rank sends to another, for elements of that
 * size.
 */
size_t mu_one_shot_limit(const struct mu_reach *reach, size_t element);

/* A collective, and which halves of an all-reduce it has. */
enum mu_shape {
    MU_ALLREDUCE,      /* each rank adds up a segment, and stores it on all ranks */
    MU_REDUCE_SCATTER, /* each adds up its segment, and keeps it */
    MU_ALLGATHER,      /* each stores its own data on all ranks */
    MU_BROADCAST,      /* the root does */
};
static inline bool mu_shape_sums(enum mu_shape shape)
{
    return shape == MU_ALLREDUCE || shape == MU_REDUCE_SCATTER;
}

/* Sums in rank order: a reduce-scatter has the bits of an all-reduce. */
struct mu_work {
    enum mu_shape shape;
    int root;         /* of a broadcast, which alone has send: a rank of this node */
    const void *send; /* in place as in NCCL, or no overlap; aligned to the element */
    void *recv;
    /* Elements, of all-reduce: of the buffer; reduce-scatter: received by each rank.
     * Bytes, of all-gather: sent by each rank; broadcast: of the buffer.
     */
    size_t count;
    enum muster_dtype dtype; /* these three of sums alone */
    enum muster_op op;
    double scale;
};
/* Bytes of what count counts. */
static inline size_t mu_work_element(const struct mu_work *w)
{
    return mu_shape_sums(w->shape) ? mu_dtype_size(w->dtype) : 1;
}

/* blocks <= MU_BLOCKS */
cudaError_t mu_one_shot(const struct mu_reach *reach, const struct mu_work *work,
                        int blocks, int threads, cudaStream_t stream);

/* MUSTER_SUM of floating-point types only. */
bool mu_segmented_can(enum muster_dtype dtype, enum muster_op op);
/* A buffer in memory that all ranks have mapped: by rank, the mapping here of the same
 * place in its memory, and our buffer as it has mapped it.
 */
struct mu_places {
    char *peer[MU_PEERS], *there[MU_PEERS];
};
/* In place, aligned to the element. Ranks may give other places of such memory: it is
 * fastest where all give the same one, 16-byte aligned.
 */
cudaError_t mu_pull(const struct mu_reach *reach, const struct mu_places *places,
                    size_t count, enum muster_dtype dtype, double scale, int blocks,
                    cudaStream_t stream);

/* Allocations of a rank: the slots of own_table.h, then the backend's control area. */
#define MU_OWN_PLACES 513
#define MU_OWN_CONTROL (MU_OWN_PLACES - 1)

/* In device memory of each rank; the host changes it while kernels run. */
struct mu_own_map {
    uint32_t direct[MU_OWN_PLACES];      /* generation that all peers have mapped */
    char *base[MU_PEERS][MU_OWN_PLACES]; /* our mappings of the peers' allocations */
};

/* Most allocations behind each other that a buffer may touch. */
#define MU_OWN_RUN 32
/* A buffer in allocations behind each other, which the peers map behind each other too.
 * n 0: memory that no peer can map.
 */
struct mu_own_place {
    int32_t n;
    size_t offset; /* in the first one */
    struct {
        int32_t slot;
        uint32_t generation;
    } piece[MU_OWN_RUN];
};

struct mu_own_buffers {
    struct mu_own_place from, to;
    char *stage[MU_PEERS]; /* the staging areas; at least 16 KiB a rank */
    size_t stage_bytes;
    bool counted; /* its blocks count in own_done */
};
/* Sums of floating-point types; all but an all-reduce have a multiple of 16 bytes. */
bool mu_own_can(const struct mu_work *work);
cudaError_t mu_own(const struct mu_reach *reach, const struct mu_own_map *map,
                   const struct mu_work *work, const struct mu_own_buffers *buffers,
                   int blocks, cudaStream_t stream);

/* Aligned to the element, send == recv or no overlap; the area must hold the data. */
bool mu_relay_fits(const struct mu_reach *reach, size_t bytes);
cudaError_t mu_relay(const struct mu_reach *reach, const void *send, void *recv,
                     size_t count, enum muster_dtype dtype, double scale, int blocks,
                     cudaStream_t stream);

/* What this rank sends to the others, and receives from them; 0 bytes: nothing. Any
 * alignment.
 */
struct mu_mail {
    const void *out[MU_PEERS];
    void *in[MU_PEERS];
    uint32_t out_bytes[MU_PEERS], in_bytes[MU_PEERS];
};
/* A message is sent before, or in the same launch as, the one that waits for it. Unlike
 * the other kernels, only the two ranks of a message have to make the call.
 */
cudaError_t mu_mail(const struct mu_reach *reach, const struct mu_mail *mail,
                    bool sends, bool receives, cudaStream_t stream);

/* Large messages of this rank, one to each other rank and one from it; 0 bytes: none.
 * Any alignment. The receiver or the sender of one may be late.
 */
struct mu_pipe {
    const void *out[MU_PEERS];
    void *in[MU_PEERS];
    size_t out_bytes[MU_PEERS], in_bytes[MU_PEERS];
    int blocks; /* most of a message; equal on both ranks */
};
cudaError_t mu_pipe(const struct mu_reach *reach, const struct mu_pipe *pipe,
                    cudaStream_t stream);

/* Waits until all ranks of the node have reached this point of their streams. */
cudaError_t mu_peer_barrier(const struct mu_reach *reach, cudaStream_t stream);
/* own = (own + the n - 1 parts of the others, in rank order) * scale. Each part has
 * `bytes` bytes, a multiple of 16; the parts are consecutive. Floating-point types.
 */
cudaError_t mu_add_parts(const struct mu_reach *reach, void *own, const void *parts,
                         size_t bytes, enum muster_dtype dtype, double scale,
                         cudaStream_t stream);

/* buffer[i] *= scale */
cudaError_t mu_scale(void *buffer, size_t count, enum muster_dtype dtype, double scale,
                     cudaStream_t stream);

/* One tensor of a pack or unpack: `count` elements at `at`, stored from byte `offset`
 * of the bucket.
 */
struct mu_pack_piece {
    void *at;
    size_t offset, count;
};
/* n <= MU_PIECES. to_bucket: gather, otherwise scatter. Both types are equal, or one is
 * f32 and the other f16, bf16 or f64; other pairs give cudaErrorInvalidValue.
 */
cudaError_t mu_pack_launch(const struct mu_pack_piece *pieces, int n, bool to_bucket,
                           void *bucket, enum muster_dtype outside,
                           enum muster_dtype inside, double scale, cudaStream_t stream);

/* sums[0 .. MU_SQUARES-1] += the squares of count floating-point elements. The order of
 * additions depends on count alone.
 */
cudaError_t mu_squares(const void *data, size_t count, enum muster_dtype dtype,
                       double *sums, cudaStream_t stream);

/* *found = the largest mark of the pieces that contain NaN or Inf, unless it is larger
 * already. n <= MU_NONFINITE_PIECES; floating-point types.
 */
struct mu_nonfinite_piece {
    const void *at;
    size_t count;
    uint32_t mark;
};
cudaError_t mu_find_nonfinite(const struct mu_nonfinite_piece *pieces, int n,
                              enum muster_dtype dtype, uint32_t *found,
                              cudaStream_t stream);

/* One stage of int8 for n <= MU_INT8_TENSORS tensors. */
cudaError_t mu_int8_launch(enum mu_int8_stage stage,
                           const struct mu_int8_tensor *tensors, int n, int ranks,
                           cudaStream_t stream);

/* One PowerSGD stage for n <= MU_LOWRANK_TENSORS tensors of equal matrix rank. */
cudaError_t mu_lowrank_launch(enum mu_lowrank_stage stage,
                              const struct mu_lowrank_tensor *tensors, int n,
                              cudaStream_t stream);

/* Keep the stream busy for `us`, so that work enqueued meanwhile runs without gaps. */
cudaError_t mu_hold(double us, cudaStream_t stream);

/* Count up a word of the mapped host memory, in stream order. */
cudaError_t mu_mark(volatile uint32_t *word, cudaStream_t stream);

/* Load every kernel of this file onto the current device now. Lazy loading would
 * deadlock when a peer's kernel already waits for the kernel being loaded.
 */
cudaError_t mu_kernels_load(void);
cudaError_t mu_one_shot_load(void);
cudaError_t mu_pull_load(void);
cudaError_t mu_relay_load(void);
cudaError_t mu_own_load(void);
cudaError_t mu_mail_load(void);
cudaError_t mu_pipe_load(void);
cudaError_t mu_pack_load(void);
cudaError_t mu_copy_load(void);
cudaError_t mu_norm_load(void);
cudaError_t mu_int8_load(void);
cudaError_t mu_powersgd_load(void);

#ifdef __cplusplus
}
#endif
#endif
