/* SPDX-License-Identifier: BSD-3-Clause */
/* messages.c - prints lines on the user's standard error */
#include <stdarg.h>
#include <stdio.h>

#include "runtime/base/parse.h"
#include "spank/plugin/plugin.h"

/* A user's bytes may be in a message, which goes to slurmd's log and a terminal too. */
static void print(const char *level, const char *host, char *text)
{
    for (char *c = text; *c; c++)
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 0x7f)
            *c = '?';
    slurm_spank_log("muster: %s%s%s%s", host, host[0] ? ": " : "", level, text);
}

void mu_info(const struct mu_state *st, const char *fmt, ...)
{
    char text[2048];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    print("", st->step.host, text);
}

void mu_warn(const struct mu_state *st, const char *fmt, ...)
{
    char text[2048];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    print("warning: ", st->step.host, text);
}

void mu_error(const struct mu_state *st, const char *fmt, ...)
{
    char text[2048];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    print("error: ", st->step.host, text);
}

void mu_info_lines(char *text)
{
    char *rest = text, *line;

    while ((line = mu_parse_next(&rest, '\n')))
        if (*line || rest)
            print("", "", line);
}
