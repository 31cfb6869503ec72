/* SPDX-License-Identifier: BSD-3-Clause */
/* log.h - messages for the user, by level; pure layers have none */
#ifndef MU_LOG_H
#define MU_LOG_H

/* error: the job does not get what it asked for; warn: it runs, but slower or unbound;
 * info: one line per node; debug: one line per task.
 */
enum mu_log_level { MU_LOG_ERROR, MU_LOG_WARN, MU_LOG_INFO, MU_LOG_DEBUG };

/* Messages above `level` are dropped. sink gets one line without newline. With a NULL
 * sink the line "muster: LEVEL: text" goes to standard error.
 */
struct mu_log {
    enum mu_log_level level;
    void (*sink)(void *arg, enum mu_log_level level, const char *text);
    void *arg;
};

/* log may be NULL: nothing is written. Keeps errno. */
void mu_log(const struct mu_log *log, enum mu_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* "muster: ", the text and a newline on standard error, whatever the level, in one
 * write.
 */
void mu_print_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
