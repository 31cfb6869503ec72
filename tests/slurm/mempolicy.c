/* SPDX-License-Identifier: BSD-3-Clause */
/* mempolicy.c - prints the memory policy of the process and its NUMA nodes, such as
 * "bind 1" (a mask in hexadecimal); environment.bats runs it as a task
 */
#include <linux/mempolicy.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
    static const char *const names[] = { "default",    "preferred", "bind",
                                         "interleave", "local",     "preferred-many" };
    unsigned long nodes[16] = { 0 };
    int mode = -1;

    if (syscall(SYS_get_mempolicy, &mode, nodes, 8 * sizeof nodes, 0, 0) < 0)
        return 1;
    printf("%s %lx\n", mode >= 0 && mode < 6 ? names[mode] : "?", nodes[0]);
    return 0;
}
