/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_plugins.c - variables by which NCCL loads Muster's plugins into the task */
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

static int add_profiler(const struct mu_state *st, bool first, struct mu_env *env,
                        struct mu_err *err)
{
    static const char library[] = "libnccl-profiler-muster.so";
    const char *folder =
        st->opts.profile == MU_PROFILE_FOLDER ? st->opts.profile_folder : ".";
    char path[PATH_MAX];

    if (!find_library(library, path)) {
        if (first)
            mu_warn(st,
                    "profile: the tasks do not see %s beside the plugin, and run "
                    "without it; install libmuster on this node, or mount it into the "
                    "container",
                    library);
        return 0;
    }
    if (mu_env_add(env, "NCCL_PROFILER_PLUGIN", MU_ENV_KEEP, err, "%s", path) < 0)
        return -1;
    return mu_env_add(env, "MUSTER_PROFILE", MU_ENV_KEEP, err, "%s", folder);
}

int mu_nccl_plugins_add(const struct mu_state *st, bool first, struct mu_env *env,
                        struct mu_err *err)
{
    if (st->opts.profile <= MU_PROFILE_NO)
        return 0;
    return add_profiler(st, first, env, err);
}
