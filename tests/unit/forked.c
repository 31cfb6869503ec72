/* SPDX-License-Identifier: BSD-3-Clause */
/* forked.c - a world of forked ranks without Slurm and PMIx */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/random.h"
#include "tests/unit/forked.h"

#define SLOTS 32
#define VALUE 4096

/* What PMIx does for us, in shared memory. */
struct table {
    int size;
    uint8_t token[MU_TOKEN_LEN];
    _Atomic int fences[RANKS_MAX]; /* entered by each rank */
    struct slot {
        _Atomic int full;
        char key[64];
        size_t len;
        char value[VALUE];
    } slot[RANKS_MAX][SLOTS];
};

struct exchange {
    struct table *table;
    int rank;
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

void *forked_shared(size_t bytes)
{
    void *p =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(p != MAP_FAILED);
    return p;
}

static int publish(void *arg, const char *key, const void *value, size_t len,
                   struct mu_err *err)
{
    struct exchange *x = arg;

    for (int i = 0; i < SLOTS; i++) {
        struct slot *s = &x->table->slot[x->rank][i];

        if (s->full)
            continue;
        if (len > VALUE)
            break;
        snprintf(s->key, sizeof s->key, "%s", key);
        memcpy(s->value, value, len);
        s->len = len;
        s->full = 1;
        return 0;
    }
    return mu_err_set(err, MUSTER_EINTERNAL, "the test's table is full at %s", key);
}

static void nap(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL);
}

static int fence(void *arg, double timeout, struct mu_err *err)
{
    struct exchange *x = arg;
    double until = mu_clock_s() + timeout;
    int mine = ++x->table->fences[x->rank];

    for (int r = 0; r < x->table->size; r++)
        while (x->table->fences[r] < mine) {
            if (mu_clock_s() > until)
                return mu_err_set(err, MUSTER_ERENDEZVOUS,
                                  "rank %d did not arrive within %g s", r, timeout);
            nap();
        }
    return 0;
}

static int fetch(void *arg, int rank, const char *key, void **value, size_t *len,
                 double timeout, struct mu_err *err)
{
    struct exchange *x = arg;

    for (int i = SLOTS - 1; i >= 0; i--) {
        struct slot *s = &x->table->slot[rank][i];

        if (!s->full || strcmp(s->key, key) != 0)
            continue;
        *value = malloc(s->len + 1);
        memcpy(*value, s->value, s->len);
        *len = s->len;
        return 0;
    }
    return mu_err_set(err, MUSTER_ERENDEZVOUS, "rank %d has no %s", rank, key);
}

static int meet(struct mu_world *w, double timeout, struct mu_err *err)
{
    struct exchange *x = w->impl;
    int pid = getpid();

    if (publish(x, "pid", &pid, sizeof pid, err) < 0 || fence(x, timeout, err) < 0)
        return -1;
    for (int r = 0; r < w->size; r++) {
        void *value;
        size_t len;

        if (fetch(x, r, "pid", &value, &len, timeout, err) < 0)
            return -1;
        memcpy(&w->pid_of[r], value, sizeof(int));
        free(value);
    }
    return 0;
}

static void world_close(struct mu_world *w)
{
    free(w->impl);
    mu_world_free(w);
}

/* As PMIx_Abort does: all ranks end, wherever they are. */
static void world_abort(struct mu_world *w, int status, const char *why)
{
    for (int r = 0; r < w->size; r++)
        if (r != w->rank && w->pid_of[r] > 0)
            kill(w->pid_of[r], SIGKILL);
    _exit(status);
}

static struct mu_world *make_world(const struct forked_world *spec, struct table *table,
                                   int rank)
{
    struct mu_world *w = mu_world_new(rank, spec->size, "test.0", NULL);
    struct exchange *x = malloc(sizeof *x);
    const char *key[RANKS_MAX];
    char names[RANKS_MAX][8];
    int nodes = spec->nodes ? spec->nodes : 1;

    *x = (struct exchange){ table, rank };
    for (int r = 0; r < spec->size; r++) {
        snprintf(names[r], sizeof names[r], "%c", 'a' + r * nodes / spec->size);
        key[r] = names[r];
        w->host_of[r] = strdup(names[r]);
    }
    mu_world_number_nodes(w, key);
    memcpy(w->token, table->token, sizeof w->token);
    w->exchange = (struct mu_exchange){ x, publish, fence, fetch };
    w->impl = x;
    w->meet = meet;
    w->close = world_close;
    w->abort = world_abort;
    return w;
}

static void be_rank(const struct forked_world *spec, struct table *table, int rank,
                    int (*body)(struct muster *m, int rank, void *arg), void *arg)
{
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

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    status = mu_init_world(&m, &config, make_world(spec, table, rank));
    if (status != MUSTER_OK) {
        fprintf(stderr, "muster_init on rank %d: %s\n", rank, muster_error(NULL));
        _exit(status);
    }
    status = body(m, rank, arg);
    fflush(NULL);
    _exit(status);
}

static int status_of(int raw)
{
    return WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
}

static void reap(struct forked_result *out, int size, double start, double limit)
{
    int left = 0;

    for (int r = 0; r < size; r++)
        left += out->pid[r] > 0;
    while (left > 0) {
        bool late = mu_clock_s() > start + limit;

        for (int r = 0; r < size; r++) {
            int raw;

            if (out->pid[r] <= 0 || out->seconds[r] > 0)
                continue;
            if (late)
                kill(out->pid[r], SIGKILL);
            if (waitpid(out->pid[r], &raw, late ? 0 : WNOHANG) == out->pid[r]) {
                out->status[r] = status_of(raw);
                out->seconds[r] = mu_clock_s() - start;
                left--;
            }
        }
        nap();
    }
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
    struct table *table = forked_shared(sizeof *table);
    int fd = memfd_create("stderr", MFD_CLOEXEC);
    double start = mu_clock_s();

    *out = (struct forked_result){ 0 };
    table->size = w->size;
    mu_random(table->token, sizeof table->token);
    fflush(NULL);
    for (int r = 0; r < w->size; r++) {
        if (w->skip >> r & 1)
            continue;
        out->pid[r] = fork();
        assert_true(out->pid[r] >= 0);
        if (out->pid[r] == 0) {
            dup2(fd, 2);
            setvbuf(stderr, NULL, _IOLBF, 4096);
            be_rank(w, table, r, body, arg);
        }
    }
    reap(out, w->size, start, limit);
    out->text = read_back(fd);
    munmap(table, sizeof *table);
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
