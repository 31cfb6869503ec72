/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_nvml.h - as much of NVIDIA's library as spank/hw/live/nvml.c calls, for made-up
 * GPUs: the program that links fake_nvml.c defines them. GPU k has the UUID GPU-k
 * from 1, the MIG devices of all GPUs MIG-20 and on. GPU k has minor number k - 1, and
 * MIG-20 is GPU instance 20, MIG-21 is 19 and so on, each with compute instance 0.
 */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

struct fake_gpu {
    const char *busid; /* as NVML prints it: 00000000:1A:00.0 */
    const char *mig;   /* a letter per MIG slot: 'm' a device, '-' none */
    int clique;        /* of cluster a0a1...af; 0: NVML reports no fabric */
};
#define FAKE_ALONE 1000   /* a clique without a cluster */
#define FAKE_JOINING 1001 /* the fabric's probe has not ended */

extern const struct fake_gpu fake_gpus[];
extern unsigned fake_ngpus;

/* What nvmlInit_v2 does and returns. */
int fake_nvml_init(void);

#endif
