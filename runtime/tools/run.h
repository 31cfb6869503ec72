/* SPDX-License-Identifier: BSD-3-Clause */
/* run.h - one training run, from the JSON file that muster-train writes with --result
 */
#ifndef MU_REPORT_RUN_H
#define MU_REPORT_RUN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"

struct mu_run_rank {
    const char *host, *cpus;
    double seconds; /* training, wall clock */
    double cpu_seconds;
    /* waited for gradients; -1: unknown (on GPUs the host does not wait) */
    double sync_seconds;
    double stall_seconds; /* waited for checkpoints */
};

struct mu_run_moment {
    double step, seconds, loss;
};

/* Strings point into json. */
struct mu_run {
    json_t *json;
    const char *path, *model, *dtype, *devices, *backend, *transport;
    int ranks, nodes, machines, cores, epochs;
    int64_t samples, samples_seen, batch, effective_batch, steps;
    double seconds, cpu_seconds, loss, test_loss, test_accuracy;
    bool finished;
    struct mu_run_rank *by_rank; /* `ranks` elements */
    struct mu_run_moment *moments;
    int nmoments;
    double *losses; /* by step */
    int nlosses;
};

/* path is borrowed. The error names the file, and the field that is missing or wrong.
 */
int mu_run_load(struct mu_run *run, const char *path, struct mu_err *err);
void mu_run_clear(struct mu_run *run);

#endif
