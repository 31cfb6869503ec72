/* SPDX-License-Identifier: BSD-3-Clause */
/* own_syscall.h - syscall() of the test program, in place of libc's. The program
 * defines syscall_answered: it may look at a call, and answer it in the kernel's place.
 */
#ifndef TEST_OWN_SYSCALL_H
#define TEST_OWN_SYSCALL_H

#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>

/* True: *result is the answer, with errno; false: the kernel is asked. */
static bool syscall_answered(long number, const long *argument, long *result);

/* Like libc's, it takes six arguments from where they would be, whatever was passed. */
__attribute__((no_sanitize("address"))) long syscall(long number, ...)
{
    long a[6], result;
    va_list ap;

    va_start(ap, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (syscall_answered(number, a, &result))
        return result;
    return ((__typeof__(&syscall))dlsym(RTLD_NEXT, "syscall"))(number, a[0], a[1], a[2],
                                                               a[3], a[4], a[5]);
}

#endif
