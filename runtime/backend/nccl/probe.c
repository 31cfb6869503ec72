/* SPDX-License-Identifier: BSD-3-Clause */
/* probe.c - gpu-probe: properties of this node's GPUs from CUDA and NCCL, as JSON
 *
 *   gpu-probe [SECONDS]    default: 10
 *
 * It is a separate program, so that the commands that use these facts need no CUDA. A
 * signal ends it after its time limit, because a driver can hang. Exit status: 0;
 * 1 = CUDA gives no device ("error" has the reason); 2 = usage.
 */
#include <cuda_runtime_api.h>
#include <jansson.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/parse.h"

#define LIMIT 10

static json_t *dotted(int version, int major_unit, int minor_unit)
{
    return json_sprintf("%d.%d", version / major_unit,
                        version % major_unit / minor_unit);
}

static json_t *uuid_text(const unsigned char *u)
{
    char text[48] = "GPU-";
    int at = 4;

    for (int i = 0; i < 16; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%02x",
                       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
    return json_string(text);
}

static json_t *device(int index)
{
    struct cudaDeviceProp prop;
    char pci[32] = "";
    json_t *gpu = json_object();

    json_object_set_new(gpu, "index", json_integer(index));
    if (cudaGetDeviceProperties(&prop, index) != cudaSuccess ||
        cudaDeviceGetPCIBusId(pci, sizeof pci, index) != cudaSuccess) {
        json_object_set_new(gpu, "error",
                            json_string(cudaGetErrorString(cudaGetLastError())));
        return gpu;
    }
    for (char *c = pci; *c; c++)
        *c = (char)(*c >= 'A' && *c <= 'F' ? *c + 'a' - 'A' : *c);
    json_object_set_new(gpu, "uuid", uuid_text((const unsigned char *)prop.uuid.bytes));
    json_object_set_new(gpu, "pci", json_string(pci));
    json_object_set_new(gpu, "name", json_string(prop.name));
    json_object_set_new(gpu, "memory", json_integer((json_int_t)prop.totalGlobalMem));
    json_object_set_new(gpu, "capability",
                        json_sprintf("%d.%d", prop.major, prop.minor));
    json_object_set_new(gpu, "multiprocessors", json_integer(prop.multiProcessorCount));
    return gpu;
}

/* peers[i][j]: device i can map the memory of device j. */
static json_t *peers(int n)
{
    json_t *rows = json_array();

    for (int i = 0; i < n; i++) {
        json_t *row = json_array();

        for (int j = 0; j < n; j++) {
            int can = i == j;

            if (i != j)
                cudaDeviceCanAccessPeer(&can, i, j);
            json_array_append_new(row, json_boolean(can));
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

int main(int argc, char **argv)
{
    struct mu_err err = { 0 };
    long limit = LIMIT;
    int n = 0, driver = 0, runtime = 0, nccl = 0;
    json_t *all = json_object(), *gpus = json_array();
    cudaError_t rc;

    if (argc > 2 ||
        (argc == 2 && mu_parse_int("SECONDS", argv[1], 1, 600, &limit, &err) < 0)) {
        fprintf(stderr, "gpu-probe: %s\nusage: gpu-probe [SECONDS]\n", err.text);
        return 2;
    }
    alarm((unsigned)limit);
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0);
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    ncclGetVersion(&nccl);
    json_object_set_new(all, "driver", dotted(driver, 1000, 10));
    json_object_set_new(all, "runtime", dotted(runtime, 1000, 10));
    json_object_set_new(
        all, "nccl",
        json_sprintf("%d.%d.%d", nccl / 10000, nccl / 100 % 100, nccl % 100));
    rc = cudaGetDeviceCount(&n);
    if (rc != cudaSuccess) {
        json_object_set_new(all, "error", json_string(cudaGetErrorString(rc)));
        n = 0;
    }
    for (int i = 0; i < n; i++)
        json_array_append_new(gpus, device(i));
    json_object_set_new(all, "gpus", gpus);
    json_object_set_new(all, "peers", peers(n));
    json_dumpf(all, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(all);
    return n > 0 ? 0 : 1;
}
