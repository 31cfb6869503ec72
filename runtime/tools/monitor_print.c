/* SPDX-License-Identifier: BSD-3-Clause */
/* monitor_print.c - text, JSON, and Prometheus' text format */
#include <stddef.h>
#include <string.h>

#include "runtime/tools/monitor.h"

static void value(double v, double unit, int width, int digits, FILE *to)
{
    if (v < 0)
        fprintf(to, " %*s", width, "-");
    else
        fprintf(to, " %*.*f", width, digits, v * unit);
}

static void print_rank(const struct mu_monitor_rank *r, FILE *to)
{
    value(r->rank, 1, 5, 0, to);
    fprintf(to, " %-16.16s", r->host);
    value(r->step, 1, 10, 0, to);
    value(r->step_ms, 1, 10, 3, to);
    value(r->share, 100, 9, 1, to);
    value(r->busbw, 1, 8, 1, to);
    value(r->last, 100, 7, 0, to);
    value(r->idle, 1, 8, 1, to);
    putc('\n', to);
}

void mu_monitor_text(const struct mu_monitor *m, FILE *to)
{
    fprintf(to, "%s%s: %d rank%s\n", m->job[0] ? "job " : "program", m->job, m->nranks,
            mu_plural(m->nranks));
    if (m->note[0])
        fprintf(to, "%s\n", m->note);
    for (int i = 0; i < m->nadvice; i++)
        fprintf(to, "%s\n", m->advice[i]);
    fprintf(to, "\n %5s %-16s %10s %10s %9s %8s %7s %8s\n", "rank", "host", "step",
            "step ms", "in coll %", "busbw", "last %", "idle s");
    for (int i = 0; i < m->nranks; i++)
        print_rank(&m->rank[i], to);
    if (m->ngpus)
        fprintf(to, "\n %-20s %6s %8s %8s %19s\n", "gpu of this node", "busy %",
                "watts", "MHz", "memory MiB");
    for (int i = 0; i < m->ngpus; i++) {
        const struct mu_monitor_gpu *g = &m->gpu[i];

        fprintf(to, " %-20s", g->pci);
        value(g->utilization, 1, 6, 0, to);
        value(g->watts, 1, 8, 0, to);
        value(g->mhz, 1, 8, 0, to);
        value(g->used_mib, 1, 9, 0, to);
        value(g->total_mib, 1, 9, 0, to);
        putc('\n', to);
    }
    if (m->nnics)
        fprintf(to, "\n %-20s %12s %12s\n", "nic of this node", "in MB/s", "out MB/s");
    for (int i = 0; i < m->nnics; i++) {
        fprintf(to, " %-20.20s", m->nic[i].name);
        value(m->nic[i].receives, 1e-6, 12, 1, to);
        value(m->nic[i].sends, 1e-6, 12, 1, to);
        putc('\n', to);
    }
}

/* ---- JSON ------------------------------------------------------------------------ */

static json_t *number(double v)
{
    return v < 0 ? json_null() : json_real(v);
}

static json_t *text(const char *s)
{
    json_t *json = json_string(s); /* NULL: no UTF-8 */

    return json ? json : json_null();
}

json_t *mu_monitor_json(const struct mu_monitor *m)
{
    json_t *ranks = json_array(), *gpus = json_array(), *nics = json_array();
    json_t *advice = json_array();

    for (int i = 0; i < m->nadvice; i++)
        json_array_append_new(advice, text(m->advice[i]));

    for (int i = 0; i < m->nranks; i++) {
        const struct mu_monitor_rank *r = &m->rank[i];

        json_array_append_new(
            ranks,
            json_pack("{s:i, s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "rank", r->rank,
                      "host", text(r->host), "pid", r->pid, "step", number(r->step),
                      "step_ms", number(r->step_ms), "collective_share",
                      number(r->share), "busbw_gb_s", number(r->busbw), "last_share",
                      number(r->last), "idle_seconds", number(r->idle)));
    }
    for (int i = 0; i < m->ngpus; i++) {
        const struct mu_monitor_gpu *g = &m->gpu[i];

        json_array_append_new(
            gpus,
            json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "pci", text(g->pci),
                      "utilization", number(g->utilization), "watts", number(g->watts),
                      "mhz", number(g->mhz), "memory_used_mib", number(g->used_mib),
                      "memory_total_mib", number(g->total_mib)));
    }
    for (int i = 0; i < m->nnics; i++)
        json_array_append_new(nics,
                              json_pack("{s:o, s:o, s:o}", "name", text(m->nic[i].name),
                                        "received_bytes_s", number(m->nic[i].receives),
                                        "sent_bytes_s", number(m->nic[i].sends)));
    return json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "format",
                     "muster-monitor", "version", 1, "job", text(m->job), "note",
                     text(m->note), "advice", advice, "ranks", ranks, "gpus", gpus,
                     "nics", nics);
}

/* ---- Prometheus ------------------------------------------------------------------ */

/* A label's value: backslash, quote and line feed are escaped. */
static void label(const char *name, const char *s, FILE *to)
{
    fprintf(to, "%s=\"", name);
    for (; *s; s++) {
        if (*s == '\\' || *s == '"')
            putc('\\', to);
        if (*s == '\n')
            fputs("\\n", to);
        else
            putc(*s, to);
    }
    putc('"', to);
}

static void rank_metric(const struct mu_monitor *m, const char *name, const char *type,
                        const char *help, size_t field, double unit, FILE *to)
{
    fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
    for (int i = 0; i < m->nranks; i++) {
        double v;

        memcpy(&v, (const char *)&m->rank[i] + field, sizeof v);
        if (v < 0)
            continue;
        fprintf(to, "%s{", name);
        label("job", m->job, to);
        putc(',', to);
        label("host", m->rank[i].host, to);
        fprintf(to, ",rank=\"%d\"} %.9g\n", m->rank[i].rank, v * unit);
    }
}

static void gpu_metric(const struct mu_monitor *m, const char *name, const char *help,
                       size_t field, double unit, FILE *to)
{
    fprintf(to, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
    for (int i = 0; i < m->ngpus; i++) {
        double v;

        memcpy(&v, (const char *)&m->gpu[i] + field, sizeof v);
        if (v < 0)
            continue;
        fprintf(to, "%s{", name);
        label("gpu", m->gpu[i].pci, to);
        fprintf(to, "} %.9g\n", v * unit);
    }
}

void mu_monitor_prometheus(const struct mu_monitor *m, FILE *to)
{
#define RANK(name, type, help, field, unit)                                            \
    rank_metric(m, "muster_" name, type, help,                                         \
                offsetof(struct mu_monitor_rank, field), unit, to)
#define GPU(name, help, field, unit)                                                   \
    gpu_metric(m, "muster_gpu_" name, help, offsetof(struct mu_monitor_gpu, field),    \
               unit, to)
    RANK("steps", "counter", "Training steps so far.", step, 1);
    RANK("step_seconds", "gauge", "Median time of the last steps.", step_ms, 1e-3);
    RANK("collective_ratio", "gauge", "Share of the time with a collective.", share, 1);
    RANK("busbw_bytes_per_second", "gauge", "Bus bandwidth.", busbw, 1e9);
    RANK("last_ratio", "gauge", "Share of steps that waited for this rank.", last, 1);
    RANK("idle_seconds", "gauge", "Time since the last collective began.", idle, 1);
    GPU("utilization_ratio", "Share of the time with a kernel.", utilization, 0.01);
    GPU("power_watts", "Power.", watts, 1);
    GPU("clock_hertz", "Clock of the SMs.", mhz, 1e6);
    GPU("memory_used_bytes", "Memory in use.", used_mib, 1048576);
    GPU("memory_bytes", "Memory.", total_mib, 1048576);
}
