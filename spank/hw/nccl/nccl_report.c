/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_report.c - reports a finding about an NCCL topology file: text, counts */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/nccl/nccl_check.h"

void mu_check_report(struct mu_check *c, enum mu_nccl_level level, int line,
                     const char *fmt, ...)
{
    char text[2048];
    struct mu_nccl_finding finding = { level, line, text };
    int *count[] = { &c->verdict->errors, &c->verdict->warnings, &c->verdict->hints };
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ++*count[level];
    c->report(c->arg, &finding);
}

void mu_check_list(const struct mu_cpuset *set, char buf[MU_CHECK_LIST])
{
    if (mu_cpuset_format(set, buf, MU_CHECK_LIST) >= MU_CHECK_LIST)
        memcpy(buf + MU_CHECK_LIST - 4, "...", 4);
    if (!buf[0])
        mu_copy(buf, MU_CHECK_LIST, "none");
}
