/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_case.h - a machine to be judged, and what was found about it; shared by the
 * tests of the doctor
 */
#ifndef DOCTOR_CASE_H
#define DOCTOR_CASE_H

#include "spank/core/doctor/doctor.h"

/* What the checks found; emptied before and after each DOCTOR_TEST. */
extern struct mu_findings doctor_found;
int doctor_clear(void **state);
#define DOCTOR_TEST(f) cmocka_unit_test_setup_teardown(f, doctor_clear, doctor_clear)

/* The finding that holds `part`, or a failure that lists what there is. */
const struct mu_finding *doctor_finding(const char *part);

/* Fails when something is worse than this. */
void doctor_nothing_above(enum mu_severity severity);

/* Two packages of four cores with two threads, NUMA 0: 0-3,8-11, NUMA 1: 4-7,12-15. */
struct doctor_machine {
    struct mu_core cores[8];
    struct mu_numa numas[2];
    struct mu_gpu gpus[2];
    struct mu_node node;
};
void doctor_machine(struct doctor_machine *m);

#endif
