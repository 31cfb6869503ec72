/* SPDX-License-Identifier: BSD-3-Clause */
/* messages.c - prints lines on the user's standard error */
#include <stdarg.h>
#include <stdio.h>

#include "runtime/base/parse.h"
#include "spank/plugin/plugin.h"

/* A user's bytes may be in a message, which goes to slurmd's log and a terminal too. */
static void print(const char *level, const char *host, char *text)
{
    mu_make_printable(text);
    slurm_spank_log("muster: %s%s%s%s", host, host[0] ? ": " : "", level, text);
}

static void vprint(const char *level, const struct mu_state *st, const char *fmt,
                   va_list ap)
{
    char text[2048];

    vsnprintf(text, sizeof text, fmt, ap);
    print(level, st->step.host, text);
}

void mu_info(const struct mu_state *st, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vprint("", st, fmt, ap);
    va_end(ap);
}

void mu_warn(const struct mu_state *st, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vprint("warning: ", st, fmt, ap);
    va_end(ap);
}

void mu_error(const struct mu_state *st, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vprint("error: ", st, fmt, ap);
    va_end(ap);
}

void mu_info_lines(const struct mu_state *st, char *text)
{
    char *rest = text, *line;

    while ((line = mu_parse_next(&rest, '\n')))
        if (*line || rest)
            print("", st->step.host, line);
}
