/* SPDX-License-Identifier: BSD-3-Clause */
/* mig.c - a node with MIG devices, made up, for mig.bats: NVIDIA's library
 * (libnvidia-ml.so.1, with fake_nvml.c) and, as a SPANK plugin before Muster's, what
 * Slurm's gres plugin does with AutoDetect=nvml: it names the step's devices by their
 * UUIDs. Where the folder has a file "numbers", it does as without AutoDetect: the
 * step's devices are the numbers in that file. GPU 0 is whole, GPU 1 is cut in two.
 */
#include <slurm/spank.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/fake_nvml.h"

SPANK_PLUGIN(migs, 1);

static FILE *open_beside(const char *name)
{
    const char *dir = getenv("LD_LIBRARY_PATH");
    char path[1024];

    snprintf(path, sizeof path, "%s/%s", dir ? dir : "", name);
    return fopen(path, "r");
}

int slurm_spank_user_init(spank_t sp, int ac, char **av)
{
    FILE *numbers = open_beside("numbers");
    char list[64] = "";
    uint32_t step = 0;

    if (numbers && fscanf(numbers, "%63s", list) != 1)
        list[0] = '\0';
    if (numbers)
        fclose(numbers);
    if (spank_get_item(sp, S_JOB_STEPID, &step) != ESPANK_SUCCESS ||
        step >= 0xfffffffau)
        return 0;
    spank_setenv(sp, "CUDA_VISIBLE_DEVICES", list[0] ? list : "MIG-20,MIG-21", 1);
    if (list[0])
        spank_setenv(sp, "SLURM_STEP_GPUS", list, 1);
    return 0;
}

const struct fake_gpu fake_gpus[] = { { "00000000:E1:00.0", "" },
                                      { "00000000:E2:00.0", "mm" } };
unsigned fake_ngpus = 2;

int fake_nvml_init(void)
{
    FILE *hangs = open_beside("hangs");

    if (hangs)
        sleep(60);
    return geteuid() != getuid(); /* not with rights that it could take back */
}
