/* SPDX-License-Identifier: BSD-3-Clause */
/* two_models.h - two ddp objects of one shape on forked ranks */
#ifndef TEST_TWO_MODELS_H
#define TEST_TWO_MODELS_H

#include <stdbool.h>

#include "runtime/backend/backend.h"
#include "runtime/ddp/ddp.h"

enum { COUNT = 1024, MODELS = 2, LAYERS = 2 };

struct two {
    struct muster_ddp *ddp[MODELS];
};

struct two two_make(struct muster *m);
/* Destroys both, then finalizes; returns the status of that. */
int two_end(struct muster *m, struct two *two);

/* The gradients of layers from .. to (downwards) of model d on this rank. */
int two_layers(struct muster *m, struct two *two, int d, int from, int to);
/* Those of all layers. */
int two_backward(struct muster *m, struct two *two, int d);
bool two_is_mean(struct muster *m, struct two *two, int d);
/* Syncs model `first`, then the other one. */
int two_sync(struct two *two, int first);

/* Gives m a backend that takes collectives as NCCL does: count and type decide, and
 * nothing else is compared.
 */
struct mu_backend_ops *two_make_blind(struct muster *m);

#endif
