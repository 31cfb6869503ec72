/* SPDX-License-Identifier: BSD-3-Clause */
/* test_apply.c - the memory policy as it reaches the kernel, old and new; the system
 * call is ours here, since this machine may have one NUMA node only
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "spank/hw/live/apply.h"
#include "tests/unit/own_syscall.h"

/* The kernel's numbers of the policies (linux/mempolicy.h). */
enum { PREFERRED = 1, BIND = 2, PREFERRED_MANY = 5 };

static bool before_5_15;  /* knows no PREFERRED_MANY */
static uint64_t allowed;  /* nodes of the cpuset */
static int mode_set = -1; /* what was accepted */
static uint64_t nodes_set;

static bool syscall_answered(long number, const long *argument, long *result)
{
    const uint64_t *nodes = (const uint64_t *)argument[1];
    int mode = (int)argument[0];

    assert_int_equal(number, SYS_set_mempolicy);
    *result = -1;
    errno = EINVAL;
    if ((before_5_15 && mode == PREFERRED_MANY) || !(nodes[0] & allowed))
        return true;
    mode_set = mode;
    nodes_set = nodes[0];
    *result = 0;
    return true;
}

static const struct memory_case {
    const char *name;
    uint64_t nodes;
    bool strict, before_5_15;
    int mode; /* -1: refused */
    uint64_t set;
} cases[] = {
    { "one node is preferred", 0x2, false, false, PREFERRED, 0x2 },
    { "several nodes are preferred together", 0x6, false, false, PREFERRED_MANY, 0x6 },
    { "several nodes before Linux 5.15: the lowest", 0x6, false, true, PREFERRED, 0x2 },
    { "strict binds to all", 0x6, true, false, BIND, 0x6 },
    { "strict before Linux 5.15 as well", 0x6, true, true, BIND, 0x6 },
    { "no node: nothing is done", 0, false, false, -1, 0 },
    { "a node out of the cpuset is refused", 0x10, false, false, -1, 0 },
    { "and under strict", 0x10, true, false, -1, 0 },
};

static void the_policy_is_the_one_asked_for(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct memory_case *c = &cases[i];
        struct mu_cpuset mems = { { c->nodes } };
        struct mu_err err = { 0 };
        int rc;

        mode_set = -1;
        nodes_set = 0;
        allowed = 0xf;
        before_5_15 = c->before_5_15;
        rc = mu_apply_memory(&mems, c->strict, &err);
        if (mode_set != c->mode || nodes_set != c->set)
            fail_msg("%s: policy %d of nodes %#llx", c->name, mode_set,
                     (unsigned long long)nodes_set);
        if ((rc < 0) != (c->nodes == 0x10))
            fail_msg("%s: %d, %s", c->name, rc, err.text);
        if (rc < 0)
            assert_non_null(strstr(err.text, "NUMA nodes 4 failed"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_policy_is_the_one_asked_for),
    };

    return cmocka_run_group_tests_name("apply", tests, NULL, NULL);
}
