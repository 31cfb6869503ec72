/* SPDX-License-Identifier: BSD-3-Clause */
/* write_ledgers.c - ledgers of an invented training, for tests of muster report
 *
 * usage: write_ledgers FOLDER RANKS STEPS LATE
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/ledgers.h"

int main(int argc, char **argv)
{
    struct training t = sound_training;

    if (argc != 5) {
        fputs("usage: write_ledgers FOLDER RANKS STEPS LATE\n", stderr);
        return 2;
    }
    t.ranks = atoi(argv[2]);
    t.steps = atoi(argv[3]);
    t.late = atoi(argv[4]);
    t.from = t.steps / 3;
    t.late_us = 900;
    t.losses = 1;
    if (ledgers_write(argv[1], &t) < 0) {
        perror(argv[1]);
        return 1;
    }
    return 0;
}
