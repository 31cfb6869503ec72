/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_work.h - the work of fake GPUs: fake_cuda.c and fake_kernels.c enqueue it,
 * fake_gpu.c carries it out
 */
#ifndef TEST_FAKE_WORK_H
#define TEST_FAKE_WORK_H

#include "runtime/backend/nccl/kernels/kernels.h"
#include "tests/unit/fake_gpu.h"

#define STREAMS 16
#define OPS 256
#define RECORDS 1024
#define PARTS 64

enum work {
    RECORD,
    AWAIT,
    AFTER,
    MOVED,
    COPY,
    READ,
    FILL,
    ADD_PARTS,
    SCALE,
    MARK,
    SEND,
    RECEIVE,
    PIPE,
    COLLECTIVE
};
enum collective { BARRIER, SUM, PULLED, BROADCAST, GATHER, SCATTER, REDUCE, EXCHANGE };

struct part {
    bool send;
    int rank, peer;
    char *at;
    size_t count;
};

struct op {
    enum work work;
    enum collective collective;
    const char *name; /* of a collective: the same on all ranks */
    int record;       /* made, or waited for */
    const void *from;
    void *to;
    size_t count; /* elements */
    double scale;
    int root;
    void *at[FAKE_RANKS]; /* pulled: this buffer, as each rank has it */
    int rank, peer;       /* of a message */
    struct mu_pipe pipe;  /* what of it is not done */
    struct op *after;     /* a node of the graph; where this one was moved to */
    bool captured, arrived, done;
    bool branch; /* of a graph: later work of its stream is not behind it */
};

struct queue {
    int rank, head, n;
    unsigned long long id;
    struct op op[OPS];
};

extern struct queue queues[STREAMS]; /* a stream each */
extern int nstreams, nranks;
extern struct fake_calls calls[FAKE_RANKS];
extern bool recorded[RECORDS];
extern struct part
    parts[PARTS]; /* of the group of ncclSend and ncclRecv that is open */
extern int nparts;
extern bool capture;
extern unsigned long long captures; /* so far: the id of the last one */

cudaError_t enqueue(cudaStream_t stream, struct op op);
/* Counts a call that may fail: is this the one? See fake_fail. */
bool fails(void);
struct fake_calls *count_for(cudaStream_t stream);
/* Forgets all events. */
void fake_cuda_reset(void);

#endif
