/* SPDX-License-Identifier: BSD-3-Clause */
/* forked.c - a world of forked ranks without Slurm and PMIx */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/boot/control_impl.h"
#include "runtime/tools/forked.h"
#include "tests/unit/forked.h"
#include "tests/unit/patience.h"
#include "tests/unit/text_file.h"

struct call {
    const struct forked_world *world;
    int (*body)(struct muster *m, int rank, void *arg);
    void *arg;
    int fd; /* of the standard error of all */
};

struct mu_backend_ops *forked_elsewhere(struct muster *m)
{
    static struct mu_backend_ops ops;

    ops = *m->comm.ops;
    ops.name = "elsewhere";
    ops.host_memory = false;
    m->comm.ops = &ops;
    return &ops;
}

static struct {
    void (*deed)(void *arg);
    void *arg;
    void (*close)(struct mu_backend *backend);
} before_close;

static void do_and_close(struct mu_backend *backend)
{
    before_close.deed(before_close.arg);
    before_close.close(backend);
}

void forked_before_close(struct muster *m, void (*deed)(void *arg), void *arg)
{
    static struct mu_backend_ops ops;

    ops = *m->comm.ops;
    before_close.deed = deed;
    before_close.arg = arg;
    before_close.close = ops.close;
    ops.close = do_and_close;
    m->comm.ops = &ops;
}

static struct {
    void (*deed)(void *arg);
    void *arg;
    void (*pass)(struct mu_control *c, struct mu_link *link,
                 const struct mu_frame *frame, const char *data);
} with_result;

/* A stopped rank may go on. */
static void do_once(struct mu_control *c)
{
    if (c->on_frame == with_result.pass)
        return;
    c->on_frame = with_result.pass;
    with_result.deed(with_result.arg);
}

/* In the control thread. */
static void do_with_result(struct mu_control *c, struct mu_link *link,
                           const struct mu_frame *frame, const char *data)
{
    uint64_t before = c->all.number;
    int nchildren = c->nchildren;

    if (frame->type == MU_FRAME_ALL)
        do_once(c);
    c->nchildren = 1;
    with_result.pass(c, link, frame, data);
    if (c->all.number != before)
        do_once(c);
    c->nchildren = nchildren;
}

void forked_with_result(struct muster *m, void (*deed)(void *arg), void *arg)
{
    struct mu_control *c = m->comm.control;

    pthread_mutex_lock(&c->lock);
    with_result.deed = deed;
    with_result.arg = arg;
    with_result.pass = c->on_frame;
    c->on_frame = do_with_result;
    pthread_mutex_unlock(&c->lock);
}

void *forked_shared(size_t bytes)
{
    void *p = mu_fork_shared(bytes);

    assert_non_null(p);
    return p;
}

void forked_thread(void *(*work)(void *), void *arg)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, work, arg) != 0 || pthread_detach(thread) != 0)
        _exit(96);
}

static int by_first_world(void *m, const void *mine, void *all, size_t bytes)
{
    return muster_allgather(m, mine, all, bytes, MUSTER_BYTE, NULL);
}

int forked_second(struct muster *m, struct muster **out)
{
    const struct muster_exchange exchange = { .rank = muster_rank(m),
                                              .size = muster_size(m),
                                              .allgather = by_first_world,
                                              .arg = m,
                                              .first = 1 };
    const struct muster_options options = { .backend = "host",
                                            .init_timeout = 20 * PATIENCE,
                                            .timeout = 20 * PATIENCE,
                                            .exchange = &exchange };
    int rc = muster_init(out, &options);

    if (rc != MUSTER_OK)
        muster_report(NULL);
    return rc;
}

/* As PMIx_Abort does: all ranks end, wherever they are. */
static void world_abort(struct mu_world *w, int status, const char *why)
{
    for (int r = 0; r < w->size; r++)
        if (r != w->rank && w->pid_of[r] > 0)
            kill(w->pid_of[r], SIGKILL);
    _exit(status);
}

static int (*plain_meet)(struct mu_world *w, double timeout, struct mu_err *err);

static int meet(struct mu_world *w, double timeout, struct mu_err *err)
{
    const struct call *call = w->impl;

    if (call->world->before_meeting)
        call->world->before_meeting(w->rank, call->arg);
    return plain_meet(w, timeout, err);
}

static struct mu_world *make_world(const struct call *call, struct mu_fork_rank *self)
{
    const struct forked_world *spec = call->world;
    const char *key[MU_FORK_MAX];
    char names[MU_FORK_MAX][8];
    int nodes = spec->nodes ? spec->nodes : 1;
    struct mu_world *w;

    for (int r = 0; r < spec->size; r++) {
        snprintf(names[r], sizeof names[r], "%c", 'a' + r * nodes / spec->size);
        key[r] = names[r];
    }
    w = mu_forked_world(self, key);
    if (!w)
        _exit(97);
    plain_meet = w->meet;
    w->meet = meet;
    w->impl = (void *)(uintptr_t)call;
    w->abort = world_abort;
    return w;
}

static int run_rank(struct mu_fork_rank *self, void *arg)
{
    const struct call *call = arg;
    const struct forked_world *spec = call->world;
    struct mu_config config = {
        .backend = MU_BACKEND_HOST,
        .force_tcp = spec->force_tcp,
        .init_timeout = spec->init_timeout > 0 ? spec->init_timeout : 20,
        .timeout = spec->timeout > 0 ? spec->timeout : 20,
        .return_failure = spec->return_failure,
        .elastic = spec->elastic,
        .log = MU_LOG_WARN,
        .first_bucket = spec->first_bucket,
        .bucket_cap = spec->bucket_cap,
    };
    struct muster *m = NULL;
    int status;

    dup2(call->fd, 2);
    setvbuf(stderr, NULL, _IOLBF, 4096);
    if (spec->netns && setns(spec->netns[self->rank * spec->nodes / spec->size], 0) < 0)
        _exit(97);
    status = mu_init_world(&m, &config, make_world(call, self));
    if (status != MUSTER_OK) {
        fprintf(stderr, "muster_init on rank %d: %s\n", self->rank, muster_error(NULL));
        return status;
    }
    return call->body(m, self->rank, call->arg);
}

static char *read_back(int fd)
{
    off_t len = lseek(fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)len + 1);

    assert_int_equal(pread(fd, text, (size_t)len, 0), len);
    close(fd);
    return text;
}

void forked_run(const struct forked_world *w,
                int (*body)(struct muster *m, int rank, void *arg), void *arg,
                double limit, struct forked_result *out)
{
    struct mu_fork_spec spec = { .size = w->size, .skip = w->skip, .limit = limit };
    struct call call = { w, body, arg, text_file() };
    struct mu_fork_end end;

    assert_true(mu_fork_ranks(&spec, run_rank, &call, &end) >= 0);
    memcpy(out->status, end.status, sizeof out->status);
    memcpy(out->seconds, end.seconds, sizeof out->seconds);
    out->text = read_back(call.fd);
}

bool forked_is_report(const char *line)
{
    int rank, end = 0;

    return sscanf(line, "muster: rank %d (node %*[^)]):%n", &rank, &end) == 1 &&
           end > 0;
}

const char *forked_sentence(const char *text, int rank)
{
    const char *line = text;
    char begin[32];

    snprintf(begin, sizeof begin, "muster: rank %d (", rank);
    while ((line = strstr(line, begin)) && forked_is_report(line))
        line++;
    return line;
}

void forked_clear(struct forked_result *result)
{
    free(result->text);
    result->text = NULL;
}

void forked_well(const char *what, struct forked_world w,
                 int (*body)(struct muster *m, int rank, void *arg), void *arg)
{
    struct forked_result r;

    forked_run(&w, body, arg, 60, &r);
    for (int k = 0; k < w.size; k++)
        if (r.status[k] != 0)
            fail_msg("%s: rank %d of %d on %d node%s ended with %d\n%s", what, k,
                     w.size, w.nodes ? w.nodes : 1, w.nodes > 1 ? "s" : "", r.status[k],
                     r.text);
    forked_clear(&r);
}

void forked_lose_rank_3(int (*body)(struct muster *m, int rank, void *arg),
                        size_t bytes)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        struct forked_world w = {
            .size = 4, .nodes = 2, .elastic = 2, .force_tcp = tcp
        };
        struct forked_result r;

        forked_run(&w, body, forked_shared(bytes), 60, &r);
        for (int k = 0; k < 4; k++)
            if (r.status[k] != (k == 3 ? 128 + SIGKILL : 0))
                fail_msg("rank %d ended with %d:\n%s", k, r.status[k], r.text);
        forked_clear(&r);
    }
}
