/* SPDX-License-Identifier: BSD-3-Clause */
/* gradients.h - a small ddp object on forked ranks */
#ifndef TEST_GRADIENTS_H
#define TEST_GRADIENTS_H

#include "tests/unit/forked.h"

enum { N = 5, COUNT = 40 };

/* Runs body on one rank, on three of a node and on four of two nodes. */
void everywhere(int (*body)(struct muster *m, int rank, void *arg), void *arg);

/* N parameters of COUNT elements; those of odd index have their gradient in own. */
struct muster_ddp *make(struct muster *m, const struct muster_ddp_options *o,
                        float own[N][COUNT]);
float *grad(struct muster_ddp *ddp, int i);
void all_ready(struct muster *m, struct muster_ddp *ddp);
/* Destroys ddp, then finalizes; returns the status of that. */
int finish(struct muster *m, struct muster_ddp *ddp);

#endif
