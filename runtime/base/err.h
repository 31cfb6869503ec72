/* SPDX-License-Identifier: BSD-3-Clause */
/* err.h - one error, as a sentence in a struct of the caller */
#ifndef MU_ERR_H
#define MU_ERR_H

#define MU_ERR_TEXT 1024

/* code is an errno value in runtime/base and in the plugin, a muster_status in the rest
 * of the runtime. text is one sentence without a final newline. Zero-initialise it.
 */
struct mu_err {
    int code;
    char text[MU_ERR_TEXT];
};

/* What zero-initialising does, without a kilobyte of stores: for calls that take about
 * a microsecond.
 */
static inline void mu_err_clear(struct mu_err *err)
{
    err->code = 0;
    err->text[0] = '\0';
}

/* Store code and text; err may be NULL. Keeps errno. Returns -1, so that a function
 * that fails ends with `return mu_err_set(err, EINVAL, "...");`.
 */
int mu_err_set(struct mu_err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Put context before the stored sentence ("topology: ..."). Returns -1. */
int mu_err_context(struct mu_err *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The end of a counted noun in a sentence: "%d GPU%s", n, mu_plural(n). */
static inline const char *mu_plural(long n)
{
    return n == 1 ? "" : "s";
}

#endif
