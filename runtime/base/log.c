/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static const char *const level_prefix[] = { "error: ", "warning: ", "", "" };

/* From glibc 2.37 on, fprintf writes to stderr in parts of 128 bytes, and the lines of
 * several ranks get mixed. One string is one write.
 */
static void print(const char *prefix, const char *text)
{
    char line[2304];

    snprintf(line, sizeof line, "muster: %s%s\n", prefix, text);
    fputs(line, stderr);
}

void mu_print_line(const char *fmt, ...)
{
    char text[2048];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    print("", text);
}

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
        print(level_prefix[level], text);
    errno = saved;
}
