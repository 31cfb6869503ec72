/* SPDX-License-Identifier: BSD-3-Clause */
/* test_plugin_faults.c - muster.so where memory, files, pipes and processes run out:
 * each such call of the plugin fails in turn
 */
#include "tests/unit/failing_calls.h"
#include "tests/unit/plugin_host.h"

/* How a step ended: hooks that did not return 0, whether the task is as planned,
 * whether there was a message, and how many calls of this kind there were.
 */
struct end {
    int failed, calls;
    int plan, message; /* no padding, which a pipe would carry */
};

static struct end run_step(enum kind kind, int at, const char *option)
{
    static const char *const names[] = { "slurm_spank_init", "slurm_spank_user_init",
                                         "slurm_spank_task_init",
                                         "slurm_spank_task_exit", "slurm_spank_exit" };
    struct end end = { 0 };
    char conf[4200], *av[] = { conf };
    void *so = load();
    int n = write_conf(conf, sizeof conf, RECORDED);

    assert_int_equal(dl_iterate_phdr(find_plugin, NULL), 1);
    said[0] = '\0';
    fault.kind = kind;
    fault.fail_at = at;
    fault.calls = 0;
    for (int i = 0; i < 5; i++) {
        hook *call = (hook *)dlsym(so, names[i]);

        if (i == 1)
            registered.cb(0, option, 1);
        fault.armed = true;
        end.failed += call(NULL, i ? 0 : n, i ? NULL : av) != 0;
        fault.armed = false;
    }
    unlink(conf + 5);
    end.calls = fault.calls;
    end.plan = plan_was_set;
    end.message = said[0] != 0;
    dlclose(so);
    return end;
}

/* In a child, as a step has a slurmstepd of its own. */
static int run_in_child(enum kind kind, int at, const char *option, struct end *end)
{
    int fd[2], status = 0;
    pid_t child;

    *end = (struct end){ 0 };
    assert_int_equal(pipe(fd), 0);
    child = fork();
    if (child == 0) {
        struct end mine;

        alarm(60);
        mine = run_step(kind, at, option);
        _exit(write(fd[1], &mine, sizeof mine) != sizeof mine);
    }
    close(fd[1]);
    if (read(fd[0], end, sizeof *end) < 0)
        end->calls = -1;
    close(fd[0]);
    waitpid(child, &status, 0);
    return status;
}

/* Whichever call fails: every hook returns 0, which is why `required` and `optional`
 * act alike; a task without its plan has a message that tells why.
 */
static void a_call_that_fails_costs_a_message_and_no_step(void **state)
{
    for (int kind = 0; kind < KINDS; kind++) {
        struct end end;

        assert_int_equal(run_in_child(kind, 0, "on", &end), 0);
        assert_true(end.plan && end.failed == 0);
#ifdef OWN_MALLOC
        if (kind == MEMORY)
            continue;
#endif
        assert_true(end.calls > 0);
        for (int at = 1, total = end.calls; at <= total; at++) {
            int status = run_in_child(kind, at, "on", &end);

            if (status != 0 || end.failed)
                fail_msg("%s, call %d of %d: status %x, %d hooks failed", kinds[kind],
                         at, total, status, end.failed);
            if (!end.plan && !end.message)
                fail_msg("%s, call %d of %d: no plan and no message", kinds[kind], at,
                         total);
        }
        print_message("# %s: %d calls\n", kinds[kind], end.calls);
    }
}

/* Under strict the task ends with status 1 in task_init, or it is as planned. */
static void under_strict_the_task_is_as_planned_or_ends(void **state)
{
    for (int kind = 0; kind < KINDS; kind++) {
        struct end whole, end;
        int ended = 0;

        assert_int_equal(run_in_child(kind, 0, "strict", &whole), 0);
#ifdef OWN_MALLOC
        if (kind == MEMORY)
            continue;
#endif
        for (int at = 1; at <= whole.calls; at++) {
            int status = run_in_child(kind, at, "strict", &end);

            if (status == 0 ? !end.plan || end.failed
                            : !WIFEXITED(status) || WEXITSTATUS(status) != 1)
                fail_msg("%s, call %d of %d: status %x, plan %d", kinds[kind], at,
                         whole.calls, status, end.plan);
            ended += status != 0;
        }
        if (kind == MEMORY)
            assert_true(ended > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_that_fails_costs_a_message_and_no_step),
        cmocka_unit_test(under_strict_the_task_is_as_planned_or_ends),
    };

    recorded_machine(); /* before any child */
    return cmocka_run_group_tests_name("plugin_faults", tests, NULL, NULL);
}
