/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_values.c - a record's time, a median, a process's name */
#include <stdlib.h>

#include "runtime/tools/profile.h"

static int by_value(const void *one, const void *other)
{
    const double *a = one, *b = other;

    return (*a > *b) - (*a < *b);
}

double mu_profile_median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_value);
    return n == 0  ? -1
           : n % 2 ? values[n / 2]
                   : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double mu_profile_gpu_us(const struct mu_ledger_call *call)
{
    if (!call->gpu_begin || call->gpu_end <= call->gpu_begin || call->ended == 0 ||
        call->ended < call->began)
        return -1;
    return (double)(call->gpu_end - call->gpu_begin) * 1e-3;
}

const char *mu_profile_name(const struct mu_profile *p, int file, char *buf,
                            size_t size)
{
    const struct mu_ledger_head *head = p->files[file].head;

    if (p->parts[file].rank >= 0)
        snprintf(buf, size, "rank %d (%s)", p->parts[file].rank, head->host);
    else
        snprintf(buf, size, "process %d (%s)", head->pid, head->host);
    return buf;
}

double mu_profile_moment(const struct mu_profile *p, int file,
                         const struct mu_ledger_call *call)
{
    const struct mu_ledger_head *head = p->files[file].head;

    return (double)head->opened_real * 1e-9 +
           ((double)call->begin - (double)head->opened_monotonic) * 1e-9;
}

bool mu_profile_is_remote(const struct mu_ledger_head *head)
{
    return head->cpu_node > 0 && head->gpu_node > 0 && head->cpu_node != head->gpu_node;
}
