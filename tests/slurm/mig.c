/* SPDX-License-Identifier: BSD-3-Clause */
/* mig.c - a node with MIG devices, made up, for mig.bats: NVIDIA's library
 * (libnvidia-ml.so.1) and, as a SPANK plugin before Muster's, what Slurm's gres plugin
 * does with AutoDetect=nvml: it names the step's devices by their UUIDs. GPU 0 is
 * whole, GPU 1 is cut in two.
 */
#include <slurm/spank.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

SPANK_PLUGIN(migs, 1);

int slurm_spank_user_init(spank_t sp, int ac, char **av)
{
    uint32_t step = 0;

    if (spank_get_item(sp, S_JOB_STEPID, &step) != ESPANK_SUCCESS ||
        step >= 0xfffffffau)
        return 0;
    spank_setenv(sp, "CUDA_VISIBLE_DEVICES", "MIG-20,MIG-21", 1);
    return 0;
}

int nvmlInit_v2(void)
{
    const char *dir = getenv("LD_LIBRARY_PATH");
    char path[1024];

    snprintf(path, sizeof path, "%s/hangs", dir ? dir : "");
    if (access(path, F_OK) == 0)
        sleep(60);
    return geteuid() != getuid(); /* not with rights that it could take back */
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device)
{
    *device = (void *)(uintptr_t)(i + 1);
    return 0;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned len)
{
    uintptr_t d = (uintptr_t)device;

    snprintf(text, len, d < 10 ? "GPU-%u" : "MIG-%u", (unsigned)d);
    return 0;
}

int nvmlDeviceGetPciInfo_v3(void *device, void *info)
{
    snprintf((char *)info + 36, 32, "00000000:%s:00.0",
             (uintptr_t)device == 1 ? "E1" : "E2");
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *n)
{
    *n = (uintptr_t)device == 2 ? 2 : 0;
    return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned i, void **mig)
{
    *mig = (void *)(uintptr_t)(20 + i);
    return 0;
}
