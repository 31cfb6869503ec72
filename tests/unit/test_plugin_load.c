/* SPDX-License-Identifier: BSD-3-Clause */
/* test_plugin_load.c - muster.so as Slurm loads it: exports, hooks, and each call into
 * Slurm failing in turn. The slurm_ and spank_ functions below stand in for the host
 * program; they fail at the call whose number the test chose.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/recorded.h"
#include "tests/unit/slurm_says.h"

static int calls, fail_at; /* spank calls so far; the one that fails, 0 none */
static spank_context_t context = S_CTX_REMOTE;
static uint32_t step_id;

static int fails(void)
{
    return ++calls == fail_at;
}

spank_context_t spank_context(void)
{
    return context;
}

static struct spank_option registered;

spank_err_t spank_option_register(spank_t sp, struct spank_option *opt)
{
    registered = *opt;
    return fails() ? ESPANK_ERROR : ESPANK_SUCCESS;
}

static const struct {
    const char *name, *value;
} environment[] = {
    { "SLURM_STEP_NODELIST", "n[1-2]" },
    { "SLURM_STEP_GPUS", "0" },
    { "CUDA_VISIBLE_DEVICES", "0" },
    { "SLURM_PROCID", "0" },
    { "SLURM_MUSTER_REQUEST", "v=1;gpu-bind=single:1" },
};

spank_err_t spank_getenv(spank_t sp, const char *name, char *buf, int len)
{
    if (fails())
        return ESPANK_ERROR;
    for (size_t i = 0; i < sizeof environment / sizeof environment[0]; i++)
        if (strcmp(name, environment[i].name) == 0) {
            snprintf(buf, (size_t)len, "%s", environment[i].value);
            return ESPANK_SUCCESS;
        }
    return ESPANK_ENV_NOEXIST;
}

static bool plan_was_set, rank_was_set;

spank_err_t spank_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
    plan_was_set |= strcmp(name, "MUSTER_PLAN") == 0;
    rank_was_set |= strcmp(name, "RANK") == 0;
    return fails() ? ESPANK_ERROR : ESPANK_SUCCESS;
}

spank_err_t spank_unsetenv(spank_t sp, const char *name)
{
    return fails() ? ESPANK_ERROR : ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...)
{
    static char *argv[] = { "prog", NULL };
    va_list ap;

    if (fails())
        return ESPANK_ERROR;
    va_start(ap, item);
    if (item == S_JOB_ARGV) {
        *va_arg(ap, int *) = 1;
        *va_arg(ap, char ***) = argv;
    } else if (item == S_STEP_ALLOC_CORES) {
        *va_arg(ap, char **) = "0-1";
    } else if (item == S_TASK_ID) {
        *va_arg(ap, int *) = 0;
    } else if (item == S_JOB_STEPID) {
        *va_arg(ap, uint32_t *) = step_id;
    } else if (item == S_JOB_TOTAL_TASK_COUNT || item == S_JOB_LOCAL_TASK_COUNT ||
               item == S_JOB_NNODES || item == S_JOB_ID) {
        *va_arg(ap, uint32_t *) = 1;
    } else {
        *va_arg(ap, uint32_t *) = 0;
    }
    va_end(ap);
    return ESPANK_SUCCESS;
}

static const char *path_of_plugin(void)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/.libs/muster.so", getenv("MUSTER_BUILDDIR"));
    return path;
}

static void *load(void)
{
    void *so = dlopen(path_of_plugin(), RTLD_NOW | RTLD_LOCAL);

    if (!so)
        fail_msg("%s", dlerror());
    return so;
}

static void every_symbol_resolves_and_every_hook_is_there(void **state)
{
    static const char *const names[] = {
        "plugin_name",
        "plugin_type",
        "plugin_version",
        "slurm_spank_init",
        "slurm_spank_init_post_opt",
        "slurm_spank_user_init",
        "slurm_spank_task_init",
        "slurm_spank_task_exit",
        "slurm_spank_exit",
        "spank_plugin_version",
    };
    void *so = load();

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!dlsym(so, names[i]))
            fail_msg("%s is missing", names[i]);
    assert_string_equal(dlsym(so, "plugin_name"), "muster");
    assert_string_equal(dlsym(so, "plugin_type"), "spank");
    dlclose(so);
}

static void case_051_the_version_is_that_of_the_headers(void **state)
{
    void *so = load();
    const unsigned int *version = dlsym(so, "plugin_version");

    assert_int_equal(*version, SLURM_VERSION_NUMBER);
    dlclose(so);
}

/* What the map names, and nothing else: Slurm runs any `init` that it finds. */
static void nothing_else_is_exported(void **state)
{
    static const char want[] =
        "plugin_name plugin_type plugin_version slurm_spank_exit "
        "slurm_spank_init slurm_spank_init_post_opt slurm_spank_task_exit "
        "slurm_spank_task_init slurm_spank_user_init spank_plugin_version ";
    char command[4200], line[256], got[4096] = "";
    FILE *nm;

    snprintf(command, sizeof command,
             "nm -D --defined-only '%s' | sed 's/.* //' | LC_ALL=C sort",
             path_of_plugin());
    nm = popen(command, "r");
    assert_non_null(nm);
    while (fgets(line, sizeof line, nm)) {
        line[strcspn(line, "\n")] = ' ';
        strncat(got, line, sizeof got - strlen(got) - 1);
    }
    assert_int_equal(pclose(nm), 0);
    assert_string_equal(got, want);
}

typedef int hook(spank_t sp, int ac, char *av[]);

/* The site file of a run: none, the usual one, named as the installed line does,
 * another one that is not there, a word that is no argument, a machine of two CPUs.
 */
enum site { NONE, USUAL, MISSING, MISSPELT, RECORDED };

static int write_conf(char *word, size_t len, enum site which)
{
    char path[] = "/tmp/muster-test.XXXXXX";
    FILE *conf;

    snprintf(word, len, "conf=%s",
             which == USUAL ? "/etc/slurm/muster.conf" : "/nonexistent/muster.conf");
    if (which == MISSPELT)
        snprintf(word, len, "config=/etc/slurm/muster.conf");
    if (which != RECORDED)
        return which != NONE;
    conf = fdopen(mkstemp(path), "w");
    assert_non_null(conf);
    fprintf(conf, "[defaults]\ntopology = %s\n", recorded_machine());
    fclose(conf);
    snprintf(word, len, "conf=%s", path);
    return 1;
}

/* What a child did: how many spank calls, or a negative number; what it set. */
struct outcome {
    int n;
    bool plan, rank;
};

/* All hooks of one step in a child, as slurmstepd and its task would run them; call
 * number `at` fails.
 */
static struct outcome run_all_hooks(int at, enum site which)
{
    struct outcome out = { -1, false, false };
    int fd[2], status;

    assert_int_equal(pipe(fd), 0);
    if (fork() == 0) {
        char conf[4200], *av[] = { conf };
        void *so = load();
        int n_av = write_conf(conf, sizeof conf, which);
        hook *init = (hook *)dlsym(so, "slurm_spank_init");
        hook *user_init = (hook *)dlsym(so, "slurm_spank_user_init");
        hook *task_init = (hook *)dlsym(so, "slurm_spank_task_init");
        hook *end = (hook *)dlsym(so, "slurm_spank_exit");

        calls = 0;
        fail_at = at;
        if (init(NULL, n_av, av) == 0 && user_init(NULL, 0, NULL) == 0 &&
            task_init(NULL, 0, NULL) == 0 && end(NULL, 0, NULL) == 0)
            out = (struct outcome){ calls, plan_was_set, rank_was_set };
        if (which == RECORDED)
            unlink(conf + 5);
        if (write(fd[1], &out, sizeof out) != sizeof out)
            _exit(2);
        _exit(0);
    }
    close(fd[1]);
    if (read(fd[0], &out, sizeof out) != sizeof out)
        out.n = -2;
    close(fd[0]);
    wait(&status);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        out.n = -3;
    return out;
}

static int run_hooks(int at, enum site which)
{
    return run_all_hooks(at, which).n;
}

static void the_hooks_return_0_whichever_call_into_slurm_fails(void **state)
{
    struct outcome whole = run_all_hooks(0, RECORDED);
    int total = whole.n;

    assert_true(whole.plan && whole.rank); /* a whole plan is carried out */
    for (int at = 1; at <= total; at++) {
        int n = run_hooks(at, RECORDED);

        if (n < 0)
            fail_msg("call %d of %d fails: %d", at, total, n);
    }
}

/* The step owns a GPU that this machine, with no recorded one in its place, lacks. */
static void without_a_plan_the_ranks_are_set_all_the_same(void **state)
{
    struct outcome out = run_all_hooks(0, NONE);

    if (out.plan)
        skip(); /* a GPU is here */
    assert_true(out.n > 0 && out.rank);
}

static void the_usual_site_file_may_be_missing(void **state)
{
    struct outcome out = run_all_hooks(0, USUAL);

    if (access("/etc/slurm/muster.conf", F_OK) == 0)
        skip(); /* a site file is here */
    assert_true(out.n > 0 && out.rank);
}

static void a_site_file_that_is_missing_leaves_the_task_alone(void **state)
{
    struct outcome out = run_all_hooks(0, MISSING);

    assert_true(out.n > 0 && !out.plan && !out.rank);
}

static void c093_a_word_that_is_no_argument_leaves_the_task_alone(void **state)
{
    struct outcome out = run_all_hooks(0, MISSPELT);

    assert_true(out.n > 0 && !out.plan && !out.rank);
}

/* Batch, interactive and extern steps: looked at for the bind request, never bound. */
static void special_steps_are_not_bound(void **state)
{
    static const uint32_t steps[] = { 0xfffffffa, 0xfffffffb, 0xfffffffc };
    int ordinary = run_hooks(0, RECORDED);

    for (int i = 0; i < 3; i++) {
        step_id = steps[i];
        if (run_hooks(0, RECORDED) >= ordinary)
            fail_msg("step %x is treated as a step of tasks", steps[i]);
    }
    step_id = 0;
}

static void the_option_is_checked_in_srun_and_only_copied_as_root(void **state)
{
    void *so = load();

    said[0] = '\0';
    assert_int_equal(((hook *)dlsym(so, "slurm_spank_init"))(NULL, 0, NULL), 0);
    assert_string_equal(registered.name, "muster");
    assert_int_equal(registered.cb(0, "bogus", 1), 0);
    assert_string_equal(said, "");
    assert_int_equal(registered.cb(0, "bogus", 0), -1);
    assert_non_null(strstr(said, "unknown key 'bogus'"));
    assert_int_equal(registered.cb(0, "on", 0), 0);
    assert_int_equal(registered.cb(0, NULL, 0), 0);
    dlclose(so);
}

static void a_host_file_that_is_a_pipe_is_left_to_srun(void **state)
{
    void *so = load();
    char dir[] = "/tmp/muster-test-XXXXXX", path[64], got[8] = "";
    int fd;

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/hosts", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    fd = open(path, O_RDWR | O_NONBLOCK);
    assert_int_equal(write(fd, "n7\n", 3), 3);
    setenv("SLURM_HOSTFILE", path, 1);
    context = S_CTX_LOCAL;
    assert_int_equal(((hook *)dlsym(so, "slurm_spank_init"))(NULL, 0, NULL), 0);
    assert_null(getenv("SLURM_MUSTER_HEAD"));
    assert_int_equal(read(fd, got, sizeof got), 3);
    assert_string_equal(got, "n7\n");
    context = S_CTX_REMOTE;
    unsetenv("SLURM_HOSTFILE");
    close(fd);
    unlink(path);
    rmdir(dir);
    dlclose(so);
}

static void an_unknown_word_in_plugstack_is_named(void **state)
{
    char *av[] = { "config=/x" };
    void *so = load();

    said[0] = '\0';
    assert_int_equal(((hook *)dlsym(so, "slurm_spank_init"))(NULL, 1, av), 0);
    assert_non_null(strstr(said, "unknown argument"));
    dlclose(so);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_symbol_resolves_and_every_hook_is_there),
        cmocka_unit_test(case_051_the_version_is_that_of_the_headers),
        cmocka_unit_test(nothing_else_is_exported),
        cmocka_unit_test(the_hooks_return_0_whichever_call_into_slurm_fails),
        cmocka_unit_test(without_a_plan_the_ranks_are_set_all_the_same),
        cmocka_unit_test(the_usual_site_file_may_be_missing),
        cmocka_unit_test(a_site_file_that_is_missing_leaves_the_task_alone),
        cmocka_unit_test(c093_a_word_that_is_no_argument_leaves_the_task_alone),
        cmocka_unit_test(special_steps_are_not_bound),
        cmocka_unit_test(the_option_is_checked_in_srun_and_only_copied_as_root),
        cmocka_unit_test(a_host_file_that_is_a_pipe_is_left_to_srun),
        cmocka_unit_test(an_unknown_word_in_plugstack_is_named),
    };

    recorded_machine(); /* before any child */
    return cmocka_run_group_tests_name("plugin_load", tests, NULL, NULL);
}
