/* SPDX-License-Identifier: BSD-3-Clause */
/* faulty.c - a small training loop in which one rank does something wrong
 *
 * faulty [--rank R] [--at PHASE] [--do DEED] [--steps N] [--note FILE] [--log LINES]
 *        [--save FOLDER [--sharded]]
 * faulty --show FOLDER
 * PHASE: start (before muster_init), fence (inside it, while a rank of another node is
 *        not there yet), create, bucket (between two buckets of step 3), step, save (a
 *        checkpoint's file is half written), finalize
 * DEED:  none kill stop exit0 exit3 segv sleep:SECONDS skip abort extend shape dtype
 *        order memory (it can get no more of it)
 * With --log each rank prints so many lines once it has met the others.
 * The time of the deed goes to FILE, so that a test can tell how long detection took.
 * With --save a small checkpoint is made of step 2, and a large one of step 3. --show
 * says which one is there to go on from.
 */
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/muster.h"

enum { PARAMS = 4, COUNT = 1000, SMALL = 1 << 16, LARGE = 1 << 26 };

static struct {
    const char *at, *deed, *note, *save, *show;
    int rank, steps, sharded, log;
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
    else if (strcmp(opt.deed, "memory") == 0)
        setrlimit(RLIMIT_AS, &(struct rlimit){ 1, 1 });
    else if (strcmp(opt.deed, "extend") == 0) {
        muster_extend(world, 30);
        nap(5);
    }
    return 1;
}

/* By then a rank is in the fence, also on a busy machine. */
static void *act_in_fence(void *arg)
{
    nap(1);
    act("fence");
    return NULL;
}

/* ---- Checkpoints -------------------------------------------------------------------
 */

static struct muster_checkpoint *checkpoint;
static unsigned char *state;

static int open_checkpoint(struct muster *m, const char *folder)
{
    const struct muster_checkpoint_options o = { .kind = "faulty",
                                                 .sharded = opt.sharded };

    state = malloc(LARGE);
    if (!state) {
        fprintf(stderr, "faulty: no memory for its state\n");
        exit(1);
    }
    return muster_checkpoint_open(m, folder, &o, &checkpoint);
}

/* Bytes of the file of step 3 that are written so far; 0 when it is not there, or no
 * longer. In one file, rank 0 writes it.
 */
static off_t half_written(void)
{
    char path[4096], shard[32] = "muster";
    struct stat st;

    if (opt.sharded)
        snprintf(shard, sizeof shard, "%04d-of-%04d.shard", my_rank,
                 muster_size(world));
    snprintf(path, sizeof path, "%s/checkpoint-%012d.%s.tmp", opt.save, 3, shard);
    return stat(path, &st) == 0 ? st.st_size : 0;
}

static void *act_in_save(void *arg)
{
    off_t half = LARGE / 2 / (opt.sharded ? muster_size(world) : 1);

    for (int i = 0; i < 100000 && half_written() < half; i++)
        nap(0.0001);
    if (half_written() >= half)
        act("save");
    return NULL;
}

/* A state of which each byte is the step. */
static int save(int step)
{
    struct muster_item item = { .name = "state",
                                .data = state,
                                .bytes = step == 3 ? LARGE : SMALL };
    pthread_t thread;

    if (!opt.save || (step != 2 && step != 3))
        return MUSTER_OK;
    memset(state, step, item.bytes);
    if (step == 3 && my_rank == opt.rank && strcmp(opt.at, "save") == 0)
        pthread_create(&thread, NULL, act_in_save, NULL);
    return muster_checkpoint_save(checkpoint, (uint64_t)step, &item, 1);
}

/* Tell the newest checkpoint that is whole, after looking at all of its bytes. */
static int show(void)
{
    static const size_t sizes[] = { LARGE, SMALL };
    uint64_t step = 0;
    int found = 0, rc = MUSTER_EIO;

    if (muster_init(&world, &(struct muster_options){ .single = 1 }) != MUSTER_OK ||
        open_checkpoint(world, opt.show) != MUSTER_OK)
        return muster_report(world);
    for (int i = 0; i < 2 && rc != MUSTER_OK; i++) {
        struct muster_item item = { .name = "state", .data = state, .bytes = sizes[i] };

        rc = muster_checkpoint_load(checkpoint, &item, 1, &step, &found);
        for (size_t k = 0; rc == MUSTER_OK && found && k < sizes[i]; k++)
            if (state[k] != step)
                return MUSTER_EIO;
    }
    if (rc == MUSTER_OK && found)
        printf("step %d, whole\n", (int)step);
    else
        printf("none\n");
    muster_checkpoint_close(checkpoint);
    return muster_finalize(world);
}

/* ---- The training ------------------------------------------------------------------
 */

static struct muster_ddp *create(struct muster *m)
{
    static float data[PARAMS][COUNT];
    static char name[PARAMS][16];
    struct muster_param p[PARAMS];
    struct muster_ddp *ddp;
    int odd = my_rank == opt.rank;

    for (int i = 0; i < PARAMS; i++) {
        snprintf(name[i], sizeof name[i], "layer%d", i);
        p[i] = (struct muster_param){
            .name = name[i], .count = COUNT, .dtype = MUSTER_F32, .data = data[i]
        };
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
        if (save(step) != MUSTER_OK) {
            int status = muster_report(m);

            /* A full disk leaves the world whole: the ranks part in order. */
            if (status == MUSTER_EIO)
                muster_finalize(m);
            return status;
        }
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
        { "save", required_argument, NULL, 'c' },
        { "log", required_argument, NULL, 'l' },
        { "sharded", no_argument, NULL, 'p' },
        { "show", required_argument, NULL, 'w' },
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
        else if (c == 'c')
            opt.save = optarg;
        else if (c == 'l')
            opt.log = atoi(optarg);
        else if (c == 'p')
            opt.sharded = 1;
        else if (c == 'w')
            opt.show = optarg;
        else
            exit(2);
    }
}

/* A rank of the other node comes late, before the deadline of 3 s, so that the others
 * are in the fence.
 */
static void linger_in_fence(void)
{
    const char *ntasks = getenv("SLURM_NTASKS");
    int size = ntasks ? atoi(ntasks) : 1;
    pthread_t thread;

    if (my_rank == (opt.rank < size / 2 ? size - 1 : 0))
        nap(2.6);
    if (my_rank == opt.rank)
        pthread_create(&thread, NULL, act_in_fence, NULL);
}

int main(int argc, char **argv)
{
    const char *procid = getenv("SLURM_PROCID");
    struct muster_ddp *ddp;
    int rc;

    options(argc, argv);
    if (opt.show)
        return show();
    my_rank = procid ? atoi(procid) : 0;
    act("start");
    if (strcmp(opt.at, "fence") == 0)
        linger_in_fence();
    if (muster_init(&world, NULL) != MUSTER_OK)
        return muster_report(NULL);
    my_rank = muster_rank(world);
    for (int i = 0; i < opt.log; i++)
        printf("rank %d, line %d of its log\n", my_rank, i);
    act("create");
    ddp = create(world);
    if (!ddp || (opt.save && open_checkpoint(world, opt.save) != MUSTER_OK))
        return muster_report(world);
    rc = train(world, ddp);
    if (rc != MUSTER_OK)
        return rc;
    act("finalize");
    muster_checkpoint_close(checkpoint);
    muster_ddp_destroy(ddp);
    rc = muster_finalize(world);
    if (rc == MUSTER_OK && my_rank == 0)
        printf("all is well\n");
    return rc;
}
