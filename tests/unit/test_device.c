/* SPDX-License-Identifier: BSD-3-Clause */
/* test_device.c - which GPU muster_init makes the current device: the plan's, else the
 * one that the program has chosen; on a fake of CUDA
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/backend/nccl/nccl.h"

/* ---- CUDA: a machine of some GPUs, seen by one thread ------------------------------
 */

static const char *const pci_of[] = { "0000:1A:00.0", "0000:3D:00.0", "0000:B1:00.0" };
static int ndevices, current, sets;
static cudaError_t refusal;

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = ndevices;
    return ndevices > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    memset(prop, 0, sizeof *prop);
    memset(prop->uuid.bytes, 0x11 * (device + 1), sizeof prop->uuid.bytes);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *pci)
{
    for (int i = 0; i < ndevices; i++)
        if (strcmp(pci_of[i], pci) == 0) {
            *device = i;
            return cudaSuccess;
        }
    return cudaErrorInvalidValue;
}

cudaError_t cudaDeviceGetPCIBusId(char *pci, int len, int device)
{
    strncpy(pci, pci_of[device], (size_t)len);
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (refusal != cudaSuccess)
        return refusal;
    sets++;
    current = device;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

int mu_cuda_err(struct mu_err *err, cudaError_t rc, const char *what)
{
    return mu_err_set(err, MUSTER_EDEVICE, "%s: %d", what, (int)rc);
}

/* ---- Which device ----------------------------------------------------------------
 */

static const struct row {
    const char *name, *plan; /* MUSTER_PLAN's gpus of this rank */
    int ndevices, chosen;    /* chosen: by the program, before muster_init */
    int expect;              /* -1: refused */
} rows[] = {
    { "the plan's GPU becomes the current device", "0000:3D:00.0/1", 3, 0, 1 },
    { "the plan's GPU wins over the program's choice", "0000:1A:00.0/0", 3, 2, 0 },
    { "the first of several GPUs of the plan", "0000:B1:00.0/2,0000:1A:00.0/0", 3, 1,
      2 },
    { "without a plan the program's choice stays", "", 3, 2, 2 },
    { "a plan without GPUs leaves the program's choice", "-", 3, 1, 1 },
    { "a GPU by its UUID", "GPU-33333333-3333-3333-3333-333333333333", 3, 0, 2 },
    { "a MIG device is the only one of its process",
      "MIG-44444444-4444-4444-4444-444444444444", 1, 0, 0 },
    { "a GPU that CUDA does not show", "0000:B1:00.0/2", 2, 1, -1 },
    { "no GPU at all", "", 0, 0, -1 },
};

static void the_current_device_is_the_plans_else_the_programs(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *r = &rows[i];
        struct mu_nccl_backend b = { .env.gpus = r->plan, .device = -7 };
        struct mu_err err = { 0 };
        int rc;

        ndevices = r->ndevices;
        current = r->chosen;
        sets = 0;
        rc = mu_device_choose(&b, &err);
        if (rc != (r->expect < 0 ? -1 : 0) || (rc < 0) != (err.code == MUSTER_EDEVICE))
            fail_msg("%s: %d, %s", r->name, rc, err.text);
        if (current != (rc < 0 ? r->chosen : r->expect) || sets != (rc == 0))
            fail_msg("%s: device %d after %d calls", r->name, current, sets);
        if (rc == 0 && (b.device != current || strcmp(b.pci, pci_of[current]) != 0))
            fail_msg("%s: muster_device would be %d, %s", r->name, b.device, b.pci);
    }
}

static void a_device_that_cuda_refuses_is_an_error(void **state)
{
    struct mu_nccl_backend b = { .env.gpus = "" };
    struct mu_err err = { 0 };

    ndevices = 1;
    current = 0;
    refusal = cudaErrorInvalidDevice;
    assert_int_equal(mu_device_choose(&b, &err), -1);
    refusal = cudaSuccess;
    assert_non_null(strstr(err.text, "cannot use the GPU of this rank"));
}

static void a_call_works_on_the_ranks_device_and_leaves_the_callers(void **state)
{
    const struct mu_nccl_backend b = { .device = 2 };
    int callers;

    ndevices = 3;
    current = 1;
    assert_int_equal(mu_device_enter(&b, &callers), cudaSuccess);
    assert_int_equal(current, 2);
    mu_device_leave(&b, callers);
    assert_int_equal(current, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_works_on_the_ranks_device_and_leaves_the_callers),
        cmocka_unit_test(the_current_device_is_the_plans_else_the_programs),
        cmocka_unit_test(a_device_that_cuda_refuses_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
