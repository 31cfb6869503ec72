/* SPDX-License-Identifier: BSD-3-Clause */
/* cover.h - what tests/coverage puts in front of each file: a child that ends by _exit
 * writes its counts too, and no call fails on purpose while counts are written
 */
#include <unistd.h>

void __gcov_dump(void);
/* Of failing_calls.h, where it is. */
__attribute__((weak)) void mu_calls_fail_no_more(void);

/* Before the destructor of gcov, which has a higher priority. */
__attribute__((destructor)) static void mu_cover_end(void)
{
    if (mu_calls_fail_no_more)
        mu_calls_fail_no_more();
}

__attribute__((noreturn)) static inline void mu_cover_exit(int status)
{
    mu_cover_end();
    __gcov_dump();
    (_exit)(status);
}
#define _exit mu_cover_exit
