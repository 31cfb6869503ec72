/* SPDX-License-Identifier: BSD-3-Clause */
/* messages.c - prints lines on the user's standard error */
#include <stdarg.h>
#include <stdio.h>

#include "runtime/base/parse.h"
#include "spank/plugin/plugin.h"

void mu_info(const struct mu_state *st, const char *fmt, ...)
{
    char text[2048];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    slurm_spank_log("muster: %s: %s", st->step.host, text);
}

void mu_warn(const struct mu_state *st, const char *fmt, ...)
{
    char text[2048];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (st->step.host[0])
        slurm_spank_log("muster: %s: warning: %s", st->step.host, text);
    else
        slurm_spank_log("muster: warning: %s", text);
}

void mu_info_lines(char *text)
{
    char *rest = text, *line;

    while ((line = mu_parse_next(&rest, '\n')))
        if (*line || rest)
            slurm_spank_log("muster: %s", line);
}
