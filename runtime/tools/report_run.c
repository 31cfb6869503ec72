/* SPDX-License-Identifier: BSD-3-Clause */
/* report_run.c - one run as text and as JSON */

#include "runtime/tools/report.h"

static double percent(double part, double whole)
{
    return whole > 0 && part > 0 ? 100 * part / whole : 0;
}

void mu_report_text(const struct mu_run *run, FILE *to)
{
    fprintf(to, "%s\n", run->path);
    fprintf(to, "  model          %s, %s\n", run->model, run->dtype);
    fprintf(to, "  world          %d rank%s on %d node%s, %s, %d core%s used\n",
            run->ranks, mu_plural(run->ranks), run->nodes, mu_plural(run->nodes),
            run->devices, run->cores, mu_plural(run->cores));
    fprintf(to, "  communication  %s, %s\n", run->backend, run->transport);
    fprintf(to, "  batch          %lld per rank, %lld effective\n",
            (long long)run->batch, (long long)run->effective_batch);
    fprintf(to, "  work           %lld steps, %lld samples%s\n", (long long)run->steps,
            (long long)run->samples_seen, run->finished ? "" : " (not finished)");
    fprintf(to, "  time           %.2f s, %.0f samples/s, %.2f cores busy\n",
            run->seconds,
            run->seconds > 0 ? (double)run->samples_seen / run->seconds : 0,
            run->seconds > 0 ? run->cpu_seconds / run->seconds : 0);
    fprintf(to, "  result         loss %.4f, test loss %.4f, test accuracy %.4f\n\n",
            run->loss, run->test_loss, run->test_accuracy);
    fprintf(to, "  %4s  %-16s %-12s %9s %9s %10s %12s\n", "rank", "host", "cpus",
            "seconds", "cpu s", "exposed %", "checkpoint %");
    for (int r = 0; r < run->ranks; r++) {
        const struct mu_run_rank *k = &run->by_rank[r];

        fprintf(to, "  %4d  %-16s %-12s %9.2f %9.2f ", r, k->host, k->cpus, k->seconds,
                k->cpu_seconds);
        if (k->sync_seconds < 0)
            fprintf(to, "%10s", "-");
        else
            fprintf(to, "%10.1f", percent(k->sync_seconds, k->seconds));
        fprintf(to, " %12.2f\n", percent(k->stall_seconds, k->seconds));
    }
    fprintf(to,
            "\n  exposed: share of the time in which the rank waited for gradients\n");
}

json_t *mu_report_json(const struct mu_run *run)
{
    json_t *ranks = json_array();

    for (int r = 0; r < run->ranks; r++) {
        const struct mu_run_rank *k = &run->by_rank[r];
        json_t *exposed = k->sync_seconds < 0
                              ? json_null()
                              : json_real(percent(k->sync_seconds, k->seconds));

        json_array_append_new(
            ranks,
            json_pack("{s:i, s:s, s:s, s:f, s:f, s:o, s:f}", "rank", r, "host", k->host,
                      "cpus", k->cpus, "seconds", k->seconds, "cpu_seconds",
                      k->cpu_seconds, "exposed_percent", exposed, "checkpoint_percent",
                      percent(k->stall_seconds, k->seconds)));
    }
    return json_pack(
        "{s:s, s:i, s:s, s:s, s:s, s:i, s:i, s:i, s:I, s:I, s:I, s:f, s:f, s:f, s:f, "
        "s:b, "
        "s:o}",
        "format", "muster-report", "version", 1, "model", run->model, "dtype",
        run->dtype, "devices", run->devices, "ranks", run->ranks, "nodes", run->nodes,
        "cores", run->cores, "steps", (json_int_t)run->steps, "samples_seen",
        (json_int_t)run->samples_seen, "effective_batch",
        (json_int_t)run->effective_batch, "seconds", run->seconds, "samples_per_second",
        run->seconds > 0 ? (double)run->samples_seen / run->seconds : 0, "loss",
        run->loss, "test_accuracy", run->test_accuracy, "finished", run->finished,
        "by_rank", ranks);
}
