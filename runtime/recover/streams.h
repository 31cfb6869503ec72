/* SPDX-License-Identifier: BSD-3-Clause */
/* streams.h - stdout and stderr of a process that is about to end
 *
 * A process that ends by _exit or by a signal loses what its streams buffer: the whole
 * log of a small job whose stdout is a file.
 */
#ifndef MU_STREAMS_H
#define MU_STREAMS_H

/* Flush stdout and stderr, from any thread. A stream that another thread has locked is
 * left out. A reader that does not read is waited for at most this many seconds: then
 * the write goes on in a thread of its own, and later calls do not wait for it. A flush
 * that another thread has begun is waited for within the same limit.
 */
void mu_streams_flush(double seconds);

/* Print a line ("muster: " before it, a newline behind it) to stderr. Does not wait
 * longer than a second for stderr's lock and for a reader: then the line is lost.
 */
void mu_streams_print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
