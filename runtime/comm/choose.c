/* SPDX-License-Identifier: BSD-3-Clause */
/* choose.c - which backend: NCCL's module where there is a GPU, else the host's */
#include "runtime/comm/comm.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

/* Look for the driver's device files: a fake GPU of a test cluster has other names, so
 * the host backend serves it.
 */
static bool gpu_is_there(void)
{
    glob_t found = { 0 };
    bool any = glob("/dev/nvidia[0-9]*", 0, NULL, &found) == 0 && found.gl_pathc > 0;

    globfree(&found);
    return any && access("/dev/nvidiactl", R_OK | W_OK) == 0;
}

static int load(const char *dir, const struct mu_backend_ops **ops, void **module,
                struct mu_err *err)
{
    char path[PATH_MAX];
    void *handle;

    snprintf(path, sizeof path, "%s/backend_nccl.so", dir ? dir : MUSTER_MODULE_DIR);
    /* RTLD_LOCAL: NCCL and CUDA must not shadow symbols of the program. */
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return mu_err_set(err, MUSTER_EDEVICE, "cannot load the NCCL backend: %s",
                          dlerror());
    *ops = dlsym(handle, "mu_backend_nccl");
    if (!*ops) {
        dlclose(handle);
        return mu_err_set(err, MUSTER_EDEVICE, "%s is not a backend of libmuster",
                          path);
    }
    *module = handle;
    return 0;
}

int mu_backend_choose(enum mu_backend_choice choice, int size, const char *dir,
                      const struct mu_backend_ops **ops, void **module,
                      struct mu_err *err)
{
    *module = NULL;
    *ops = size == 1 ? &mu_backend_one_rank : &mu_backend_host;
    if (choice == MU_BACKEND_HOST || (choice == MU_BACKEND_AUTO && !gpu_is_there()))
        return 0;
    return load(dir, ops, module, err);
}
