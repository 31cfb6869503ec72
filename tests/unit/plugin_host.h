/* SPDX-License-Identifier: BSD-3-Clause */
/* plugin_host.h - stands in for slurmstepd and its task, for a test program that loads
 * muster.so: the spank_ functions, which fail at the call whose number the test chose,
 * and all hooks of one step in a child
 */
#ifndef MU_TEST_PLUGIN_HOST_H
#define MU_TEST_PLUGIN_HOST_H

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static inline void *load(void)
{
    void *so = dlopen(path_of_plugin(), RTLD_NOW | RTLD_LOCAL);

    if (!so)
        fail_msg("%s", dlerror());
    return so;
}

typedef int hook(spank_t sp, int ac, char *av[]);

/* As Slurm unloads a plugin whose init has run. */
static inline void unload(void *so)
{
    ((hook *)dlsym(so, "slurm_spank_exit"))(NULL, 0, NULL);
    dlclose(so);
}

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
    int plan, rank; /* no padding, which a pipe would carry */
};

/* All hooks of one step in a child, as slurmstepd and its task would run them; call
 * number `at` fails.
 */
static inline struct outcome run_all_hooks(int at, enum site which)
{
    struct outcome out = { -1, 0, 0 };
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

#endif
