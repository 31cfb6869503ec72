/* SPDX-License-Identifier: BSD-3-Clause */
/* test_step_bound.c - MUSTER_PLAN has the CPUs and memory nodes to which muster.so
 * bound the task, whatever it planned: libmuster, doctor and verify compare them. The
 * system calls are ours here, so that the kernel may refuse.
 */
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/unit/own_syscall.h"
#include "tests/unit/step_env.h"

static struct {
    uint64_t mask;    /* of this process, one word of CPUs */
    uint64_t slurms;  /* that Slurm sets in the task */
    uint64_t allowed; /* by the cgroup */
    bool refuse;      /* as seccomp does */
    bool refuse_memory;
} kernel;

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    memset(set, 0, size);
    memcpy(set, &kernel.mask, sizeof kernel.mask);
    return 0;
}

static long refused(int error)
{
    errno = error;
    return -1;
}

static long set_affinity(uint64_t wanted)
{
    if (kernel.refuse)
        return refused(EPERM);
    if (!(wanted & kernel.allowed))
        return refused(EINVAL);
    kernel.mask = wanted & kernel.allowed;
    return 0;
}

static bool syscall_answered(long number, const long *argument, long *result)
{
    if (number == SYS_sched_setaffinity)
        *result = set_affinity(*(const uint64_t *)argument[2]);
    else if (number == SYS_set_mempolicy)
        *result = kernel.refuse_memory ? refused(EPERM) : 0;
    else
        return false;
    return true;
}

static void task_starts(void)
{
    kernel.mask = kernel.slurms;
}

static const struct bound_case {
    const char *name;
    const char *option, *program;
    uint64_t slurms, allowed; /* slurms 0: a CPU outside a step that is not confined */
    bool refuse, refuse_memory;
    const char *plan; /* the part of MUSTER_PLAN */
} cases[] = {
    { "bound: the CPUs and the node of the plan", "on", "prog", 3, 3, false, false,
      ";cpus=1;mems=0;" },
    { "the kernel refuses", "on", "prog", 3, 3, true, false, ";cpus=-;mems=-;" },
    { "the cgroup has none of the CPUs", "on", "prog", 3, 1, false, false,
      ";cpus=-;mems=-;" },
    { "the cgroup has a part of them", "cpus=all", "prog", 3, 1, false, false,
      ";cpus=0;mems=-;" },
    { "the memory policy is refused", "on", "prog", 3, 3, false, true,
      ";cpus=1;mems=-;" },
    { "Slurm bound the task outside its step", "on", "prog", 0, 3, false, false,
      ";cpus=-;mems=-;" },
    { "mpirun binds its ranks itself", "on", "mpirun", 3, 3, false, false,
      ";cpus=-;mems=-;" },
    { "bind=none", "bind=none", "prog", 3, 3, false, false, ";cpus=-;mems=-;" },
    { "mem=none", "mem=none", "prog", 3, 3, false, false, ";cpus=1;mems=-;" },
};

/* Of this machine, which the plugin reads; 0: more than a word has room for. */
static uint64_t all_cpus(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);

    return n < 63 ? (UINT64_C(1) << n) - 1 : 0;
}

static void the_plan_of_a_task_has_what_was_applied(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct bound_case *c = &cases[i];

        kernel.mask = c->slurms ? 3 : all_cpus();
        if (!kernel.mask)
            continue;
        begin(state);
        nnodes = 1;
        snprintf(option_text, sizeof option_text, "%s", c->option);
        program = c->program;
        kernel.slurms = c->slurms ? c->slurms : kernel.mask + 1;
        kernel.allowed = c->allowed;
        kernel.refuse = c->refuse;
        kernel.refuse_memory = c->refuse_memory;
        run_step("");
        if (!get("MUSTER_PLAN") || !strstr(get("MUSTER_PLAN"), c->plan))
            fail_msg("%s: %s, not %s; %s", c->name, get("MUSTER_PLAN"), c->plan, said);
    }
}

/* A site's topology of a machine whose CPUs this one lacks: only planned. */
static void nothing_of_another_machine_is_applied(void **state)
{
    char path[] = "/tmp/muster-test.XXXXXX.xml", site[64];
    FILE *file = fdopen(mkstemps(path, 4), "w");

    assert_non_null(file);
    fputs("<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" "
          "affinity=\"f0000000,00000000,00000000,00000000\">"
          "<pci busid=\"0000:10:00.0\" class=\"0x030200\" vendor=\"0x10de\" "
          "link_width=\"16\"/></cpu></system>\n",
          file);
    fclose(file);
    snprintf(site, sizeof site, "[partition p]\ntopology=%s", path);
    put("SLURM_JOB_PARTITION", "p");
    kernel.mask = kernel.slurms = kernel.allowed = 3;
    kernel.refuse = kernel.refuse_memory = false;
    nnodes = 1;
    run_step(site);
    unlink(path);
    assert_non_null(get("MUSTER_PLAN"));
    if (!strstr(get("MUSTER_PLAN"), ";gpus=0000:10:00.0;cpus=-;mems=-;"))
        fail_msg("%s; %s", get("MUSTER_PLAN"), said);
    assert_int_equal(kernel.mask, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_plan_of_a_task_has_what_was_applied, begin),
        cmocka_unit_test_setup(nothing_of_another_machine_is_applied, begin),
    };

    before_task = task_starts;
    return cmocka_run_group_tests_name("step_bound", tests, NULL, NULL);
}
