/* SPDX-License-Identifier: BSD-3-Clause */
/* err.h - one error as a sentence, passed up by the caller's struct */
#ifndef MU_ERR_H
#define MU_ERR_H

#define MU_ERR_TEXT 1024

/* code is an errno value (or a muster_status in the runtime's api layer);
 * text is one sentence without a final newline. Zero-initialise before use.
 */
struct mu_err {
    int code;
    char text[MU_ERR_TEXT];
};

/* Store code and text; err may be NULL. Always returns -1 and keeps errno, so that
 * a failing function ends with `return mu_err_set(err, EINVAL, "...");`.
 */
int mu_err_set(struct mu_err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Put context in front of the sentence already there ("topology: ..."). Returns -1. */
int mu_err_context(struct mu_err *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The end of a counted noun in a sentence: "%d GPU%s", n, mu_plural(n). */
static inline const char *mu_plural(long n)
{
    return n == 1 ? "" : "s";
}

#endif
