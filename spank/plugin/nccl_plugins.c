/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_plugins.c - variables that load Muster's plugins for NCCL, and the library under
 * NCCL, into the task
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spank/core/env/task_env.h"
#include "spank/plugin/plugin.h"

/* NCCL copies the name into 255 bytes. */
#define NCCL_NAME_MOST 254

/* As installed, LIBDIR/muster/slurm-22.05/muster.so; as built, in one folder. */
static const char *const folders[] = { "../..", "." };

struct plugin {
    const char *key, *library, *variable, *setting; /* setting: NULL none */
};

/* The library's path; false: the task cannot open it. */
static bool find_library(const char *name, char *path)
{
    static const char here;
    char beside[PATH_MAX];
    const char *slash;
    Dl_info info;

    if (!dladdr(&here, &info) || !(slash = strrchr(info.dli_fname, '/')))
        return false;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        if (snprintf(beside, sizeof beside, "%.*s/%s/%s", (int)(slash - info.dli_fname),
                     info.dli_fname, folders[i], name) < (int)sizeof beside &&
            realpath(beside, path) && access(path, R_OK) == 0)
            return strlen(path) <= NCCL_NAME_MOST;
    return false;
}

/* The variable with the library, and the one that the library reads. */
static int add(const struct mu_state *st, bool first, struct mu_env *env,
               const struct plugin *p, const char *setting, struct mu_err *err)
{
    char path[PATH_MAX];

    if (!find_library(p->library, path)) {
        if (first)
            mu_warn(
                st,
                "%s: the tasks do not see %s beside the plugin, and run without "
                "it; install libmuster on this node, or mount it into the container",
                p->key, p->library);
        return 0;
    }
    if (mu_env_add(env, p->variable, MU_ENV_KEEP, err, "%s", path) < 0)
        return -1;
    return p->setting ? mu_env_add(env, p->setting, MU_ENV_KEEP, err, "%s", setting)
                      : 0;
}

int mu_nccl_plugins_add(const struct mu_state *st, bool first, struct mu_env *env,
                        struct mu_err *err)
{
    static const struct plugin profiler = { "profile", "libnccl-profiler-muster.so",
                                            "NCCL_PROFILER_PLUGIN", "MUSTER_PROFILE" };
    static const struct plugin tuner = { "tuner", "libnccl-tuner-muster.so",
                                         "NCCL_TUNER_PLUGIN", "MUSTER_TUNER" };
    static const struct plugin preload = { "accelerate", "libmuster-nccl.so",
                                           "LD_PRELOAD", NULL };
    const struct mu_opts *o = &st->opts;

    if (o->profile > MU_PROFILE_NO &&
        add(st, first, env, &profiler,
            o->profile == MU_PROFILE_FOLDER ? o->profile_folder : ".", err) < 0)
        return -1;
    if (o->tuner == MU_TUNER_FILE &&
        add(st, first, env, &tuner, o->tuner_file, err) < 0)
        return -1;
    if (o->accelerate == MU_FLAG_YES && add(st, first, env, &preload, NULL, err) < 0)
        return -1;
    return 0;
}
