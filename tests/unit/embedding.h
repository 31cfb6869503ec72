/* SPDX-License-Identifier: BSD-3-Clause */
/* embedding.h - a model with an embedding, whose gradient is ready in rows or dense */
#ifndef TEST_EMBEDDING_H
#define TEST_EMBEDDING_H

#include "tests/unit/forked.h"

/* An embedding between two vectors. */
enum { N = 3, AT = 1, ROWS = 400, WIDTH = 7, COUNT = ROWS * WIDTH, MOST = 800 };
extern const size_t count[N];

struct how {
    const char *name;
    enum muster_dtype dtype;
    int size, nodes, micros;
    int tokens; /* of a rank in a micro-batch; 0: up to 8 */
    bool tied, own, weights, cast, shard, gpu, dense, alternate, ordered;
    double bound; /* relative; 0: the bits of the dense way */
};

/* The rows of one rank in one micro-batch; the same on whoever asks. */
struct batch {
    int64_t index[MOST];
    char values[MOST * WIDTH * 8];
    size_t n;
};

struct muster_ddp *make(struct muster *m, const struct how *h, bool by_row,
                        char own[N][COUNT * 8]);
void draw(const struct how *h, int rank, int step, struct batch *out);
/* g += what the dense way adds, in the type in which a program would add it up. */
void add(const struct how *h, void *g, const struct batch *batch, const void *part,
         bool keep);
/* The dense gradient i of a rank in a step. */
void fill(const struct how *h, int rank, int step, int i, void *g);
/* One micro-batch, in rows or dense. */
void backward(struct muster *m, const struct how *h, struct muster_ddp *ddp,
              bool by_row, int step, int micro);

#endif
