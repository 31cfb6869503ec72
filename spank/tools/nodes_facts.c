/* SPDX-License-Identifier: BSD-3-Clause */
/* nodes_facts.c - what a node reports of itself to muster plan --nodes */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/io/sysfile.h"
#include "spank/hw/live/nvml.h"
#include "spank/tools/nodes_measure.h"
#include "spank/tools/tool.h"

#define NVML_SECONDS 10.0
#define NVML_DEVICES 128

/* Slurm's address of this node without the node: "s0.s1"; "" without a topology. */
static void switches(char *out, size_t len)
{
    const char *address = getenv("SLURM_TOPOLOGY_ADDR"),
               *pattern = getenv("SLURM_TOPOLOGY_ADDR_PATTERN");
    char *node;

    out[0] = '\0';
    if (!address || !pattern || !strchr(pattern, '.') || !mu_copy(out, len, address))
        return;
    node = strrchr(out, '.');
    if (node)
        *node = '\0';
}

/* The CPU of GH200 and GB200: Arm's Neoverse V2 beside an NVIDIA GPU. */
static bool is_neoverse_v2(void)
{
    char text[4096];

    return mu_sysfile_read(mu_sysfile_root(), text, sizeof text, "/proc/cpuinfo") > 0 &&
           strstr(text, "CPU implementer\t: 0x41") && strstr(text, "CPU part\t: 0xd4f");
}

/* GPUs whose nearest CPUs are those of one package. */
static int near_gpus(void)
{
    const struct mu_ask ask = { 0 };
    struct mu_machine machine;
    int near = 0;

    if (mu_ask_machine("plan", &ask, &machine) == MU_EXIT_OK)
        for (int i = 0; i < machine.node.ngpus; i++)
            near += machine.node.gpus[i].local_known && machine.node.gpus[i].numa >= 0;
    mu_machine_clear(&machine);
    return near;
}

void mu_nodes_facts(FILE *out)
{
    struct mu_nvml_device *list = calloc(NVML_DEVICES, sizeof *list);
    int n = list ? mu_nvml_list(NULL, NVML_SECONDS, list, NVML_DEVICES) : -1, gpus = 0;
    const char *slurm = getenv("SLURM_GPUS_ON_NODE"), *fabric = "";
    char text[256];

    for (int i = 0; i < n; i++) {
        gpus += !list[i].mig;
        if (!fabric[0])
            fabric = list[i].fabric;
    }
    if (n >= 0)
        fprintf(out, " gpus=%d", gpus);
    else if (slurm && slurm[strspn(slurm, "0123456789")] == '\0')
        fprintf(out, " gpus=%.4s", slurm);
    if (fabric[0])
        fprintf(out, " nvlink=%s", fabric);
    switches(text, sizeof text);
    if (text[0])
        fprintf(out, " switches=%s", text);
    if (gpus > 0 && is_neoverse_v2())
        fprintf(out, " cpu=grace near=%d", near_gpus());
    free(list);
}
