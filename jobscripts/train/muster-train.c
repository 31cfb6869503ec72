/* SPDX-License-Identifier: BSD-3-Clause */
/* muster-train.c - the tutorial's training program: Fashion-MNIST, data parallel */
#include "jobscripts/train/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_signal(int number)
{
    train_signal = number;
}

/* USR1 (sbatch --signal) and TERM (preemption, time limit) ask for a checkpoint. */
static void catch_signals(void)
{
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* A batch script without srun starts one process where the user expects several. Slurm
 * sets SLURM_STEP_ID only for the tasks of a step.
 */
static int check_srun(const struct train_options *opt, struct mu_err *err)
{
    const char *single = getenv("MUSTER_SINGLE");

    if (opt->single || (single && strcmp(single, "1") == 0) || getenv("PMIX_RANK"))
        return 0;
    if (getenv("SLURM_JOB_ID") && !getenv("SLURM_STEP_ID"))
        return mu_err_set(
            err, TRAIN_EXIT_NO_SRUN,
            "job %s started this program without srun, so one process would "
            "train alone: write srun --mpi=pmix muster-train ..., or add "
            "--single to train with one process",
            getenv("SLURM_JOB_ID"));
    return 0;
}

static int open_world(struct train *t, struct mu_err *err)
{
    struct muster_options options = { .backend = t->opt->backend,
                                      .transport = t->opt->transport,
                                      .timeout = t->opt->timeout,
                                      .single = t->opt->single,
                                      .elastic = (int)t->opt->elastic };
    int status = muster_init(&t->m, &options);

    if (status != MUSTER_OK)
        return train_failed(t, status, err);
    t->rank = muster_rank(t->m);
    t->size = muster_size(t->m);
    show_init(&t->show, t->rank);
    return 0;
}

/* Each rank prints its place: look at these lines when one is slow. */
static void say_place(struct train *t)
{
    char cpus[256];

    mu_cpuset_format(&t->cores.mine, cpus, sizeof cpus);
    show_line(&t->show, "node %s, local rank %d of %d, CPUs %s",
              muster_host(t->m, t->rank), muster_local_rank(t->m),
              muster_local_size(t->m), cpus);
}

/* With --elastic this runs again when there are fewer ranks. */
static int run_to_end(struct train *t, struct mu_err *err)
{
    if (train_run(t, err) < 0 || train_collect(t, err) < 0)
        return -1;
    return train_agree(t, train_write_result(t, err), "write the result", err);
}

static int train(struct train *t, struct mu_err *err)
{
    int status, rc;

    if (train_setup(t, err) < 0)
        return -1;
    say_place(t);
    status = muster_barrier(t->m);
    if (status != MUSTER_OK)
        return train_failed(t, status, err);
    do {
        rc = run_to_end(t, err);
    } while (rc < 0 && err->code == MUSTER_ESHRUNK && train_shrunk(t, err) == 0);
    if (rc < 0)
        return -1;
    show_line(&t->show, "%llu step%s, weights %016llx, %.1f s of CPU time",
              (unsigned long long)(t->step - t->first_step),
              mu_plural((long)(t->step - t->first_step)),
              (unsigned long long)t->figures[t->rank].weights_hash, t->cpu_seconds);
    if (t->rank == 0 && !t->stop)
        printf("Training time: %.2f seconds\nTest accuracy: %.4f\n", t->train_seconds,
               t->test_accuracy);
    if (!t->stop)
        return 0;
    t->agreed = 1;
    return mu_err_set(
        err, TRAIN_EXIT_REQUEUE,
        "stopped by a signal after step %llu; the checkpoint is %s: start the "
        "same command again to go on",
        (unsigned long long)t->step, muster_checkpoint_path(t->checkpoint));
}

/* Print the reason and exit: all together if every rank has it, else by ending the
 * whole job.
 */
static int leave(struct train *t, const struct mu_err *err)
{
    show_bar_end(&t->show);
    if (t->m && !t->agreed)
        muster_abort(t->m, err->code, err->text);
    if (!t->m)
        fprintf(stderr, "muster-train: %s\n", err->text);
    else if (t->rank == 0 || t->mine)
        fprintf(stderr, "muster-train: rank %d: %s\n", t->rank, err->text);
    train_clear(t);
    muster_finalize(t->m);
    return err->code;
}

int main(int argc, char **argv)
{
    struct train_options opt;
    struct train t = { .opt = &opt };
    struct mu_err err = { 0 };

    if (train_options_parse(&opt, argc, argv, &err) < 0)
        return leave(&t, &err);
    if (opt.help || opt.version) {
        if (opt.help)
            train_options_help();
        else
            printf("muster-train %s\n", muster_version());
        return 0;
    }
    if (opt.checkpoint)
        catch_signals();
    if (check_srun(&opt, &err) < 0 || open_world(&t, &err) < 0 || train(&t, &err) < 0)
        return leave(&t, &err);
    train_clear(&t);
    if (muster_finalize(t.m) != MUSTER_OK)
        return muster_report(NULL);
    return 0;
}
