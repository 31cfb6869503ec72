/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_nvml.c - see fake_nvml.h. A handle is the number in the UUID. */
#include "tests/unit/fake_nvml.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define FIRST_MIG 20
#define NOT_FOUND 6

int nvmlInit_v2(void)
{
    return fake_nvml_init();
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = fake_ngpus;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device)
{
    *device = (void *)(uintptr_t)(i + 1);
    return 0;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned len)
{
    unsigned d = (unsigned)(uintptr_t)device;

    snprintf(text, len, d < FIRST_MIG ? "GPU-%u" : "MIG-%u", d);
    return 0;
}

struct pci_info {
    char legacy[16];
    unsigned numbers[5];
    char busid[32];
};

int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *info)
{
    snprintf(info->busid, sizeof info->busid, "%s",
             fake_gpus[(uintptr_t)device - 1].busid);
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *n)
{
    *n = (unsigned)strlen(fake_gpus[(uintptr_t)device - 1].mig);
    return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned i, void **mig)
{
    unsigned number = FIRST_MIG, gpu = (unsigned)(uintptr_t)device - 1;

    for (unsigned g = 0; g <= gpu; g++)
        for (const char *slot = fake_gpus[g].mig; *slot; slot++) {
            if (g == gpu && slot - fake_gpus[g].mig == i) {
                *mig = (void *)(uintptr_t)number;
                return *slot == 'm' ? 0 : NOT_FOUND;
            }
            number += *slot == 'm';
        }
    return NOT_FOUND;
}

int nvmlDeviceGetMinorNumber(void *device, unsigned *minor)
{
    *minor = (unsigned)(uintptr_t)device - 1;
    return 0;
}

int nvmlDeviceGetGpuInstanceId(void *mig, unsigned *id)
{
    *id = 2 * FIRST_MIG - (unsigned)(uintptr_t)mig;
    return 0;
}

int nvmlDeviceGetComputeInstanceId(void *mig, unsigned *id)
{
    *id = 0;
    return 0;
}

/* nvmlGpuFabricInfo_t */
struct fabric_info {
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
};

int nvmlDeviceGetGpuFabricInfo(void *device, struct fabric_info *info)
{
    const struct fake_gpu *gpu = &fake_gpus[(uintptr_t)device - 1];

    if (!gpu->clique)
        return NOT_FOUND;
    for (int i = 0; i < 16; i++)
        info->cluster[i] = (unsigned char)(gpu->clique == FAKE_ALONE ? 0 : 0xa0 + i);
    info->status = 0;
    info->state = gpu->clique == FAKE_JOINING ? 2 : 3;
    info->clique = (unsigned)gpu->clique;
    return 0;
}
