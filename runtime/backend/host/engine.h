/* SPDX-License-Identifier: BSD-3-Clause */
/* engine.h - what engine.c and engine_queue.c share: the queue from the inside */
#ifndef MU_HOST_ENGINE_H
#define MU_HOST_ENGINE_H

#include "runtime/backend/host/host.h"

/* Wake the engine's thread. */
void mu_engine_ring(struct mu_host_backend *b);

/* Unlock, then report a failure, so that no lock is held during the callback. */
void mu_engine_unlock(struct mu_host_backend *b);

/* Locked. New requests are put behind the started ones. */
void mu_engine_take_inbox(struct mu_host_backend *b);

/* Locked. The oldest request is done: 0, or -1 if the backend has failed. */
void mu_engine_finish_head(struct mu_host_backend *b, int rc);

#endif
