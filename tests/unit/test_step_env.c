/* SPDX-License-Identifier: BSD-3-Clause */
/* test_step_env.c - what muster.so makes of a step's environment that the sandbox's
 * Slurm cannot give it: thousands of nodes, values of any length. The slurm_ and spank_
 * functions below stand in for slurmstepd.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>
#include <cmocka.h>

#include "tests/unit/folder.h"
#include "tests/unit/hang.h"
#include "tests/unit/recorded.h"
#include "tests/unit/slurm_says.h"

#define VARS 32

static struct {
    char *name, *value;
} env[VARS];
static int nenv;

static const char *get(const char *name)
{
    for (int i = 0; i < nenv; i++)
        if (strcmp(env[i].name, name) == 0)
            return env[i].value;
    return NULL;
}

static void put(const char *name, const char *value)
{
    for (int i = 0; i < nenv; i++)
        if (strcmp(env[i].name, name) == 0) {
            free(env[i].value);
            env[i].value = strdup(value);
            return;
        }
    assert_true(nenv < VARS);
    env[nenv].name = strdup(name);
    env[nenv++].value = strdup(value);
}

spank_context_t spank_context(void)
{
    return S_CTX_REMOTE;
}

static char option_text[256]; /* of --muster, "" not given */

spank_err_t spank_option_register(spank_t sp, struct spank_option *opt)
{
    return option_text[0] && opt->cb(opt->val, option_text, 1) != 0 ? ESPANK_ERROR
                                                                    : ESPANK_SUCCESS;
}

/* As Slurm does it: what fits is copied. */
spank_err_t spank_getenv(spank_t sp, const char *name, char *buf, int len)
{
    const char *value = get(name);

    if (!value)
        return ESPANK_ENV_NOEXIST;
    return snprintf(buf, (size_t)len, "%s", value) >= len ? ESPANK_NOSPACE
                                                          : ESPANK_SUCCESS;
}

spank_err_t spank_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
    if (get(name) && !overwrite)
        return ESPANK_ENV_EXISTS;
    put(name, value);
    return ESPANK_SUCCESS;
}

spank_err_t spank_unsetenv(spank_t sp, const char *name)
{
    return ESPANK_SUCCESS;
}

static uint32_t nnodes = 2;

spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...)
{
    static char *argv[] = { "prog", NULL };
    va_list ap;

    va_start(ap, item);
    if (item == S_JOB_ARGV) {
        *va_arg(ap, int *) = 1;
        *va_arg(ap, char ***) = argv;
    } else if (item == S_STEP_ALLOC_CORES) {
        *va_arg(ap, char **) = "0-1";
    } else if (item == S_TASK_ID) {
        *va_arg(ap, int *) = 0;
    } else {
        *va_arg(ap, uint32_t *) =
            item == S_JOB_TOTAL_TASK_COUNT || item == S_JOB_NNODES
                ? nnodes
                : item == S_JOB_LOCAL_TASK_COUNT || item == S_JOB_ID;
    }
    va_end(ap);
    return ESPANK_SUCCESS;
}

typedef int hook(spank_t sp, int ac, char *av[]);

/* One task of a step on a recorded machine, whose environment is then in env[]. */
static void run_step(const char *site)
{
    char conf[] = "/tmp/muster-test.XXXXXX", word[64], path[4096], *av[] = { word };
    FILE *file = fdopen(mkstemp(conf), "w");
    void *so;

    assert_non_null(file);
    fprintf(file, "[defaults]\nenable=all\ntopo=none\ntopology=%s\n%s\n",
            recorded_machine(), site);
    fclose(file);
    snprintf(word, sizeof word, "conf=%s", conf);
    snprintf(path, sizeof path, "%s/.libs/muster.so", getenv("MUSTER_BUILDDIR"));
    so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so)
        fail_msg("%s", dlerror());
    said[0] = '\0';
    ((hook *)dlsym(so, "slurm_spank_init"))(NULL, 1, av);
    ((hook *)dlsym(so, "slurm_spank_user_init"))(NULL, 0, NULL);
    ((hook *)dlsym(so, "slurm_spank_task_init"))(NULL, 0, NULL);
    ((hook *)dlsym(so, "slurm_spank_exit"))(NULL, 0, NULL);
    dlclose(so);
    unlink(conf);
}

static int begin(void **state)
{
    for (int i = 0; i < nenv; i++) {
        free(env[i].name);
        free(env[i].value);
    }
    nenv = 0;
    nnodes = 2;
    option_text[0] = '\0';
    put("SLURM_STEP_NODELIST", "10.250.0.[1-2]");
    put("SLURM_STEP_GPUS", "0");
    put("CUDA_VISIBLE_DEVICES", "0");
    put("SLURM_PROCID", "0");
    return 0;
}

static void nothing_is_said(void)
{
    if (said[0])
        fail_msg("it says: %s", said);
}

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

/* ---- Plugins of NCCL ------------------------------------------------------------- */

static void the_profiler_is_set_where_it_is_asked_for(void **state)
{
    char path[4096];

    run_step("");
    assert_null(get("NCCL_PROFILER_PLUGIN"));
    assert_null(get("MUSTER_PROFILE"));
    begin(state);
    strcpy(option_text, "profile");
    run_step("");
    nothing_is_said();
    snprintf(path, sizeof path, "%s/.libs/libnccl-profiler-muster.so",
             getenv("MUSTER_BUILDDIR"));
    assert_string_equal(get("NCCL_PROFILER_PLUGIN"), path);
    assert_string_equal(get("MUSTER_PROFILE"), ".");
    begin(state);
    put("NCCL_PROFILER_PLUGIN", "mine");
    run_step("profile=/scratch/ledgers");
    nothing_is_said();
    assert_string_equal(get("NCCL_PROFILER_PLUGIN"), "mine");
    assert_string_equal(get("MUSTER_PROFILE"), "/scratch/ledgers");
}

static void the_tuner_is_set_with_its_table(void **state)
{
    char path[4096];

    strcpy(option_text, "tuner=/etc/muster/h200.tune,profile=no");
    run_step("profile=yes");
    nothing_is_said();
    snprintf(path, sizeof path, "%s/.libs/libnccl-tuner-muster.so",
             getenv("MUSTER_BUILDDIR"));
    assert_string_equal(get("NCCL_TUNER_PLUGIN"), path);
    assert_string_equal(get("MUSTER_TUNER"), "/etc/muster/h200.tune");
    assert_null(get("NCCL_PROFILER_PLUGIN"));
    begin(state);
    strcpy(option_text, "tuner=none");
    run_step("tuner=/etc/muster/h200.tune");
    assert_null(get("NCCL_TUNER_PLUGIN"));
}

/* The layout of an installation: LIBDIR/muster/RELEASE/muster.so. */
static void the_profiler_is_looked_for_in_the_library_s_folder(void **state)
{
    static const char *const folders[] = { "lib", "lib/muster", "lib/muster/.libs" };
    char build[4096], from[4096 + 32], top[] = "/tmp/muster-env-XXXXXX", path[64];
    FILE *file;

    snprintf(build, sizeof build, "%s", getenv("MUSTER_BUILDDIR"));
    assert_non_null(mkdtemp(top));
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", top, folders[i]);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    strcat(path, "/muster.so");
    snprintf(from, sizeof from, "%s/.libs/muster.so", build);
    assert_int_equal(symlink(from, path), 0);
    snprintf(path, sizeof path, "%s/lib/muster", top);
    setenv("MUSTER_BUILDDIR", path, 1);
    strcpy(option_text, "profile");
    run_step("");
    assert_null(get("NCCL_PROFILER_PLUGIN"));
    assert_null(get("MUSTER_PROFILE"));
    assert_non_null(strstr(said, "profile: the tasks do not see "
                                 "libnccl-profiler-muster.so beside the plugin"));
    begin(state);
    snprintf(path, sizeof path, "%s/lib/libnccl-profiler-muster.so", top);
    file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    strcpy(option_text, "profile");
    run_step("");
    nothing_is_said();
    assert_string_equal(get("NCCL_PROFILER_PLUGIN"), path);
    begin(state);
    strcpy(option_text, "accelerate");
    run_step("");
    assert_null(get("LD_PRELOAD"));
    assert_non_null(strstr(said, "accelerate: the tasks do not see "
                                 "libmuster-nccl.so beside the plugin"));
    begin(state);
    snprintf(from, sizeof from, "%s/.libs/libmuster-nccl.so", build);
    snprintf(path, sizeof path, "%s/lib/libmuster-nccl.so", top);
    assert_int_equal(symlink(from, path), 0);
    strcpy(option_text, "accelerate");
    run_step("");
    nothing_is_said();
    assert_non_null(strstr(get("LD_PRELOAD"), "libmuster-nccl.so"));
    setenv("MUSTER_BUILDDIR", build, 1);
    assert_int_equal(folder_remove(top), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_list_of_nodes_may_be_as_long_as_the_kernel_allows,
                               begin),
        cmocka_unit_test_setup(of_many_reserved_ports_the_first_is_taken, begin),
        cmocka_unit_test_setup(rank_0_s_node_is_the_one_that_srun_names, begin),
        cmocka_unit_test_setup(the_settings_of_ports_are_those_that_srun_tells, begin),
        cmocka_unit_test_setup(the_port_depends_on_bits_that_srun_sends, begin),
        cmocka_unit_test_setup(the_token_that_srun_sends_reaches_the_tasks, begin),
        cmocka_unit_test_setup(a_name_that_another_user_holds_is_no_claim_on_the_port,
                               begin),
        cmocka_unit_test_setup(there_is_a_port_also_where_all_are_ephemeral, begin),
        cmocka_unit_test_setup(a_long_value_of_the_users_stays, begin),
        cmocka_unit_test_setup(
            a_topology_file_that_the_kernel_waits_for_is_left_out_in_time, begin),
        cmocka_unit_test_setup(strict_holds_where_the_site_file_is_broken, begin),
        cmocka_unit_test_setup(the_profiler_is_set_where_it_is_asked_for, begin),
        cmocka_unit_test_setup(the_tuner_is_set_with_its_table, begin),
        cmocka_unit_test_setup(the_profiler_is_looked_for_in_the_library_s_folder,
                               begin),
    };

    return cmocka_run_group_tests_name("step_env", tests, NULL, NULL);
}
