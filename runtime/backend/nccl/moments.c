/* SPDX-License-Identifier: BSD-3-Clause */
/* moments.c - when a stream has done its work so far, read later on the host's clock
 *
 * CUDA measures the time between two events. A chain of events is a time line of the
 * GPU; float has too few bits for long times, so the chain goes on at a later event
 * after a second. The line's place on the host's clock is found without a wait: no
 * event happens before the host enqueued it, and on an idle stream it happens at once.
 */
#include <stdlib.h>

#include "runtime/backend/nccl/nccl.h"
#include "runtime/base/clock.h"

#define CHAIN_NS 1e9
#define DRIFT 50e-6 /* that clocks differ at most */

static struct mu_nccl_moment *get(struct mu_nccl_backend *b)
{
    struct mu_nccl_moment *m = b->moments.free;

    if (m) {
        b->moments.free = m->next;
        return m;
    }
    m = calloc(1, sizeof *m);
    if (m && cudaEventCreateWithFlags(&m->event, cudaEventDefault) == cudaSuccess) {
        m->made = b->moments.made;
        b->moments.made = m;
        return m;
    }
    cudaGetLastError();
    free(m);
    return NULL;
}

static void put(struct mu_nccl_backend *b, struct mu_nccl_moment *m)
{
    m->next = b->moments.free;
    b->moments.free = m;
}

void *mu_nccl_moment(struct mu_nccl_backend *b, void *stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    struct mu_nccl_moment *m = NULL;
    int callers;

    if (mu_device_enter(b, &callers) == cudaSuccess &&
        cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
        status == cudaStreamCaptureStatusNone)
        m = get(b);
    if (m && cudaEventRecord(m->event, stream) != cudaSuccess) {
        cudaGetLastError();
        put(b, m);
        m = NULL;
    }
    if (m)
        m->enqueued = mu_clock_ns();
    mu_device_leave(b, callers);
    return m;
}

/* Ns on the GPU's time line; false: CUDA cannot compare them. */
static bool place(struct mu_nccl_backend *b, struct mu_nccl_moment *m, double *ns)
{
    struct mu_nccl_moments *line = &b->moments;
    float ms = 0;

    if (line->last && cudaEventElapsedTime(&ms, line->last, m->event) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    *ns = line->at + (double)ms * 1e6;
    if (!line->last || *ns - line->at >= CHAIN_NS) {
        cudaEvent_t event = m->event;

        if (!line->last &&
            cudaEventCreateWithFlags(&m->event, cudaEventDefault) != cudaSuccess) {
            cudaGetLastError();
            return false;
        }
        if (line->last)
            m->event = line->last;
        line->last = event;
        line->at = *ns;
    }
    return true;
}

/* By the first moment of all this is late as the GPU then was; it becomes exact when a
 * stream is idle once.
 */
static int64_t on_host(struct mu_nccl_moments *line, const struct mu_nccl_moment *m,
                       double ns)
{
    double least = (double)(m->enqueued - line->origin) - ns,
           most = (double)(mu_clock_ns() - line->origin) - ns;

    if (ns > line->newest) {
        line->shift -= (ns - line->newest) * DRIFT;
        line->newest = ns;
    }
    line->shift = line->shift < least ? least : line->shift > most ? most : line->shift;
    return line->origin + (int64_t)(ns + line->shift);
}

bool mu_nccl_reached(struct mu_nccl_backend *b, void *moment, int64_t *ns)
{
    struct mu_nccl_moment *m = moment;
    cudaError_t rc = cudaEventQuery(m->event);
    double at;

    if (rc == cudaErrorNotReady)
        return false;
    if (!b->moments.last)
        b->moments.origin = m->enqueued;
    *ns = 0;
    if (rc == cudaSuccess && place(b, m, &at))
        *ns = on_host(&b->moments, m, at);
    put(b, m);
    return true;
}

void mu_nccl_forget(struct mu_nccl_backend *b, void *moment)
{
    put(b, moment);
}

void mu_nccl_moments_close(struct mu_nccl_backend *b)
{
    while (b->moments.made) {
        struct mu_nccl_moment *m = b->moments.made;

        b->moments.made = m->made;
        cudaEventDestroy(m->event);
        free(m);
    }
    if (b->moments.last)
        cudaEventDestroy(b->moments.last);
    b->moments = (struct mu_nccl_moments){ 0 };
}
