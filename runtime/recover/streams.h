/* SPDX-License-Identifier: BSD-3-Clause */
/* streams.h - what a process that is about to end has printed
 *
 *   streams.c         stdout, stderr, the other streams of C
 *   streams_python.c  sys.stdout and sys.stderr of Python
 *
 * A process that ends by _exit or by a signal loses what its streams buffer. For a
 * small job whose stdout is a file, that is the whole log.
 */
#ifndef MU_STREAMS_H
#define MU_STREAMS_H

#include <stdbool.h>

/* Flush stdout and stderr, from any thread. A stream that another thread has locked is
 * left out. Above 0 seconds also those of Python.
 *
 * Waits at most `seconds` for a reader that does not read: then a separate thread goes
 * on with the write. A later call waits only until its own limit after that write
 * began. The same holds for a flush that another thread has begun. True: nothing is
 * left to write.
 */
bool mu_streams_flush(double seconds);

/* The same, and all files that the program has open in C. Only for a process that ends
 * without exit(): a stream that is locked for ever would keep exit() waiting.
 */
bool mu_streams_flush_all(double seconds);

/* Print a line to stderr, with "muster: " before it and a newline behind it. Waits at
 * most a second for stderr's lock and for a reader; then the line is lost.
 */
void mu_streams_print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Is there a Python interpreter, and does this thread hold its lock? */
bool mu_python_is_here(bool *holds_lock);
/* Waits for that lock and for a reader. */
void mu_python_flush(void);

#endif
