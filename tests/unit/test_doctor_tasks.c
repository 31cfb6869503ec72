/* SPDX-License-Identifier: BSD-3-Clause */
/* test_doctor_tasks.c - the doctor judges the limits of the job's tasks, where these
 * are lower than those of its own shell
 *
 * The task is a real process: its parent, this program, has slurmstepd's name.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "spank/tools/doctor_facts.h"

#define KIB UINT64_C(1024)
#define NO MU_UNLIMITED

#define IB                                                                             \
    {                                                                                  \
        .name = "mlx5_0", .layer = MU_LINK_IB, .active = true                          \
    }

#define ADDRESSES (UINT64_C(1) << 30) /* of each task; the shell has no limit */

static const struct task_case {
    const char *name;
    struct mu_limits shell;
    uint64_t locked;        /* the task's soft limit */
    const char *job, *step; /* of the task; the doctor is in step 4 of job 77 */
    const char *locks;      /* what is found, NULL nothing */
    bool counts;            /* the task's addresses are judged */
} cases[] = {
    { "the task's locked memory is lower",
      { true, NO, NO, NO },
      64 * KIB,
      "77",
      "0",
      "may lock 64 KiB of memory (ulimit -l), but mlx5_0 needs",
      true },
    { "both are limited",
      { true, 256 * KIB, NO, NO },
      32 * KIB,
      "77",
      "0",
      "may lock 32 KiB of memory",
      true },
    { "the shell's is lower: its next step has it",
      { true, 16 * KIB, NO, NO },
      64 * KIB,
      "77",
      "0",
      "may lock 16 KiB of memory",
      true },
    { "a task of the doctor's own step",
      { true, NO, NO, NO },
      64 * KIB,
      "77",
      "4",
      NULL,
      false },
    { "a task of another job", { true, NO, NO, NO }, 64 * KIB, "78", "0", NULL, false },
};

static void lower_soft(__rlimit_resource_t resource, uint64_t bytes)
{
    struct rlimit limit;

    if (getrlimit(resource, &limit) < 0)
        _exit(1);
    limit.rlim_cur = bytes;
    if (setrlimit(resource, &limit) < 0)
        _exit(1);
}

/* Returns its pid when it has its own environment; it ends when *hold is closed. */
static pid_t start_task(const struct task_case *c, int *hold)
{
    char job[32], step[32], *env[] = { job, step, NULL };
    int wait_for[2], begun[2];
    char failed;
    pid_t pid;

    snprintf(job, sizeof job, "SLURM_JOB_ID=%s", c->job);
    snprintf(step, sizeof step, "SLURM_STEP_ID=%s", c->step);
    assert_int_equal(pipe(wait_for), 0);
    assert_int_equal(pipe2(begun, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(wait_for[1]);
        dup2(wait_for[0], 0);
        lower_soft(RLIMIT_MEMLOCK, c->locked);
        lower_soft(RLIMIT_AS, ADDRESSES);
        execle("/bin/cat", "cat", (char *)NULL, env);
        (void)!write(begun[1], "x", 1);
        _exit(1);
    }
    close(wait_for[0]);
    close(begun[1]);
    /* exec closes the other end */
    assert_int_equal(read(begun[0], &failed, 1), 0);
    close(begun[0]);
    *hold = wait_for[1];
    return pid;
}

static void expect(const struct task_case *c, const struct mu_findings *found,
                   const char *about, const char *what)
{
    const char *seen = NULL;

    for (int i = 0; i < found->n; i++)
        if (strstr(found->item[i].what, about))
            seen = found->item[i].what;
    if (what ? !seen || !strstr(seen, what) : seen != NULL)
        fail_msg("%s: '%s', not '%s'", c->name, seen ? seen : "", what ? what : "");
}

static void check(const struct task_case *c)
{
    static char job[] = "SLURM_JOB_ID=77", step[] = "SLURM_STEP_ID=4";
    static struct mu_doctor_input in;
    char *env[] = { job, step, NULL };
    struct mu_gpu gpu = { .numa = -1 };
    struct mu_nic nic = IB;
    struct mu_node node = { .ngpus = 1, .gpus = &gpu, .nnics = 1, .nics = &nic };
    struct mu_findings found = { 0 };
    int hold, status;
    pid_t task = start_task(c, &hold);

    memset(&in, 0, sizeof in);
    in.facts = (struct mu_facts){ .node = &node, .env = env, .limits = c->shell };
    mu_doctor_tasks(&in);
    mu_doctor_limits(&in.facts, &found);
    close(hold);
    assert_int_equal(waitpid(task, &status, 0), task);
    expect(c, &found, "(ulimit -l)", c->locks);
    expect(c, &found, "(ulimit -v)", c->counts ? "may have 1 GiB of virtual" : NULL);
    mu_findings_clear(&found);
}

static void c095_limits_of_the_tasks_count_where_they_are_lower(void **state)
{
    prctl(PR_SET_NAME, "slurmstepd");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c095_limits_of_the_tasks_count_where_they_are_lower),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
