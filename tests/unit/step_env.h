/* SPDX-License-Identifier: BSD-3-Clause */
/* step_env.h - a test program that loads muster.so acts as slurmstepd: it has one task
 * of a step, whose environment is a table of the program
 */
#ifndef MU_TEST_STEP_ENV_H
#define MU_TEST_STEP_ENV_H

#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>
#include <cmocka.h>

#include "tests/unit/recorded.h"
#include "tests/unit/slurm_says.h"

#define VARS 32

static struct {
    char *name, *value;
} env[VARS];
static int nenv;

static inline const char *get(const char *name)
{
    for (int i = 0; i < nenv; i++)
        if (strcmp(env[i].name, name) == 0)
            return env[i].value;
    return NULL;
}

static inline void put(const char *name, const char *value)
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
static const char *program = "prog";
static void (*before_task)(void); /* between the hooks of step and task; may be NULL */

spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...)
{
    static char *argv[] = { NULL, NULL };
    va_list ap;

    argv[0] = (char *)(uintptr_t)program;
    va_start(ap, item);
    if (item == S_JOB_ARGV) {
        *va_arg(ap, int *) = 1;
        *va_arg(ap, char ***) = argv;
    } else if (item == S_STEP_ALLOC_CORES) {
        *va_arg(ap, char **) = "0-1";
    } else if (item == S_TASK_ID) {
        *va_arg(ap, int *) = 0;
    } else if (item == S_JOB_ID) { /* the port of another test at a time is another */
        *va_arg(ap, uint32_t *) = (uint32_t)getpid();
    } else {
        *va_arg(ap, uint32_t *) = item == S_JOB_TOTAL_TASK_COUNT || item == S_JOB_NNODES
                                      ? nnodes
                                      : item == S_JOB_LOCAL_TASK_COUNT;
    }
    va_end(ap);
    return ESPANK_SUCCESS;
}

typedef int hook(spank_t sp, int ac, char *av[]);

/* One task of a step on a recorded machine, whose environment is then in env[]. */
static inline void run_step(const char *site)
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
    if (before_task)
        before_task();
    ((hook *)dlsym(so, "slurm_spank_task_init"))(NULL, 0, NULL);
    ((hook *)dlsym(so, "slurm_spank_exit"))(NULL, 0, NULL);
    dlclose(so);
    unlink(conf);
}

/* Two steps at once may choose the same port, and one of them warns. So of the programs
 * with this header, one runs at a time.
 */
static inline void take_turn(void)
{
    static int turn = -1;
    char path[4096];

    if (turn >= 0)
        return;
    snprintf(path, sizeof path, "%s/.libs/muster.so", getenv("MUSTER_BUILDDIR"));
    turn = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(turn >= 0 && flock(turn, LOCK_EX) == 0);
}

static inline int begin(void **state)
{
    take_turn();
    for (int i = 0; i < nenv; i++) {
        free(env[i].name);
        free(env[i].value);
    }
    nenv = 0;
    nnodes = 2;
    program = "prog";
    option_text[0] = '\0';
    put("SLURM_STEP_NODELIST", "10.250.0.[1-2]");
    put("SLURM_STEP_GPUS", "0");
    put("CUDA_VISIBLE_DEVICES", "0");
    put("SLURM_PROCID", "0");
    return 0;
}

static inline void nothing_is_said(void)
{
    if (said[0])
        fail_msg("it says: %s", said);
}

#endif
