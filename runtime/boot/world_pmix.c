/* SPDX-License-Identifier: BSD-3-Clause */
/* world_pmix.c - rank, size and node from PMIx 4 or 5
 */
#include "runtime/boot/world_pmix.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "runtime/base/random.h"
#include "runtime/boot/pmix_server.h"
#include "runtime/core/contract.h"
#include "runtime/muster.h"

/* The number that PMIx has under `key` of `rank` (PMIX_RANK_WILDCARD: of the job), or
 * -1. Types differ between keys and releases.
 */
static long get_number(const pmix_proc_t *self, pmix_rank_t rank, const char *key)
{
    pmix_proc_t proc = *self;
    pmix_value_t *value = NULL;
    long n = -1;

    proc.rank = rank;
    if (PMIx_Get(&proc, key, NULL, 0, &value) != PMIX_SUCCESS || !value)
        return -1;
    switch (value->type) {
    case PMIX_UINT16:
        n = value->data.uint16;
        break;
    case PMIX_UINT32:
        n = value->data.uint32;
        break;
    case PMIX_UINT64:
        n = (long)value->data.uint64;
        break;
    case PMIX_INT:
        n = value->data.integer;
        break;
    case PMIX_SIZE:
        n = (long)value->data.size;
        break;
    case PMIX_PROC_RANK:
        n = value->data.rank;
        break;
    default:
        break;
    }
    PMIX_VALUE_RELEASE(value);
    return n;
}

/* The launcher's name of the node comes first: PMIx 5 under Slurm 24.11 gives the
 * machine's own, which may be another.
 */
static void take_host(const pmix_proc_t *self, char *host, size_t len)
{
    pmix_value_t *value = NULL;

    if (PMIx_Get(self, PMIX_HOSTNAME, NULL, 0, &value) != PMIX_SUCCESS || !value)
        return;
    if (value->type == PMIX_STRING && value->data.string)
        mu_copy(host, len, value->data.string);
    PMIX_VALUE_RELEASE(value);
}

static int pmix_meet(struct mu_world *w, double timeout, struct mu_err *err)
{
    mu_pmix_watch_open(w);
    return mu_world_exchange(w, timeout, err);
}

/* ---- Open and close ------------------------------------------------------------- */

static void pmix_close(struct mu_world *world)
{
    struct pmix *p = world->impl;

    if (!p->left)
        PMIx_Finalize(NULL, 0);
    mu_pmix_watch_close(p);
    free(world->impl);
    mu_world_free(world);
}

/* Without PMIx_Finalize Slurm's server takes a lost client for a failure and ends the
 * step a second later.
 */
static void pmix_leave(struct mu_world *world)
{
    struct pmix *p = world->impl;

    if (!p->left)
        PMIx_Finalize(NULL, 0);
    p->left = true;
}

struct abort_request {
    bool left;
    int status;
    char text[256];
};

static void *abort_step(void *arg)
{
    const struct abort_request *request = arg;
    pmix_proc_t self;

    if (request->left && PMIx_Init(&self, NULL, 0) != PMIX_SUCCESS)
        return NULL;
    PMIx_Abort(request->status, request->text, NULL, 0);
    return NULL;
}

/* Slurm ends the step 0.3 s after PMIx_Abort; but while it retries to reach the daemon
 * of a node whose tasks are gone it takes 30 s to answer. Then each rank ends by
 * itself.
 */
static void pmix_abort(struct mu_world *world, int status, const char *why)
{
    struct abort_request *request = calloc(1, sizeof *request);
    pthread_t thread;

    if (!request)
        return;
    request->status = status;
    request->left = ((const struct pmix *)world->impl)->left;
    mu_copy(request->text, sizeof request->text, why);
    if (pthread_create(&thread, NULL, abort_step, request) == 0)
        sleep(3);
}

static int fill_world(struct mu_world *w, const struct mu_launch *launch,
                      struct mu_err *err)
{
    struct pmix *p = w->impl;
    long node = get_number(&p->self, p->self.rank, PMIX_NODEID);

    if (!launch->slurmd_nodename)
        take_host(&p->self, w->host, sizeof w->host);
    snprintf(w->node_key, sizeof w->node_key, "%ld %s", node, w->host);
    if (mu_random(w->token, sizeof w->token) < 0)
        return mu_err_set(err, MUSTER_EIO, "getrandom failed: %s", strerror(errno));
    return mu_world_listen(w, launch->master_addr, err);
}

static struct mu_world *make_world(const struct mu_launch *launch,
                                   const pmix_proc_t *self, int size,
                                   struct mu_err *err)
{
    static atomic_int worlds;
    struct mu_world *w = mu_world_launched(launch, (int)self->rank, size, self->nspace,
                                           sizeof(struct pmix), err);
    struct pmix *p;

    if (!w)
        return NULL;
    p = w->impl;
    p->self = *self;
    p->world = w;
    p->number = worlds++;
    p->watch = (struct mu_pmix_watch){ .suspect = -1, .lost = -1 };
    w->exchange = (struct mu_exchange){ p, mu_pmix_publish, mu_pmix_fence,
                                        mu_pmix_fetch, mu_pmix_watch_lost };
    w->meet = pmix_meet;
    w->close = pmix_close;
    w->leave = pmix_leave;
    w->abort = pmix_abort;
    if (fill_world(w, launch, err) < 0) {
        free(p);
        mu_world_free(w);
        return NULL;
    }
    return w;
}

int mu_world_pmix(const struct mu_launch *launch, struct mu_world **out,
                  struct mu_err *err)
{
    struct mu_world *w;
    pmix_proc_t self;
    pmix_status_t rc;
    long size;

    /* The same variable decides in PMIx_Init of releases 3 to 5. */
    if (!launch->pmix_namespace)
        return launch->pmix_server_uri
                   ? mu_pmix_server_refuse(launch, "PMIX_NAMESPACE is not set", err)
                   : 1;
    /* PMIx_Finalize after a failed PMIx_Init is a segmentation fault in PMIx 4. */
    rc = PMIx_Init(&self, NULL, 0);
    if (rc != PMIX_SUCCESS)
        return mu_pmix_server_refuse(launch, PMIx_Error_string(rc), err);
    if (strncmp(self.nspace, "singleton", 9) == 0) {
        mu_pmix_server_refuse(launch, "PMIx created a world of one process instead",
                              err);
        goto fail;
    }
    size = get_number(&self, PMIX_RANK_WILDCARD, PMIX_JOB_SIZE);
    if (size < 1 || (long)self.rank >= size) {
        mu_err_set(err, MUSTER_ERENDEZVOUS, "PMIx reports rank %u of %ld ranks",
                   self.rank, size);
        goto fail;
    }
    if (mu_launch_check(launch, (int)self.rank, (int)size, err) < 0)
        goto fail;
    w = make_world(launch, &self, (int)size, err);
    if (!w)
        goto fail;
    *out = w;
    return 0;
fail:
    PMIx_Finalize(NULL, 0);
    return -1;
}
