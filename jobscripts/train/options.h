/* SPDX-License-Identifier: BSD-3-Clause */
/* options.h - the command line of muster-train */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/muster.h"

/* Exit statuses of muster-train; those of libmuster (10..19) keep their meaning. */
enum train_exit {
    TRAIN_EXIT_NO_SRUN = 20, /* inside an allocation, but started without srun */
    TRAIN_EXIT_DATA = 21,    /* a data file is missing, truncated or damaged */
    TRAIN_EXIT_REQUEUE = 22, /* stopped by a signal, with a checkpoint: run it again */
};

enum train_resume { RESUME_AUTO, RESUME_NEVER, RESUME_MUST };

struct train_options {
    const char *model, *data, *result, *curve, *checkpoint;
    const char *backend, *transport;
    enum muster_dtype dtype;
    enum muster_tail tail;
    enum train_resume resume;
    uint64_t samples, test_samples, seed, max_steps, checkpoint_every;
    long hidden, epochs, batch, accumulate, ranks, keep;
    long elastic; /* the least number of ranks to go on with; 0: end when one dies */
    double lr, momentum, decay, warmup, timeout;
    uint64_t first_bucket, bucket_cap;
    const char *compress_text; /* as given on the command line; "none" */
    int compress;              /* enum muster_compress, -1: none */
    long compress_rank;        /* of PowerSGD */
    int zero;
    int cosine, sharded, foreground, single, help, version;
};

/* Set the defaults, then read the arguments. An error names the option. */
int train_options_parse(struct train_options *opt, int argc, char **argv,
                        struct mu_err *err);
void train_options_help(void); /* to standard output */

#endif
