/* SPDX-License-Identifier: BSD-3-Clause */
/* hang.c - a file that answers nothing (tests/unit/hang.h), until standard input ends
 */
#include <stdio.h>
#include <unistd.h>

#include "tests/unit/hang.h"

int main(int argc, char *argv[])
{
    char byte;

    if (argc != 2 || !hang_begin(argv[1]))
        return 1;
    puts("ready");
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    hang_end();
    return 0;
}
