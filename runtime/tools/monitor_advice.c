/* SPDX-License-Identifier: BSD-3-Clause */
/* monitor_advice.c - GPUs of the job that are idle, slow, or nearly empty
 *
 * The limits are those of published tutorials: a GPU below 70 % of utilization waits
 * for data, and 70 to 95 % of its memory should be in use. A GPU that no rank of the
 * job names is another job's, or free.
 */
#include <stdarg.h>
#include <string.h>

#include "runtime/tools/monitor.h"
#include "runtime/tools/profile.h"
#include "runtime/tools/samples.h"

#define BUSY_LEAST 70   /* percent */
#define MEMORY_LEAST 70 /* percent */
#define MEMORY_MOST 95
#define LATE 0.6   /* share of steps in which the others wait for a rank */
#define SLOWER 0.9 /* of the median clock */
#define COLD 0.7   /* of the median power */

static void add(struct mu_monitor *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add(struct mu_monitor *m, const char *format, ...)
{
    va_list args;

    if (m->nadvice == MU_MONITOR_ADVICE)
        return;
    va_start(args, format);
    vsnprintf(m->advice[m->nadvice++], sizeof m->advice[0], format, args);
    va_end(args);
}

/* The rank on this host that uses a GPU; NULL: none names it. */
static const struct mu_monitor_rank *
user_of(const struct mu_monitor *m, const char *host, const struct mu_monitor_gpu *g)
{
    for (int i = 0; i < m->nranks; i++)
        if (m->rank[i].gpu[0] && strcmp(m->rank[i].host, host) == 0 &&
            mu_same_gpu(m->rank[i].gpu, g->pci))
            return &m->rank[i];
    return NULL;
}

/* The median of a figure over the job's other GPUs here; -1: there is none. */
static double of_others(const struct mu_monitor *m, const char *host, int gpu,
                        size_t offset)
{
    double value[MU_MONITOR_GPUS];
    size_t n = 0;

    for (int i = 0; i < m->ngpus; i++) {
        double v;

        memcpy(&v, (const char *)&m->gpu[i] + offset, sizeof v);
        if (i != gpu && v >= 0 && user_of(m, host, &m->gpu[i]))
            value[n++] = v;
    }
    return mu_profile_median(value, n);
}

#define OF_OTHERS(field) of_others(m, host, i, offsetof(struct mu_monitor_gpu, field))

static void late_rank(struct mu_monitor *m, const char *host, int i,
                      const struct mu_monitor_rank *r)
{
    const struct mu_monitor_gpu *g = &m->gpu[i];
    double mhz = OF_OTHERS(mhz), watts = OF_OTHERS(watts);

    if (g->mhz >= 0 && g->mhz < SLOWER * mhz)
        add(m,
            "rank %d is late, and its GPU %s runs at %.0f MHz, the others at %.0f: "
            "nvidia-smi -q -d PERFORMANCE,TEMPERATURE",
            r->rank, g->pci, g->mhz, mhz);
    else if (g->watts >= 0 && g->watts < COLD * watts)
        add(m,
            "rank %d is late, and its GPU %s takes %.0f W, the others %.0f: it waits "
            "for its CPUs or its data",
            r->rank, g->pci, g->watts, watts);
}

static void use(struct mu_monitor *m, const struct mu_monitor_gpu *g,
                const struct mu_monitor_rank *r)
{
    double memory =
        g->used_mib >= 0 && g->total_mib > 0 ? 100 * g->used_mib / g->total_mib : -1;

    if (g->utilization >= 0 && g->utilization < BUSY_LEAST)
        add(m,
            "GPU %s of rank %d is busy %.0f %% of the time, below %d %%: more "
            "num_workers, a larger batch",
            g->pci, r->rank, g->utilization, BUSY_LEAST);
    if (memory >= 0 && memory < MEMORY_LEAST)
        add(m,
            "GPU %s of rank %d has %.0f %% of its memory in use, below %d %%: a larger "
            "batch fits",
            g->pci, r->rank, memory, MEMORY_LEAST);
    else if (memory > MEMORY_MOST)
        add(m,
            "GPU %s of rank %d has %.0f %% of its memory in use, above %d %%: a little "
            "more ends the job",
            g->pci, r->rank, memory, MEMORY_MOST);
}

void mu_monitor_advise(struct mu_monitor *m, const char *host)
{
    m->nadvice = 0;
    for (int i = 0; i < m->ngpus; i++) {
        const struct mu_monitor_rank *r = user_of(m, host, &m->gpu[i]);

        if (!r)
            continue;
        if (r->last > LATE)
            late_rank(m, host, i, r);
        use(m, &m->gpu[i], r);
    }
}
