/* SPDX-License-Identifier: BSD-3-Clause */
/* test_step_env.c - what muster.so makes of a step's environment that the sandbox's
 * Slurm cannot give it: thousands of nodes, values of any length, a broken site file
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/hang.h"
#include "tests/unit/step_env.h"

static void a_list_of_nodes_may_be_as_long_as_the_kernel_allows(void **state)
{
    char *list = malloc(128 * 1024);
    size_t at = 0;

    nnodes = 5000;
    for (unsigned i = 0; i < nnodes; i++)
        at += (size_t)sprintf(list + at, "%s10.%u.%u.%u", i ? "," : "", 200 + i % 50,
                              i / 200, i % 200);
    put("SLURM_STEP_NODELIST", list);
    run_step("");
    nothing_is_said();
    assert_string_equal(get("MASTER_ADDR"), "10.200.0.0");
    assert_string_equal(get("RANK"), "0");
    free(list);
}

static void a_long_value_of_the_users_stays(void **state)
{
    char *value = malloc(10001);

    memset(value, 'x', 10000);
    value[10000] = '\0';
    put("MASTER_ADDR", value);
    put("NCCL_RAS_ADDR", value);
    run_step("");
    assert_true(strcmp(get("MASTER_ADDR"), value) == 0);
    assert_true(strcmp(get("NCCL_RAS_ADDR"), value) == 0);
    assert_null(strstr(get("MUSTER_SET"), "MASTER_ADDR"));
    assert_non_null(get("MASTER_PORT"));
    free(value);
}

static void rank_0_s_node_is_the_one_that_srun_names(void **state)
{
    put("SLURM_MUSTER_HEAD", "10.250.0.2");
    run_step("");
    assert_string_equal(get("MASTER_ADDR"), "10.250.0.2");
    begin(state);
    put("SLURM_MUSTER_HEAD", "no.node.of.the.step");
    run_step("");
    assert_string_equal(get("MASTER_ADDR"), "10.250.0.1");
}

/* Ranks without PMIx prove themselves by it. */
static void the_token_that_srun_sends_reaches_the_tasks(void **state)
{
    static const char token[] =
        "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    static const char *const bad[] = {
        "",
        "00112233445566778899aabbccddeeff00112233445566778899aabbccddeef",
        "00112233445566778899aabbccddeeff00112233445566778899aabbccddeefff",
        "00112233445566778899aabbccddeeff00112233445566778899aabbccddeefg",
    };

    put("SLURM_MUSTER_TOKEN", token);
    run_step("");
    assert_string_equal(get("MUSTER_TOKEN"), token);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        begin(state);
        put("SLURM_MUSTER_TOKEN", bad[i]);
        run_step("");
        assert_null(get("MUSTER_TOKEN"));
    }
    begin(state);
    put("SLURM_MUSTER_TOKEN", token);
    put("MUSTER_TOKEN", "mine");
    run_step("");
    assert_string_equal(get("MUSTER_TOKEN"), "mine");
}

/* The child that reads it cannot be killed; the step starts without the file. */
static void a_topology_file_that_the_kernel_waits_for_is_left_out_in_time(void **state)
{
    char file[] = "/tmp/muster-test-XXXXXX", want[128];
    time_t begun = time(NULL);

    close(mkstemp(file));
    if (!hang_alone() || !hang_begin(file)) {
        unlink(file);
        skip();
    }
    snprintf(want, sizeof want, "NCCL_TOPO_FILE is not set: %s was not read within 2 s",
             file);
    snprintf(option_text, sizeof option_text, "topo=%s", file);
    run_step("");
    hang_end();
    unlink(file);
    if (!strstr(said, want))
        fail_msg("it says: %s", said);
    assert_true(time(NULL) - begun < 8);
    assert_string_equal(get("RANK"), "0");
    assert_null(get("NCCL_TOPO_FILE"));
}

/* The task's process of a strict step ends with status 1 before the program starts. */
static int status_of_task(const char *site)
{
    int status = -1;
    pid_t pid;

    recorded_machine(); /* made by the parent */
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        run_step(site);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void strict_holds_where_the_site_file_is_broken(void **state)
{
    static const struct {
        const char *option, *site;
        int status;
    } cases[] = {
        { "strict", "mem=most", 1 },
        { "strict,omp=none", "[nonsense]", 1 },
        { "strict", "", 0 },
        { "verbose", "mem=most", 0 },
        { "off,strict", "mem=most", 0 }, /* nothing was asked for */
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(option_text, sizeof option_text, "%s", cases[i].option);
        if (status_of_task(cases[i].site) != cases[i].status)
            fail_msg("--muster=%s and '%s': not status %d", cases[i].option,
                     cases[i].site, cases[i].status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_list_of_nodes_may_be_as_long_as_the_kernel_allows,
                               begin),
        cmocka_unit_test_setup(rank_0_s_node_is_the_one_that_srun_names, begin),
        cmocka_unit_test_setup(the_token_that_srun_sends_reaches_the_tasks, begin),
        cmocka_unit_test_setup(a_long_value_of_the_users_stays, begin),
        cmocka_unit_test_setup(
            a_topology_file_that_the_kernel_waits_for_is_left_out_in_time, begin),
        cmocka_unit_test_setup(strict_holds_where_the_site_file_is_broken, begin),
    };

    return cmocka_run_group_tests_name("step_env", tests, NULL, NULL);
}
