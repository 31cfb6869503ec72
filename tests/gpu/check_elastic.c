/* SPDX-License-Identifier: BSD-3-Clause */
/* check_elastic.c - a rank is killed in a bucket; the others continue with fewer GPUs
 *
 *   check_elastic RANKS VICTIM PATH
 *
 * It tests all of libmuster except PMIx: ranks are forked, the backend is NCCL. PATH
 * forces an algorithm: one of the backend's own, "nccl" or "auto". Each survivor checks
 * the means of 30 steps, with one rank fewer after the death, and that the gradients
 * keep their addresses. Prints the time from the kill to the end of the first good
 * step.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/api/impl.h"
#include "runtime/backend/nccl/bench/gpu.h"
#include "runtime/base/clock.h"
#include "runtime/tools/forked.h"

#define STEPS 30
#define DEATH 10
#define COUNT ((size_t)1 << 20) /* 4 MiB in a bucket; there are two */

struct plan {
    int victim;
    const char *path;
    double *killed_at; /* shared */
};

static int (*force)(struct mu_backend *b, const char *path);

static int complain(const struct muster *m, const char *what)
{
    fprintf(stderr, "# rank %d: %s: %s\n", muster_rank(m), what, muster_error(m));
    return 1;
}

/* Gradients of rank + 1: the mean gives the number of ranks. */
static int one_step(struct muster *m, struct muster_ddp *ddp, void *stream, bool dies,
                    const struct plan *plan)
{
    static float host[COUNT];
    int rc;

    for (int i = 1; i >= 0; i--) {
        for (size_t e = 0; e < COUNT; e++)
            host[e] = (float)(muster_rank(m) + 1);
        mu_gpu_copy(muster_ddp_grad(ddp, i), host, sizeof host, stream);
        rc = muster_ddp_grad_ready(ddp, i, stream);
        if (rc != MUSTER_OK)
            return rc;
        if (dies) { /* the first bucket may be under way on the other ranks */
            *plan->killed_at = mu_clock_s();
            raise(SIGKILL);
        }
    }
    return muster_ddp_sync(ddp, stream);
}

static int check_means(struct muster_ddp *ddp, int size, void *stream)
{
    static float host[COUNT];

    for (int i = 0; i < 2; i++) {
        mu_gpu_copy(host, muster_ddp_grad(ddp, i), sizeof host, stream);
        for (size_t e = 0; e < COUNT; e++)
            if (host[e] != (float)(size + 1) / 2) {
                fprintf(stderr, "# mean of gradient %d at %zu is %g of %d ranks\n", i,
                        e, (double)host[e], size);
                return 1;
            }
    }
    return 0;
}

static int train(struct muster *m, const struct plan *plan)
{
    struct muster_param p[2] = { { .name = "a", .count = COUNT, .dtype = MUSTER_F32 },
                                 { .name = "b", .count = COUNT, .dtype = MUSTER_F32 } };
    struct muster_ddp_options options = { .first_bucket = 4 * COUNT,
                                          .bucket_cap = 4 * COUNT };
    int origin = muster_rank(m), before = muster_size(m), size = before, shrunk = 0;
    void *stream = mu_gpu_stream(), *grad;
    struct muster_ddp *ddp;

    if (muster_ddp_create(m, p, 2, &options, &ddp) != MUSTER_OK)
        return complain(m, "create");
    grad = muster_ddp_grad(ddp, 0);
    for (int step = 0; step < STEPS;) {
        int rc;

        if (force && m->comm.world->size > 1)
            force(m->comm.backend, plan->path);
        size = muster_size(m);
        rc = one_step(m, ddp, stream, step == DEATH && origin == plan->victim, plan);
        if (rc == MUSTER_ESHRUNK) {
            shrunk++;
            continue;
        }
        if (rc != MUSTER_OK)
            return complain(m, "a step");
        if (check_means(ddp, size, stream) != 0)
            return 1;
        if (shrunk && step == DEATH && muster_rank(m) == 0)
            printf("# %.1f ms from the kill to the end of the next good step, %s\n",
                   (mu_clock_s() - *plan->killed_at) * 1e3, muster_transport(m));
        step++;
    }
    if (shrunk != 1 || size != before - 1 || muster_ddp_grad(ddp, 0) != grad)
        return complain(m, "not one rank fewer, or memory has moved");
    muster_ddp_destroy(ddp);
    return muster_finalize(m) == MUSTER_OK ? 0 : 1;
}

static int body(struct mu_world *world, void *arg)
{
    struct mu_config config = { .backend = MU_BACKEND_NCCL,
                                .init_timeout = 60,
                                .timeout = 30,
                                .elastic = 1,
                                .log = MU_LOG_INFO };
    struct muster *m;
    int rc;

    if (mu_init_world(&m, &config, world) != MUSTER_OK) {
        fprintf(stderr, "# %s\n", muster_error(NULL));
        return 1;
    }
    *(void **)&force = dlsym(m->comm.module, "mu_nccl_force");
    rc = train(m, arg);
    fflush(NULL);
    _exit(rc); /* the victim's status does not count */
}

int main(int argc, char **argv)
{
    double *killed_at = mmap(NULL, sizeof *killed_at, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct plan plan = { .killed_at = killed_at };
    int n, rc;

    if (argc != 4 || (n = atoi(argv[1])) < 2 || killed_at == MAP_FAILED) {
        fprintf(stderr, "usage: check_elastic RANKS VICTIM PATH\n");
        return 2;
    }
    plan.victim = atoi(argv[2]);
    plan.path = argv[3];
    rc = mu_forked_run(n, true, 60, body, &plan);
    printf("%sok 1 - rank %d of %d is killed, path %s: the others go on (%d)\n1..1\n",
           rc == 0 || rc == 128 + SIGKILL ? "" : "not ", plan.victim, n, plan.path, rc);
    return rc != 0 && rc != 128 + SIGKILL;
}
