/* SPDX-License-Identifier: BSD-3-Clause */
/* tuner.c - NCCL's tuner interfaces 2 to 6: takes what the table of MUSTER_TUNER proves
 * faster, and leaves NCCL's choice everywhere else
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/core/tune_table.h"
#include "runtime/core/tuner_trial.h"
#include "runtime/nccl/tuner_abi.h"

#define EXPORT __attribute__((visibility("default")))
#define TABLE_MOST ((size_t)1 << 21) /* bytes */

/* The table is read once for a process. */
static struct {
    pthread_mutex_t lock;
    bool loaded; /* or refused */
    struct mu_tune table;
} tuner = { .lock = PTHREAD_MUTEX_INITIALIZER };

EXPORT extern struct mu_tuner_trial muster_tuner_trial;
struct mu_tuner_trial muster_tuner_trial;

/* What a communicator's ranks and nodes get from the table. */
struct context {
    int n;
    struct mu_tune_span *spans;
};

/* ---- The table ------------------------------------------------------------------- */

/* The release of the NCCL that calls, 0 unknown. Python loads it out of sight of the
 * global scope: the logger is a function of it.
 */
static int nccl_release(mu_nccl_tuner_logger logger)
{
    int (*get)(int *);
    void *library = NULL, *address;
    int release = 0;
    Dl_info info;

    memcpy(&address, &logger, sizeof address);
    *(void **)&get = dlsym(RTLD_DEFAULT, "ncclGetVersion");
    if (!get && address && dladdr(address, &info))
        library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (library)
        *(void **)&get = dlsym(library, "ncclGetVersion");
    if (get)
        get(&release);
    if (library)
        dlclose(library);
    return release;
}

static int load(mu_nccl_tuner_logger logger, struct mu_err *err)
{
    const char *path = getenv("MUSTER_TUNER");
    int release, rc;
    char *text;

    if (!path || !*path)
        return mu_err_set(err, EINVAL, "MUSTER_TUNER names no table");
    text = mu_text_read(path, TABLE_MOST, err);
    if (!text)
        return -1;
    rc = mu_tune_parse(&tuner.table, text, path, err);
    free(text);
    if (rc < 0)
        return -1;
    release = nccl_release(logger);
    if (release == tuner.table.nccl)
        return 0;
    mu_err_set(err, EINVAL, "%s is for NCCL %d.%d.%d, this is %d.%d.%d", path,
               tuner.table.nccl / 10000, tuner.table.nccl / 100 % 100,
               tuner.table.nccl % 100, release / 10000, release / 100 % 100,
               release % 100);
    mu_tune_clear(&tuner.table);
    return -1;
}

static bool have_table(mu_nccl_tuner_logger logger)
{
    const struct mu_log log = { .level = MU_LOG_WARN };
    struct mu_err err = { 0 };

    pthread_mutex_lock(&tuner.lock);
    if (!tuner.loaded && load(logger, &err) < 0)
        mu_log(&log, MU_LOG_WARN, "tuner: %s; NCCL chooses by itself", err.text);
    tuner.loaded = true;
    pthread_mutex_unlock(&tuner.lock);
    return tuner.table.n > 0;
}

/* ---- A communicator -------------------------------------------------------------- */

static int init(size_t ranks, size_t nodes, mu_nccl_tuner_logger logger, void **context)
{
    struct context *c;

    *context = NULL;
    if (muster_tuner_trial.on) {
        muster_tuner_trial.ranks = (int)ranks;
        muster_tuner_trial.nodes = (int)nodes;
        return 0;
    }
    if (!have_table(logger))
        return 0;
    c = calloc(1, sizeof *c);
    if (!c)
        return 0;
    c->n = mu_tune_spans(&tuner.table, (int)ranks, (int)nodes, &c->spans);
    if (c->n <= 0) {
        free(c->spans);
        free(c);
        return 0;
    }
    *context = c;
    return 0;
}

static int init5(void **context, uint64_t comm, size_t ranks, size_t nodes,
                 mu_nccl_tuner_logger logger, void *nvl, void *constants)
{
    (void)comm, (void)nvl, (void)constants;
    return init(ranks, nodes, logger, context);
}

static int finalize(void *context)
{
    struct context *c = context;

    if (c)
        free(c->spans);
    free(c);
    return 0;
}

/* Several operations in one group were not measured. */
static const struct mu_tune_span *choice(const struct context *c, int func,
                                         size_t bytes, int ops)
{
    if (ops > 1)
        return NULL;
    if (muster_tuner_trial.on)
        return mu_tune_find(&muster_tuner_trial.way, !muster_tuner_trial.own, func,
                            bytes);
    return c ? mu_tune_find(c->spans, c->n, func, bytes) : NULL;
}

/* NCCL limits the channels of rings and trees to those that the communicator has. */
static void take_channels(const struct mu_tune_span *s, int *channels)
{
    if (muster_tuner_trial.on)
        muster_tuner_trial.taken++;
    if (s->channels > 0 && (s->algo == MU_TUNE_TREE || s->algo == MU_TUNE_RING))
        *channels = s->channels;
}

static int info2(void *context, int func, size_t bytes, int collnet, int nvls, int ops,
                 int *algo, int *proto, int *channels)
{
    const struct mu_tune_span *s = choice(context, func, bytes, ops);

    if (!s || s->algo > MU_TUNE_NVLS_TREE ||
        (!nvls && (s->algo == MU_TUNE_NVLS || s->algo == MU_TUNE_NVLS_TREE)) ||
        (!collnet &&
         (s->algo == MU_TUNE_COLLNET_DIRECT || s->algo == MU_TUNE_COLLNET_CHAIN)))
        return 0;
    *algo = s->algo;
    *proto = s->proto;
    take_channels(s, channels);
    return 0;
}

/* NCCL takes the least cost. What it cannot use stays so. */
static int info4(void *context, int func, size_t bytes, int ops, float **costs,
                 int algos, int protos, int registered, int *channels)
{
    const struct mu_tune_span *s = choice(context, func, bytes, ops);
    float *cost;

    (void)registered;
    if (!s || s->algo >= algos || s->proto >= protos)
        return 0;
    cost = (float *)(void *)costs + s->algo * protos + s->proto;
    if (*cost < 0)
        return 0;
    *cost = 0;
    take_channels(s, channels);
    return 0;
}

static int info3(void *context, int func, size_t bytes, int ops, float **costs,
                 int algos, int protos, int *channels)
{
    return info4(context, func, bytes, ops, costs, algos, protos, 0, channels);
}

EXPORT struct mu_nccl_tuner2 ncclTunerPlugin_v2 = { "muster", init, info2, finalize };
EXPORT struct mu_nccl_tuner3 ncclTunerPlugin_v3 = { "muster", init, info3, finalize };
EXPORT struct mu_nccl_tuner4 ncclTunerPlugin_v4 = { "muster", init, info4, finalize };
EXPORT struct mu_nccl_tuner5 ncclTunerPlugin_v5 = { "muster", init5, info4, finalize };
EXPORT struct mu_nccl_tuner6 ncclTunerPlugin_v6 = { "muster", init5, info4, finalize,
                                                    NULL };
