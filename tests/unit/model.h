/* SPDX-License-Identifier: BSD-3-Clause */
/* model.h - a model of one large and one small parameter on forked ranks */
#ifndef TEST_MODEL_H
#define TEST_MODEL_H

#include "tests/unit/forked.h"

#define LARGE 5000

struct muster_ddp *model(struct muster *m);
/* The gradient of the large parameter. */
float *first(const struct muster_ddp *ddp);
/* Every gradient of this rank is `value`, and ready. */
void backward(struct muster *m, struct muster_ddp *ddp, float value);

#endif
