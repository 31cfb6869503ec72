/* SPDX-License-Identifier: BSD-3-Clause */
/* slurm_says.h - Slurm's functions that print, for a test program that loads muster.so:
 * `said` holds all that they were given
 */
#ifndef MU_TEST_SLURM_SAYS_H
#define MU_TEST_SLURM_SAYS_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>

static char said[65536];

#define TALKER(name)                                                                   \
    void name(const char *fmt, ...)                                                    \
    {                                                                                  \
        size_t at = strlen(said);                                                      \
        va_list ap;                                                                    \
        va_start(ap, fmt);                                                             \
        vsnprintf(said + at, sizeof said - at, fmt, ap);                               \
        va_end(ap);                                                                    \
    }
TALKER(slurm_error)
TALKER(slurm_info)
TALKER(slurm_spank_log)

const char *spank_strerror(spank_err_t err)
{
    return "an error of the test's";
}

#endif
