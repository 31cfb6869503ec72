/* SPDX-License-Identifier: BSD-3-Clause */
/* check_grow.c - a process joins ranks on GPUs between two steps
 *
 *   check_grow RANKS VICTIM PATH
 *
 * Rank VICTIM is killed in a step, and the newcomer takes its GPU; -1: all live, and it
 * takes the next GPU. It tests all of libmuster except PMIx, with the NCCL backend.
 * PATH forces an algorithm: one of the backend's own, "nccl" or "auto". Each process
 * checks the means of its steps; when it has joined, all check collectives in every
 * kind of memory, messages, a group and a graph. Prints the time of the call that took
 * it.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/api/impl.h"
#include "runtime/backend/nccl/bench/gpu.h"
#include "runtime/base/clock.h"
#include "runtime/tools/forked.h"

#define STEPS 24
#define DEATH 5
#define MEET 10
#define COUNT ((size_t)1 << 20)
#define ASK 0.01    /* seconds between two calls of muster_grow */
#define ASKED 10000 /* calls, until the newcomer is given up */

struct shared {
    _Atomic double killed_at;
};

struct plan {
    int ranks, victim;
    const char *path;
    char file[256];
    struct shared *shared;
};

struct training {
    const struct plan *plan;
    struct muster *m;
    struct muster_ddp *ddp;
    void *stream;
    float *kept; /* of muster_alloc where this process has begun with the others */
    float *host;
    int32_t step;
    bool joins, grown;
};

static int (*force)(struct mu_backend *b, const char *path);

static int complain(const struct training *t, const char *what)
{
    fprintf(stderr, "# rank %d of %d: %s: %s\n", muster_rank(t->m), muster_size(t->m),
            what, muster_error(t->m));
    return 1;
}

static void force_path(const struct training *t)
{
    if (force && muster_size(t->m) > 1)
        force(t->m->comm.backend, t->plan->path);
}

/* ---- Checks of a world ----------------------------------------------------------- */

static void set(const struct training *t, float *at, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        t->host[i] = value;
    mu_gpu_copy(at, t->host, count * sizeof *at, t->stream);
}

static bool holds(const struct training *t, const float *at, size_t count, float value)
{
    mu_gpu_copy(t->host, at, count * sizeof *at, t->stream);
    for (size_t i = 0; i < count; i++)
        if (t->host[i] != value) {
            fprintf(stderr, "# rank %d: %zu of %zu is %g, not %g\n", muster_rank(t->m),
                    i, count, (double)t->host[i], (double)value);
            return false;
        }
    return true;
}

static int sums(const struct training *t, struct muster *m, float *at, const char *what)
{
    static const size_t counts[] = { 33, 20000, COUNT };
    int n = muster_size(m);

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        set(t, at, counts[i], (float)(muster_rank(m) + 1));
        if (muster_allreduce(m, at, counts[i], MUSTER_F32, MUSTER_SUM, t->stream) !=
                MUSTER_OK ||
            !holds(t, at, counts[i], (float)(n * (n + 1) / 2)))
            return complain(t, what);
    }
    return 0;
}

static int messages(const struct training *t, float *out, float *in)
{
    static const size_t counts[] = { 5, 20000, COUNT };
    int n = muster_size(t->m), me = muster_rank(t->m), from = (me + n - 1) % n;

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        set(t, out, counts[i], (float)me);
        if (muster_sendrecv(t->m, out, counts[i], (me + 1) % n, in, counts[i], from,
                            MUSTER_F32, t->stream) != MUSTER_OK ||
            !holds(t, in, counts[i], (float)from))
            return complain(t, "a message");
    }
    return 0;
}

struct captured {
    const struct training *t;
    float *at;
    int rc;
};

static void sum_once(void *arg)
{
    struct captured *c = arg;

    c->rc |=
        muster_allreduce(c->t->m, c->at, COUNT, MUSTER_F32, MUSTER_SUM, c->t->stream);
}

static int in_a_graph(const struct training *t, float *at)
{
    struct captured c = { t, at, MUSTER_OK };
    void *graph = mu_gpu_capture(sum_once, &c, 1, t->stream);
    int n = muster_size(t->m), rc = c.rc;

    set(t, at, COUNT, 1);
    for (int i = 0; rc == MUSTER_OK && i < 3; i++)
        mu_gpu_replay(graph, t->stream);
    if (rc != MUSTER_OK || !holds(t, at, COUNT, (float)(n * n * n)))
        rc = complain(t, "a graph");
    mu_gpu_capture_free(graph);
    return rc;
}

static int in_a_group(const struct training *t, float *at)
{
    struct muster *group;
    int rc;

    if (muster_split(t->m, 0, 0, "all", &group) != MUSTER_OK)
        return complain(t, "a group");
    rc = sums(t, group, at, "an all-reduce of a group");
    return muster_finalize(group) == MUSTER_OK ? rc : complain(t, "a group's end");
}

/* What survivors have from muster_alloc is to the newcomer memory of a program. */
static int check_world(const struct training *t)
{
    float *a = mu_gpu_alloc(COUNT * sizeof *a), *b = mu_gpu_alloc(COUNT * sizeof *b);
    float *shared = muster_alloc(t->m, COUNT * sizeof *shared);
    int rc = shared ? 0 : complain(t, "muster_alloc");

    rc = rc || sums(t, t->m, t->joins ? a : t->kept, "an all-reduce of kept memory") ||
         sums(t, t->m, a, "an all-reduce of other memory") ||
         sums(t, t->m, shared, "an all-reduce of memory from muster_alloc") ||
         messages(t, a, b) || in_a_graph(t, shared) || in_a_group(t, a);
    muster_free(t->m, shared);
    mu_gpu_free(a);
    mu_gpu_free(b);
    return rc;
}

/* ---- Training -------------------------------------------------------------------- */

static int set_up(struct training *t)
{
    struct muster_param p[2] = { { .name = "a", .count = COUNT, .dtype = MUSTER_F32 },
                                 { .name = "b", .count = COUNT, .dtype = MUSTER_F32 } };
    struct muster_ddp_options options = { .first_bucket = 4 * COUNT,
                                          .bucket_cap = 4 * COUNT };
    int rc;

    muster_ddp_destroy(t->ddp);
    t->ddp = NULL;
    rc = muster_ddp_create(t->m, p, 2, &options, &t->ddp);
    if (rc == MUSTER_OK)
        rc = muster_broadcast(t->m, &t->step, sizeof t->step, MUSTER_BYTE, 0, NULL);
    return rc;
}

/* Gradients of rank + 1: the mean gives the number of ranks. */
static int one_step(struct training *t, bool dies)
{
    int rc, size = muster_size(t->m);

    for (int i = 1; i >= 0; i--) {
        set(t, muster_ddp_grad(t->ddp, i), COUNT, (float)(muster_rank(t->m) + 1));
        rc = muster_ddp_grad_ready(t->ddp, i, t->stream);
        if (rc != MUSTER_OK)
            return rc;
        if (dies) { /* the first bucket may be under way on the other ranks */
            t->plan->shared->killed_at = mu_clock_s();
            raise(SIGKILL);
        }
    }
    rc = muster_ddp_sync(t->ddp, t->stream);
    if (rc != MUSTER_OK)
        return rc;
    for (int i = 0; i < 2; i++)
        if (!holds(t, muster_ddp_grad(t->ddp, i), COUNT, (float)(size + 1) / 2))
            return MUSTER_EINTERNAL;
    t->step++;
    return MUSTER_OK;
}

/* Each call finds an all-reduce under way, whose sum must be complete. */
static int grow(struct training *t)
{
    int joined = 0, before = muster_size(t->m), rc = MUSTER_OK;
    double began = 0, seconds = 0;
    size_t room = mu_gpu_free_bytes();

    for (int asked = 0; joined == 0 && rc == MUSTER_OK && asked < ASKED; asked++) {
        if (asked > 0)
            mu_pause(ASK);
        set(t, t->kept, COUNT, 1);
        rc = muster_allreduce(t->m, t->kept, COUNT, MUSTER_F32, MUSTER_SUM, t->stream);
        began = mu_clock_s();
        if (rc == MUSTER_OK)
            rc = muster_grow(t->m, &joined);
        seconds = mu_clock_s() - began;
        if (rc == MUSTER_OK && !holds(t, t->kept, COUNT, (float)before))
            return complain(t, "the all-reduce before");
    }
    if (rc != MUSTER_OK || joined != 1 || muster_size(t->m) != before + 1)
        return complain(t, "no process has joined");
    if (muster_ddp_grad_ready(t->ddp, 0, t->stream) != MUSTER_EUSAGE)
        return complain(t, "the older ddp object was not refused");
    if (muster_rank(t->m) == 0)
        printf("# %.1f ms to take the newcomer: %d ranks, %s; %.0f MiB more in use\n",
               seconds * 1e3, muster_size(t->m), muster_transport(t->m),
               ((double)room - (double)mu_gpu_free_bytes()) / (1 << 20));
    fflush(stdout);
    return 0;
}

static int train(struct training *t)
{
    const int origin = t->joins ? -1 : muster_rank(t->m);
    bool fresh = true;

    while (t->step < STEPS) {
        int rc = fresh ? set_up(t) : MUSTER_OK;

        force_path(t);
        if (rc == MUSTER_OK && fresh && t->grown && check_world(t) != 0)
            return 1;
        if (rc == MUSTER_OK)
            rc = one_step(t,
                          origin >= 0 && origin == t->plan->victim && t->step == DEATH);
        if (rc == MUSTER_ESHRUNK)
            continue;
        if (rc != MUSTER_OK)
            return complain(t, "a step");
        fresh = t->step == MEET && !t->grown;
        if (fresh && grow(t) != 0)
            return 1;
        t->grown |= fresh;
    }
    return 0;
}

static int run(struct muster *m, const struct plan *plan, bool joins)
{
    struct training t = { .plan = plan,
                          .m = m,
                          .stream = mu_gpu_stream(),
                          .host = malloc(COUNT * sizeof(float)),
                          .joins = joins,
                          .grown = joins };
    int rc, size = plan->ranks + (plan->victim < 0);

    *(void **)&force = dlsym(m->comm.module, "mu_nccl_force");
    if (!joins)
        t.kept = muster_alloc(m, COUNT * sizeof *t.kept);
    rc = !t.host || (!joins && !t.kept) ? complain(&t, "memory") : train(&t);
    if (rc == 0 && muster_size(m) != size)
        rc = complain(&t, "the world has another size");
    muster_ddp_destroy(t.ddp);
    muster_free(m, t.kept);
    free(t.host);
    if (rc == 0 && muster_finalize(m) != MUSTER_OK) {
        fprintf(stderr, "# %s\n", muster_error(NULL));
        rc = 1;
    }
    fflush(NULL);
    return rc;
}

static int start(struct mu_world *world, const struct plan *plan, bool joins)
{
    struct mu_config config = { .backend = MU_BACKEND_NCCL,
                                .init_timeout = 60,
                                .timeout = 30,
                                .elastic = 1,
                                .joins = joins,
                                .log = MU_LOG_INFO };
    struct muster *m;

    memcpy(config.grow, plan->file, sizeof plan->file);
    if (mu_init_world(&m, &config, world) != MUSTER_OK) {
        fprintf(stderr, "# %s\n", muster_error(NULL));
        return 1;
    }
    return run(m, plan, joins);
}

static int body(struct mu_world *world, void *arg)
{
    _exit(start(world, arg, false)); /* the victim's status does not count */
}

static int newcomer(const struct plan *plan)
{
    struct mu_launch launch = { .single = true };
    struct mu_world *world;
    struct mu_err err = { 0 };

    while (plan->victim >= 0 && plan->shared->killed_at == 0)
        mu_pause(0.01);
    mu_forked_narrow(plan->victim >= 0 ? plan->victim : plan->ranks);
    if (mu_world_join(&launch, plan->file, &world, &err) < 0) {
        fprintf(stderr, "# the newcomer: %s\n", err.text);
        return 1;
    }
    return start(world, plan, true);
}

/* Before this process uses CUDA. */
static pid_t fork_newcomer(const struct plan *plan)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(newcomer(plan));
}

int main(int argc, char **argv)
{
    struct plan plan = { .shared = mu_fork_shared(sizeof *plan.shared) };
    int status = -1, rc;
    pid_t pid;

    if (argc != 4 || (plan.ranks = atoi(argv[1])) < 2 || !plan.shared) {
        fprintf(stderr, "usage: check_grow RANKS VICTIM PATH\n");
        return 2;
    }
    plan.victim = atoi(argv[2]);
    plan.path = argv[3];
    snprintf(plan.file, sizeof plan.file, "%s/muster-check-grow-%d",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
    pid = fork_newcomer(&plan);
    rc = mu_forked_run(plan.ranks, true, 60, body, &plan);
    if (rc == 128 + SIGKILL && plan.victim >= 0)
        rc = 0;
    if (rc != 0)
        kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    printf("%sok 1 - a process joins %d ranks, %s, path %s (%d, %d)\n1..1\n",
           rc == 0 && status == 0 ? "" : "not ", plan.ranks,
           plan.victim < 0 ? "all of which live" : "one of which was killed", plan.path,
           rc, status);
    return rc != 0 || status != 0;
}
