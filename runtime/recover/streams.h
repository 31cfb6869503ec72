/* SPDX-License-Identifier: BSD-3-Clause */
/* streams.h - stdout and stderr of a process that is about to end
 *
 * A process that ends by _exit or by a signal loses what its streams buffer. For a
 * small job whose stdout is a file, that is the whole log.
 */
#ifndef MU_STREAMS_H
#define MU_STREAMS_H

#include <stdbool.h>

/* Flush stdout and stderr, from any thread. A stream that another thread has locked is
 * left out.
 *
 * Waits at most `seconds` for a reader that does not read: then a separate thread goes
 * on with the write, and later calls do not wait for it. The same limit holds for a
 * flush that another thread has begun. True: nothing is left to write.
 */
bool mu_streams_flush(double seconds);

/* Print a line to stderr, with "muster: " before it and a newline behind it. Waits at
 * most a second for stderr's lock and for a reader; then the line is lost.
 */
void mu_streams_print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
