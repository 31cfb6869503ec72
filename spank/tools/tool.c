/* SPDX-License-Identifier: BSD-3-Clause */
/* tool.c - messages of a command, and the check of its output */
#include "spank/tools/tool.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 0))) static void message(const char *command,
                                                          const char *fmt, va_list ap)
{
    fprintf(stderr, "muster %s: ", command);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
}

int mu_tool_fail(const char *command, int status, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    message(command, fmt, ap);
    va_end(ap);
    return status;
}

int mu_tool_usage(const char *command, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    message(command, fmt, ap);
    va_end(ap);
    fprintf(stderr, "muster %s: see `muster %s --help`\n", command, command);
    return MU_EXIT_USAGE;
}

int mu_tool_bad_option(const char *command, int c, char *const *argv)
{
    const char *option = argv[optind - 1];

    return c == ':' ? mu_tool_usage(command, "%s needs a value", option)
                    : mu_tool_usage(command, "no such option: %s", option);
}

int mu_tool_finish(const char *command, int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    return mu_tool_fail(command, MU_EXIT_INPUT, "cannot write the output: %s",
                        strerror(errno));
}
