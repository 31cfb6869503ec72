/* SPDX-License-Identifier: BSD-3-Clause */
/* faulty.c - a small training loop in which one rank does something wrong
 *
 * faulty [--rank R] [--at PHASE] [--do DEED] [--steps N] [--note FILE]
 * PHASE: start (before muster_init), fence (inside it, while rank 0 is not there yet),
 *        create, bucket (between two buckets of step 3), step, save, finalize
 * DEED:  none kill stop exit0 exit3 segv sleep:SECONDS skip abort extend shape dtype
 * order The time of the deed goes to FILE, so that a test can tell how long detection
 * took.
 */
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/muster.h"

enum { PARAMS = 4, COUNT = 1000 };

static struct {
    const char *at, *deed, *note, *save;
    int rank, steps;
} opt = { .at = "", .deed = "none", .rank = -1, .steps = 6 };

static int my_rank;
static struct muster *world;

static void nap(double seconds)
{
    struct timespec t = { (time_t)seconds,
                          (long)((seconds - (double)(time_t)seconds) * 1e9) };

    nanosleep(&t, NULL);
}

static void write_note(void)
{
    FILE *f = opt.note ? fopen(opt.note, "w") : NULL;
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    if (f) {
        fprintf(f, "%ld.%03ld\n", (long)t.tv_sec, t.tv_nsec / 1000000);
        fclose(f);
    }
}

/* True when this rank is to do its deed now, and the deed lets it go on. */
static int act(const char *phase)
{
    if (my_rank != opt.rank || strcmp(phase, opt.at) != 0)
        return 0;
    write_note();
    if (strcmp(opt.deed, "kill") == 0)
        kill(getpid(), SIGKILL);
    else if (strcmp(opt.deed, "stop") == 0)
        kill(getpid(), SIGSTOP);
    else if (strcmp(opt.deed, "exit0") == 0)
        _exit(0);
    else if (strcmp(opt.deed, "exit3") == 0)
        _exit(3);
    else if (strcmp(opt.deed, "segv") == 0)
        raise(SIGSEGV);
    else if (strncmp(opt.deed, "sleep:", 6) == 0)
        nap(atof(opt.deed + 6));
    else if (strcmp(opt.deed, "abort") == 0)
        muster_abort(world, 42, "the loss is not a number");
    else if (strcmp(opt.deed, "extend") == 0) {
        muster_extend(world, 30);
        nap(5);
    }
    return 1;
}

static void *act_in_fence(void *arg)
{
    nap(0.5);
    act("fence");
    return NULL;
}

static struct muster_ddp *create(struct muster *m)
{
    static float data[PARAMS][COUNT];
    static char name[PARAMS][16];
    struct muster_param p[PARAMS];
    struct muster_ddp *ddp;
    int odd = my_rank == opt.rank;

    for (int i = 0; i < PARAMS; i++) {
        snprintf(name[i], sizeof name[i], "layer%d", i);
        p[i] = (struct muster_param){ name[i], COUNT, MUSTER_F32, data[i], NULL };
    }
    if (odd && strcmp(opt.deed, "shape") == 0)
        p[2].count = COUNT + 1;
    if (odd && strcmp(opt.deed, "dtype") == 0)
        p[2].dtype = MUSTER_BF16;
    if (odd && strcmp(opt.deed, "order") == 0) {
        p[1].name = name[2];
        p[2].name = name[1];
    }
    return muster_ddp_create(m, p, PARAMS, NULL, &ddp) == MUSTER_OK ? ddp : NULL;
}

static int train(struct muster *m, struct muster_ddp *ddp)
{
    for (int step = 0; step < opt.steps; step++) {
        if (step == 3 && act("step") && strcmp(opt.deed, "skip") == 0)
            continue;
        for (int i = PARAMS - 1; i >= 0; i--) {
            float *g = muster_ddp_grad(ddp, i);

            for (int k = 0; k < COUNT; k++)
                g[k] = (float)my_rank;
            if (muster_ddp_grad_ready(ddp, i, NULL) != MUSTER_OK)
                return muster_report(m);
            if (step == 3 && i == 2)
                act("bucket");
        }
        if (muster_ddp_sync(ddp, NULL) != MUSTER_OK)
            return muster_report(m);
        if (step == 3 && my_rank == 0)
            act("save");
    }
    return MUSTER_OK;
}

static void options(int argc, char **argv)
{
    static const struct option longs[] = {
        { "rank", required_argument, NULL, 'r' },
        { "at", required_argument, NULL, 'a' },
        { "do", required_argument, NULL, 'd' },
        { "steps", required_argument, NULL, 's' },
        { "note", required_argument, NULL, 'n' },
        { NULL, 0, NULL, 0 },
    };
    int c;

    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (c == 'r')
            opt.rank = atoi(optarg);
        else if (c == 'a')
            opt.at = optarg;
        else if (c == 'd')
            opt.deed = optarg;
        else if (c == 's')
            opt.steps = atoi(optarg);
        else if (c == 'n')
            opt.note = optarg;
        else
            exit(2);
    }
}

int main(int argc, char **argv)
{
    const char *procid = getenv("SLURM_PROCID");
    struct muster_ddp *ddp;
    pthread_t thread;
    int rc;

    options(argc, argv);
    my_rank = procid ? atoi(procid) : 0;
    act("start");
    if (strcmp(opt.at, "fence") == 0) {
        if (my_rank == (opt.rank == 0))
            nap(2); /* so that the others are in the fence */
        if (my_rank == opt.rank)
            pthread_create(&thread, NULL, act_in_fence, NULL);
    }
    if (muster_init(&world, NULL) != MUSTER_OK)
        return muster_report(NULL);
    my_rank = muster_rank(world);
    act("create");
    ddp = create(world);
    if (!ddp)
        return muster_report(world);
    rc = train(world, ddp);
    if (rc != MUSTER_OK)
        return rc;
    act("finalize");
    muster_ddp_destroy(ddp);
    rc = muster_finalize(world);
    if (rc == MUSTER_OK && my_rank == 0)
        printf("all is well\n");
    return rc;
}
