/* SPDX-License-Identifier: BSD-3-Clause */
/* ledgers.h - writes the ledgers of an invented training */
#ifndef LEDGERS_H
#define LEDGERS_H

/* Times are microseconds. */
struct training {
    int ranks, steps, buckets; /* of a step */
    double bytes;              /* of a bucket; the next ones have 4 KiB more each */
    double exchange;           /* of one bucket */
    double forward, backward;
    double launch, late_launch; /* of the late rank, 0: as the others */
    int channels;
    int nodes;       /* of the communicator, 0: 1 */
    int libmuster;   /* the ledgers are of its ranks without GPUs */
    int losses;      /* a tiny all-reduce in each tenth step */
    int cpus;        /* of a process, 0 unknown; the late rank has two */
    int remote;      /* CPUs of the late rank (1), of all (2), are not at their GPU */
    const char *nic; /* of the late rank; the others have mlx5_0, NULL none */
    /* Of the GPU of the late rank since `from`, or of all: MHz, watts, percent busy (of
     * all: one less from rank to rank), percent of memory. 0: 1980, 600, 97, 80.
     */
    double mhz, watts, busy, memory;
    int gpus;        /* samples of GPUs are written; 2: all are alike */
    int late, from;  /* rank, 0 none; the step since which it is late */
    int rotates;     /* the late rank is another one in each step */
    int mostly;      /* rank 0 is late in three of five steps, rank 1 in the others */
    double late_us;  /* at each bucket */
    int starved;     /* each n-th step waits three forward passes for data */
    int slow;        /* each n-th bucket takes ten times as long */
    int burst;       /* buckets are launched behind the backward pass */
    int setup;       /* all-reduces of as many sizes before the first step */
    int windows;     /* each n-th ten steps are timed, with another clock; 0: all */
    int one_process; /* it has all ranks, and its file is the only one */
};

/* Without a fault: 14.3 ms a step, of which all-reduces of 25 MiB take 1.2. */
static const struct training sound_training = { .ranks = 4,
                                                .steps = 120,
                                                .buckets = 6,
                                                .bytes = 25 << 20,
                                                .exchange = 200,
                                                .forward = 5000,
                                                .backward = 9000,
                                                .launch = 8,
                                                .channels = 16 };

/* A file for each rank, two ranks on a node; with gpus one of samples. -1: it cannot be
 * written.
 */
int ledgers_write(const char *folder, const struct training *t);

#endif
