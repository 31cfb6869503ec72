/* SPDX-License-Identifier: BSD-3-Clause */
/* checkpoints.h - a world of one with a folder of checkpoints whose items tell the step
 */
#ifndef TEST_CHECKPOINTS_H
#define TEST_CHECKPOINTS_H

#include <stdint.h>

#include "runtime/muster.h"

#define WORDS 300000 /* more than one block */

extern struct muster *m;
extern char folder[64];
extern uint64_t weights[WORDS], odd[3];
extern struct muster_item items[2];

/* Of a group of tests: m. */
int alone(void **state);
int together(void **state);
/* Of a test: the folder. */
int make_folder(void **state);
int remove_folder(void **state);
#define IN_A_FOLDER(test)                                                              \
    cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

/* Every word tells the step, so a mixture of two saves shows. */
void fill(uint64_t step);
int holds(uint64_t step);

struct muster_checkpoint *opened(const struct muster_checkpoint_options *options);
/* The file of a step. */
void path_of(char *path, uint64_t step);
int exists(uint64_t step);

#endif
