/* SPDX-License-Identifier: BSD-3-Clause */
/* world_pmix.c - rank, size and node from PMIx 4 or 5
 */
#include "runtime/boot/world_pmix.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "runtime/base/random.h"
#include "runtime/boot/pmix_server.h"
#include "runtime/core/contract.h"
#include "runtime/muster.h"

#define RECORD_MAGIC 0x6d757331u /* "mus1": changes with struct rank_record */
#define RECORD_KEY "muster.card"

/* A number PMIx knows about `rank` (PMIX_RANK_WILDCARD: about the job), or -1. Types
 * differ between keys and releases.
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
static void get_host(const pmix_proc_t *self, const char *node, char *host, size_t len)
{
    pmix_value_t *value = NULL;

    if (node && *node)
        snprintf(host, len, "%s", node);
    else if (PMIx_Get(self, PMIX_HOSTNAME, NULL, 0, &value) == PMIX_SUCCESS && value) {
        if (value->type == PMIX_STRING && value->data.string)
            snprintf(host, len, "%s", value->data.string);
        PMIX_VALUE_RELEASE(value);
    }
    if (!host[0] && gethostname(host, len - 1) < 0)
        snprintf(host, len, "?");
}

/* ---- Meeting ------------------------------------------------------------------- */

static int read_record(struct mu_world *w, int rank, struct rank_record *record,
                       struct mu_err *err)
{
    void *value;
    size_t len;

    if (mu_pmix_fetch(w->impl, rank, RECORD_KEY, &value, &len, 5, err) < 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "rank %d ended before all ranks had met", rank);
    if (len == sizeof *record)
        memcpy(record, value, sizeof *record);
    free(value);
    if (len != sizeof *record || record->magic != RECORD_MAGIC)
        return mu_err_set(err, MUSTER_ECONTRACT,
                          "rank %d runs another release of libmuster than rank %d",
                          rank, w->rank);
    record->host[sizeof record->host - 1] = '\0';
    record->node_key[sizeof record->node_key - 1] = '\0';
    return 0;
}

static int read_records(struct mu_world *w, struct rank_record *records,
                        struct mu_err *err)
{
    const char **key = calloc((size_t)w->size, sizeof *key);
    int rc = -1;

    if (!key)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", w->size);
    for (int r = 0; r < w->size; r++) {
        if (read_record(w, r, &records[r], err) < 0)
            goto out;
        key[r] = records[r].node_key;
        w->pid_of[r] = records[r].pid;
        w->host_of[r] = strdup(records[r].host);
        if (!w->host_of[r]) {
            mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", w->size);
            goto out;
        }
    }
    memcpy(w->token, records[0].token, sizeof w->token);
    mu_world_number_nodes(w, key);
    rc = 0;
out:
    free(key);
    return rc;
}

static int pmix_meet(struct mu_world *w, double timeout, struct mu_err *err)
{
    struct pmix *p = w->impl;
    struct rank_record *records;
    int result;

    mu_pmix_watch_open(w);
    if (mu_pmix_publish(p, RECORD_KEY, &p->record, sizeof p->record, err) < 0 ||
        mu_pmix_fence(p, timeout, err) < 0)
        return -1;
    records = calloc((size_t)w->size, sizeof *records);
    if (!records)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", w->size);
    result = read_records(w, records, err);
    free(records);
    return result;
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

static int fill_record(struct pmix *p, const struct mu_launch *launch,
                       struct mu_err *err)
{
    long node = get_number(&p->self, p->self.rank, PMIX_NODEID);

    p->record.magic = RECORD_MAGIC;
    p->record.pid = getpid();
    get_host(&p->self, launch->slurmd_nodename, p->record.host, sizeof p->record.host);
    snprintf(p->record.node_key, sizeof p->record.node_key, "%ld %s", node,
             p->record.host);
    if (mu_random(p->record.token, sizeof p->record.token) < 0)
        return mu_err_set(err, MUSTER_EIO, "getrandom failed: %s", strerror(errno));
    return 0;
}

static struct mu_world *make_world(const struct mu_launch *launch,
                                   const pmix_proc_t *self, int size,
                                   struct mu_err *err)
{
    struct mu_world *w;
    struct pmix *p = calloc(1, sizeof *p);
    char job[64];

    if (launch->slurm_job_id)
        snprintf(job, sizeof job, "%.30s.%.30s", launch->slurm_job_id,
                 launch->slurm_step_id ? launch->slurm_step_id : "0");
    else
        snprintf(job, sizeof job, "%.63s", self->nspace);
    w = mu_world_new((int)self->rank, size, job, err);
    if (!p || !w) {
        free(p);
        mu_world_free(w);
        return NULL;
    }
    p->self = *self;
    p->world = w;
    p->watch = (struct mu_pmix_watch){ .neighbour = MU_NEIGHBOUR_NONE,
                                       .nodes = MU_NODE_RING_NONE,
                                       .suspect = -1,
                                       .lost = -1 };
    w->impl = p;
    w->exchange =
        (struct mu_exchange){ p, mu_pmix_publish, mu_pmix_fence, mu_pmix_fetch };
    w->meet = pmix_meet;
    w->close = pmix_close;
    w->leave = pmix_leave;
    w->abort = pmix_abort;
    if (fill_record(p, launch, err) < 0) {
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
