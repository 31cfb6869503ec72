/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The name in parentheses: tests/analyze.h has macros of both. */
int(mu_err_set)(struct mu_err *err, int code, const char *fmt, ...)
{
    int saved = errno;

    if (err) {
        va_list ap;

        err->code = code;
        va_start(ap, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
    }
    errno = saved;
    return -1;
}

int(mu_err_context)(struct mu_err *err, const char *fmt, ...)
{
    int saved = errno;

    if (err) {
        char context[MU_ERR_TEXT / 4];
        size_t n, keep;
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(context, sizeof context - 2, fmt, ap);
        va_end(ap);
        strcat(context, ": ");
        n = strlen(context);
        keep = strnlen(err->text, sizeof err->text - n - 1);
        memmove(err->text + n, err->text, keep);
        memcpy(err->text, context, n);
        err->text[n + keep] = '\0';
    }
    errno = saved;
    return -1;
}
