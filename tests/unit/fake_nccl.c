/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_nccl.c - calls a profiler plugin as NCCL does, in each version */
#include "tests/unit/fake_nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = 1 << 0, COLL = 1 << 1, CHANNEL = 1 << 6, GROUP_API = 1 << 8 };
enum { COLL_API = 1 << 9, CHANNEL_STOP = 22, GROUP_START_STOP = 24 };
enum { NAME, INIT, START, STOP, RECORD, FINALIZE };

/* offsetof() and sizeof of NCCL's ncclProfilerEventDescr_vN_t, 0: not there */
static const struct layout {
    size_t size;
    int name, hash, sequence, func, count, dtype, channels, warps, algo, proto;
} layouts[FAKE_NCCL_VERSIONS + 1] = {
    [1] = { 120, 24, 32, 40, 48, 72, 84, 104, 105, 106, 107 },
    [2] = { 128, 24, 32, 40, 48, 72, 88, 104, 105, 112, 120 },
    [3] = { 120, 24, 32, 40, 48, 72, 88, 96, 97, 104, 112 },
    [4] = { 104, 0, 0, 24, 32, 56, 72, 80, 81, 88, 96 },
    [5] = { 112, 0, 0, 24, 32, 56, 72, 80, 81, 88, 96 },
    [6] = { 112, 0, 0, 24, 32, 56, 72, 80, 81, 88, 96 },
    [7] = { 136, 0, 0, 24, 32, 56, 72, 80, 81, 88, 96 },
};

enum { PARENT = 8, RANK = 16, CHANNEL_ID = 24, CHANNEL_WHEN = 32, CAPTURED = 24 };

static int event_mask; /* of the process, as in NCCL */

int fake_nccl_open(struct fake_nccl *nccl, const char *path, int version)
{
    char symbol[32];

    snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", version);
    nccl->version = version;
    nccl->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!nccl->library)
        return -1;
    nccl->plugin = dlsym(nccl->library, symbol);
    return nccl->plugin ? 0 : -1;
}

void fake_nccl_close(struct fake_nccl *nccl)
{
    dlclose(nccl->library);
}

static void logger(int level, unsigned long flags, const char *file, int line,
                   const char *fmt, ...)
{
    (void)level, (void)flags, (void)file, (void)line, (void)fmt;
}

typedef int (*init1)(void **, int *);
typedef int (*init4)(void **, int *, const char *, uint64_t, int, int, int,
                     void (*)(int, unsigned long, const char *, int, const char *,
                              ...));
typedef int (*init5)(void **, uint64_t, int *, const char *, int, int, int,
                     void (*)(int, unsigned long, const char *, int, const char *,
                              ...));

int fake_comm_init(struct fake_comm *c, const struct fake_nccl *nccl)
{
    void *f = nccl->plugin[INIT];

    int rc;

    c->nccl = nccl;
    if (nccl->version <= 3)
        rc = ((init1)f)(&c->context, &event_mask);
    else if (nccl->version == 4)
        rc = ((init4)f)(&c->context, &event_mask, c->name, c->hash, c->nodes, c->size,
                        c->rank, logger);
    else
        rc = ((init5)f)(&c->context, c->hash, &event_mask, c->name, c->nodes, c->size,
                        c->rank, logger);
    c->mask = __atomic_load_n(&event_mask, __ATOMIC_RELAXED);
    return rc;
}

int fake_comm_finalize(struct fake_comm *c)
{
    return c->context ? ((int (*)(void *))c->nccl->plugin[FINALIZE])(c->context) : 0;
}

/* All other bytes are of no use to a plugin. */
static char *new_descr(const struct fake_comm *c, uint64_t type, void *parent)
{
    const struct layout *l = &layouts[c->nccl->version];
    char *d = malloc(l->size); /* exactly: reading behind it shows in a sanitizer */

    memset(d, 0xa5, l->size);
    if (c->nccl->version >= 5)
        memcpy(d, &type, sizeof type);
    else
        d[0] = (char)type;
    memcpy(d + PARENT, &parent, sizeof parent);
    memcpy(d + RANK, &c->rank, sizeof c->rank);
    return d;
}

static void *start(const struct fake_comm *c, char *d)
{
    void *event = (void *)-1;

    ((int (*)(void *, void **, void *))c->nccl->plugin[START])(c->context, &event, d);
    free(d);
    return event;
}

static void put_text(char *d, int at, const char *text)
{
    memcpy(d + at, &text, sizeof text);
}

/* Interface 1 has numbers. */
static char number_of(const char *word, const char *const *words)
{
    char n = 0;

    while (words[(int)n] && strcmp(words[(int)n], word) != 0)
        n++;
    return n;
}

static void put_names(const struct fake_comm *c, const struct fake_coll *coll, char *d)
{
    static const char *const funcs[] = { "Broadcast",     "Reduce",    "AllGather",
                                         "ReduceScatter", "AllReduce", NULL };
    static const char *const algos[] = { "TREE",          "RING", "COLLNET_DIRECT",
                                         "COLLNET_CHAIN", "NVLS", NULL };
    static const char *const protos[] = { "LL", "LL128", "SIMPLE", NULL };
    static const char *const dtypes[] = { "ncclInt8",     "ncclUint8",   "ncclInt32",
                                          "ncclUint32",   "ncclInt64",   "ncclUint64",
                                          "ncclFloat16",  "ncclFloat32", "ncclFloat64",
                                          "ncclBfloat16", NULL };
    const struct layout *l = &layouts[c->nccl->version];

    if (c->nccl->version == 1) {
        d[l->func] = number_of(coll->func, funcs);
        d[l->algo] = number_of(coll->algo, algos);
        d[l->proto] = number_of(coll->proto, protos);
        d[l->dtype] = number_of(coll->dtype, dtypes);
        return;
    }
    put_text(d, l->func, coll->func);
    put_text(d, l->algo, coll->algo);
    put_text(d, l->proto, coll->proto);
    put_text(d, l->dtype, coll->dtype);
}

/* What ncclAllReduce() does from NCCL 2.28 on: the mask counts from here. */
static void *call_api(struct fake_comm *c)
{
    char *d = new_descr(c, GROUP_API, NULL);
    void *group, *coll;

    d[CAPTURED] = c->captured;
    group = start(c, d);
    if (group)
        ((int (*)(void *, int, void *))c->nccl->plugin[RECORD])(group, GROUP_START_STOP,
                                                                NULL);
    coll = start(c, new_descr(c, COLL_API, group));
    fake_stop(c, coll);
    fake_stop(c, group);
    return coll;
}

void *fake_coll_start(struct fake_comm *c, const struct fake_coll *coll)
{
    const struct layout *l = &layouts[c->nccl->version];
    void *parent = NULL, *group;
    char *d;

    c->mask = __atomic_load_n(&event_mask, __ATOMIC_RELAXED);
    if (!(c->mask & COLL))
        return NULL;
    if (c->nccl->version >= 5)
        parent = call_api(c);
    group = start(c, new_descr(c, GROUP, NULL));
    fake_stop(c, group);
    /* NCCL 2.23 to 2.27 start no event in a group without a handle. */
    if (!group && c->nccl->version < 5)
        return NULL;
    d = new_descr(c, COLL, c->nccl->version < 5 ? group : parent);
    if (l->hash) {
        put_text(d, l->name, c->name);
        memcpy(d + l->hash, &c->hash, sizeof c->hash);
    }
    memcpy(d + l->sequence, &c->sequence, sizeof c->sequence);
    c->sequence++;
    memcpy(d + l->count, &coll->count, sizeof coll->count);
    d[l->channels] = (char)coll->channels;
    d[l->warps] = 16;
    put_names(c, coll, d);
    return start(c, d);
}

void *fake_other_start(struct fake_comm *c, uint64_t type)
{
    return start(c, new_descr(c, type, NULL));
}

void *fake_channel_start(struct fake_comm *c, void *parent, int id, uint64_t when)
{
    char *d;

    if (!(c->mask & CHANNEL))
        return NULL;
    d = new_descr(c, CHANNEL, parent);
    d[CHANNEL_ID] = (char)id;
    if (c->nccl->version >= 4)
        memcpy(d + CHANNEL_WHEN, &when, sizeof when);
    return start(c, d);
}

/* NCCL calls neither of both for an event without a handle. */
void fake_stop(struct fake_comm *c, void *event)
{
    if (event)
        ((int (*)(void *))c->nccl->plugin[STOP])(event);
}

void fake_channel_stop(struct fake_comm *c, void *channel, uint64_t when)
{
    uint64_t args[2] = { when, 0xa5a5a5a5a5a5a5a5 };

    if (!channel)
        return;
    if (c->nccl->version >= 4)
        ((int (*)(void *, int, void *))c->nccl->plugin[RECORD])(channel, CHANNEL_STOP,
                                                                args);
    fake_stop(c, channel);
}

void fake_coll_run(struct fake_comm *c, const struct fake_coll *coll, uint64_t begin,
                   uint64_t end)
{
    void *event = fake_coll_start(c, coll), *channel[256];

    fake_stop(c, event);
    for (int i = 0; i < coll->channels; i++)
        channel[i] = fake_channel_start(c, event, i, begin + (uint64_t)i);
    for (int i = coll->channels - 1; i >= 0; i--)
        fake_channel_stop(c, channel[i], end - (uint64_t)i);
}
