/* SPDX-License-Identifier: BSD-3-Clause */
/* test_step_port.c - the MASTER_PORT that muster.so chooses for a step */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/step_env.h"

static void of_many_reserved_ports_the_first_is_taken(void **state)
{
    char list[2048];
    size_t at = 0;

    for (int i = 0; i < 256; i++)
        at += (size_t)sprintf(list + at, "%s%d", i ? "," : "", 12001 + 2 * i);
    put("SLURM_STEP_RESV_PORTS", list);
    run_step("");
    nothing_is_said();
    assert_string_equal(get("MASTER_PORT"), "12001");
}

static int port(void)
{
    return atoi(get("MASTER_PORT"));
}

/* So that nodes whose kernels are set up otherwise come to one port. */
static void the_settings_of_ports_are_those_that_srun_tells(void **state)
{
    put("SLURM_MUSTER_PORTS", "15000-65000;");
    run_step("");
    nothing_is_said();
    assert_true(port() >= 2232 && port() <= 14999);
    begin(state);
    put("SLURM_MUSTER_PORTS", "32768-60999;23000-23005,23008-23015");
    run_step("ports=23000-23015");
    nothing_is_said();
    assert_int_equal(port(), 23006);
    for (int i = 0; i < 3; i++) { /* what is no such line does not count */
        static const char *const bad[] = { "15000-70000;", "15000", "15000-65000;x" };

        begin(state);
        put("SLURM_MUSTER_PORTS", bad[i]);
        run_step("ports=23000-23001");
        assert_int_equal(port(), 23000);
    }
}

/* A job's id is public, the bits that srun sends are not. */
static void the_port_depends_on_bits_that_srun_sends(void **state)
{
    static const char *const bad[] = { "", "1234567", "0000000g", "123456789" };
    int plain, seeded;

    run_step("ports=20000-29999");
    plain = port();
    begin(state);
    put("SLURM_MUSTER_SEED", "12345678");
    run_step("ports=20000-29999");
    seeded = port();
    assert_int_not_equal(seeded, plain);
    begin(state);
    put("SLURM_MUSTER_SEED", "12345678"); /* on another node: the same */
    run_step("ports=20000-29999");
    assert_int_equal(port(), seeded);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        begin(state);
        put("SLURM_MUSTER_SEED", bad[i]);
        run_step("ports=20000-29999");
        assert_int_equal(port(), plain);
    }
}

/* The name by which slurmstepd claims a port, held by a process of this user. */
static pid_t hold_name(int held, uid_t user)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    int len = snprintf(at.sun_path + 1, 100, "muster-port-%d", held), ready[2];
    pid_t pid;
    char byte;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);

        if (setresuid(user, user, user) < 0 ||
            bind(fd, (struct sockaddr *)&at,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)) < 0 ||
            listen(fd, 1) < 0 || write(ready[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void a_name_that_another_user_holds_is_no_claim_on_the_port(void **state)
{
    static const struct {
        uid_t user;
        bool counts;
    } holders[] = { { 65534, false }, { 0, true } };

    if (geteuid() != 0)
        skip();
    for (size_t i = 0; i < sizeof holders / sizeof holders[0]; i++) {
        pid_t pid;

        begin(state);
        run_step("ports=20000-29999");
        nothing_is_said();
        pid = hold_name(port(), holders[i].user);
        begin(state);
        run_step("ports=20000-29999");
        if (holders[i].counts)
            assert_non_null(strstr(said, "is in use on this node by another step"));
        else
            nothing_is_said();
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}

static void there_is_a_port_also_where_all_are_ephemeral(void **state)
{
    put("SLURM_MUSTER_PORTS", "1024-65535;");
    run_step("");
    assert_true(port() >= 20000 && port() <= 32767);
    assert_non_null(strstr(said, "every port is ephemeral on this node"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(of_many_reserved_ports_the_first_is_taken, begin),
        cmocka_unit_test_setup(the_settings_of_ports_are_those_that_srun_tells, begin),
        cmocka_unit_test_setup(the_port_depends_on_bits_that_srun_sends, begin),
        cmocka_unit_test_setup(a_name_that_another_user_holds_is_no_claim_on_the_port,
                               begin),
        cmocka_unit_test_setup(there_is_a_port_also_where_all_are_ephemeral, begin),
    };

    return cmocka_run_group_tests_name("step_port", tests, NULL, NULL);
}
