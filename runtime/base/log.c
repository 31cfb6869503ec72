/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static const char *const level_prefix[] = { "error: ", "warning: ", "", "" };

void mu_log(const struct mu_log *log, enum mu_log_level level, const char *fmt, ...)
{
    int saved = errno;
    char text[2048];
    va_list ap;

    if (!log || level > log->level)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (log->sink)
        log->sink(log->arg, level, text);
    else
        fprintf(stderr, "muster: %s%s\n", level_prefix[level], text);
    errno = saved;
}
