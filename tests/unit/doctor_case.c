/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_case.c - see doctor_case.h */
#include "tests/unit/doctor_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct mu_findings doctor_found;

int doctor_clear(void **state)
{
    mu_findings_clear(&doctor_found);
    return 0;
}

const struct mu_finding *doctor_finding(const char *part)
{
    for (int i = 0; i < doctor_found.n; i++)
        if (strstr(doctor_found.item[i].what, part) ||
            strstr(doctor_found.item[i].todo, part))
            return &doctor_found.item[i];
    for (int i = 0; i < doctor_found.n; i++)
        print_message("found: %s | %s\n", doctor_found.item[i].what,
                      doctor_found.item[i].todo);
    fail_msg("no finding says '%s'", part);
    return NULL;
}

void doctor_nothing_above(enum mu_severity severity)
{
    for (int i = 0; i < doctor_found.n; i++)
        if (doctor_found.item[i].severity > severity)
            fail_msg("unexpected: %s", doctor_found.item[i].what);
}

void doctor_machine(struct doctor_machine *m)
{
    *m = (struct doctor_machine){ 0 };
    for (int i = 0; i < 8; i++)
        m->cores[i] = (struct mu_core){
            .ncpus = 2, .cpu = { i, i + 8 }, .numa = i / 4, .package = i / 4
        };
    for (int n = 0; n < 2; n++) {
        m->numas[n].os_index = n;
        mu_cpuset_add_range(&m->numas[n].cpus, 4 * n, 4 * n + 3);
        mu_cpuset_add_range(&m->numas[n].cpus, 4 * n + 8, 4 * n + 11);
        m->gpus[n] = (struct mu_gpu){
            .minor = n, .numa = n, .local_known = true, .local = m->numas[n].cpus
        };
    }
    m->node = (struct mu_node){ .core_data = true,
                                .ncores = 8,
                                .cores = m->cores,
                                .nnumas = 2,
                                .numas = m->numas,
                                .ngpus = 2,
                                .gpus = m->gpus };
}
