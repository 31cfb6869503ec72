/* SPDX-License-Identifier: BSD-3-Clause */
/* nvml.c - see nvml.h. The few calls are declared here: the library's header comes with
 * the CUDA toolkit, which a node need not have, and its interface is stable by name.
 */
#include "spank/hw/live/nvml.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "spank/hw/io/child.h"
#include "spank/hw/io/mig.h"
#include "spank/hw/io/sysfile.h"

typedef void *handle; /* nvmlDevice_t */

struct pci_info { /* nvmlPciInfo_t of nvmlDeviceGetPciInfo_v3 */
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char busid[32];
};

struct fabric_info { /* nvmlGpuFabricInfo_t */
    unsigned char cluster[16];
    int status; /* 0: it joined */
    unsigned clique;
    unsigned char state; /* FABRIC_JOINED: the probe has ended */
};
#define FABRIC_JOINED 3

struct calls {
    int (*init)(void);
    int (*count)(unsigned *n);
    int (*by_index)(unsigned i, handle *device);
    int (*uuid)(handle device, char *text, unsigned len);
    int (*pci)(handle device, struct pci_info *info);
    int (*mig_max)(handle device, unsigned *n); /* NULL: an old library */
    int (*mig_by_index)(handle device, unsigned i, handle *mig);
    int (*minor)(handle device, unsigned *minor);
    int (*gi)(handle mig, unsigned *id); /* GPU instance, compute instance */
    int (*ci)(handle mig, unsigned *id);
    int (*fabric)(handle device, struct fabric_info *info); /* NULL: an old library */
};

static bool load(const char *library, struct calls *c)
{
    void *lib = dlopen(library ? library[0] ? library : NULL : "libnvidia-ml.so.1",
                       RTLD_NOW | RTLD_LOCAL);
    const struct {
        void *slot;
        const char *name;
        bool needed;
    } symbols[] = {
        { &c->init, "nvmlInit_v2", true },
        { &c->count, "nvmlDeviceGetCount_v2", true },
        { &c->by_index, "nvmlDeviceGetHandleByIndex_v2", true },
        { &c->uuid, "nvmlDeviceGetUUID", true },
        { &c->pci, "nvmlDeviceGetPciInfo_v3", true },
        { &c->mig_max, "nvmlDeviceGetMaxMigDeviceCount", false },
        { &c->mig_by_index, "nvmlDeviceGetMigDeviceHandleByIndex", false },
        { &c->minor, "nvmlDeviceGetMinorNumber", false },
        { &c->gi, "nvmlDeviceGetGpuInstanceId", false },
        { &c->ci, "nvmlDeviceGetComputeInstanceId", false },
        { &c->fabric, "nvmlDeviceGetGpuFabricInfo", false },
    };

    for (size_t i = 0; lib && i < sizeof symbols / sizeof symbols[0]; i++) {
        void *at = dlsym(lib, symbols[i].name);

        if (!at && symbols[i].needed)
            return false;
        memcpy(symbols[i].slot, &at, sizeof at);
    }
    return lib != NULL;
}

/* The device file of a MIG device, which gres.conf names; 0 unknown. */
static int cap_of(const struct calls *c, handle parent, handle mig)
{
    struct mu_mig_slice slices[MU_MIG_SLICES];
    unsigned minor, gi, ci;
    int n;

    if (!c->minor || !c->gi || !c->ci || c->minor(parent, &minor) != 0 ||
        c->gi(mig, &gi) != 0 || c->ci(mig, &ci) != 0)
        return 0;
    n = mu_mig_slices(mu_sysfile_root(), (int)minor, slices);
    for (int i = 0; i < n; i++)
        if (slices[i].gi == (int)gi && slices[i].ci == (int)ci)
            return slices[i].ci_cap;
    return 0;
}

/* A machine that is no part of a rack has no cluster. */
static void fabric_of(const struct calls *c, handle device, char *out, size_t len)
{
    static const unsigned char none[sizeof((struct fabric_info *)NULL)->cluster];
    struct fabric_info info;

    memset(&info, 0, sizeof info);
    out[0] = '\0';
    if (!c->fabric || c->fabric(device, &info) != 0 || info.status != 0 ||
        info.state != FABRIC_JOINED || memcmp(info.cluster, none, sizeof none) == 0)
        return;
    for (size_t i = 0; i < sizeof info.cluster; i++)
        snprintf(out + 2 * i, len - 2 * i, "%02x", info.cluster[i]);
    snprintf(out + strlen(out), len - strlen(out), ".%u", info.clique);
}

/* parent: of a MIG device, else NULL */
static bool send_device(const struct calls *c, handle device, handle parent,
                        const char *busid, int fd)
{
    struct mu_nvml_device out = { .mig = parent != NULL };

    if (c->uuid(device, out.uuid, sizeof out.uuid) != 0)
        return true; /* left out */
    mu_copy(out.busid, sizeof out.busid, busid);
    out.cap = parent ? cap_of(c, parent, device) : 0;
    if (!parent)
        fabric_of(c, device, out.fabric, sizeof out.fabric);
    return write(fd, &out, sizeof out) == (ssize_t)sizeof out;
}

static bool send_all(const struct calls *c, int fd)
{
    unsigned n = 0, migs;

    if (c->init() != 0 || c->count(&n) != 0)
        return false;
    for (unsigned i = 0; i < n; i++) {
        struct pci_info pci;
        char busid[MU_BUSID_LEN] = "";
        handle device, mig;

        memset(&pci, 0, sizeof pci);
        if (c->by_index(i, &device) != 0 || c->pci(device, &pci) != 0 ||
            mu_busid_normal(pci.busid, busid, NULL) < 0)
            continue;
        if (!send_device(c, device, NULL, busid, fd))
            return false;
        if (!c->mig_max || !c->mig_by_index || c->mig_max(device, &migs) != 0)
            continue;
        for (unsigned k = 0; k < migs; k++)
            if (c->mig_by_index(device, k, &mig) == 0 &&
                !send_device(c, mig, device, busid, fd))
                return false;
    }
    return true;
}

static int ask(void *library, int index, int fd)
{
    struct calls calls = { 0 };

    return load(library, &calls) && send_all(&calls, fd) ? 0 : 1;
}

int mu_nvml_list(const char *library, double timeout, struct mu_nvml_device *list,
                 int max)
{
    double deadline = mu_clock_s() + timeout;
    struct mu_nvml_device one;
    struct mu_children child;
    ssize_t got = -1;
    int n = 0, status;

    if (mu_children_start(&child, 1, ask, (char *)(uintptr_t)library, NULL) == 0)
        while ((got = mu_children_read(&child, &one, sizeof one, deadline)) ==
               (ssize_t)sizeof one) {
            one.busid[sizeof one.busid - 1] = one.uuid[sizeof one.uuid - 1] =
                one.fabric[sizeof one.fabric - 1] = '\0';
            if (n < max)
                list[n++] = one;
        }
    status = mu_children_end(&child, got < 0 ? 0 : deadline);
    return got >= 0 && status == 0 ? n : -1;
}

/* A GPU that is one device in the node and several in NVML becomes several. */
static int split_gpus(const struct mu_nvml_device *list, int n, struct mu_node *node,
                      struct mu_err *err)
{
    for (int i = 0, entries; i < node->ngpus; i += entries) {
        const char *busid = node->gpus[i].busid;
        int migs = 0;

        entries = 1;
        while (i + entries < node->ngpus &&
               strcmp(busid, node->gpus[i + entries].busid) == 0)
            entries++;
        for (int k = 0; k < n; k++)
            migs += list[k].mig && strcasecmp(list[k].busid, busid) == 0;
        if (entries > 1 || migs < 2)
            continue;
        if (mu_node_split_gpu(node, i, migs, err) < 0)
            return -1;
        entries = migs;
    }
    return 0;
}

int mu_nvml_name_migs(const struct mu_nvml_device *list, int n, struct mu_node *node,
                      struct mu_err *err)
{
    int named = 0, next = 0;

    if (split_gpus(list, n, node, err) < 0)
        return -1;
    for (int i = 0; i < node->ngpus; i++) {
        struct mu_gpu *gpu = &node->gpus[i];

        if (i == 0 || strcmp(gpu->busid, node->gpus[i - 1].busid) != 0)
            next = 0; /* the first device of its function */
        while (next < n &&
               (!list[next].mig || strcasecmp(list[next].busid, gpu->busid) != 0))
            next++;
        if (next == n)
            continue;
        if (strncmp(gpu->uuid, "MIG-", 4) != 0) {
            mu_copy(gpu->uuid, sizeof gpu->uuid, list[next].uuid);
            mu_copy(gpu->label, sizeof gpu->label, list[next].uuid);
            gpu->cap = list[next].cap;
            named++;
        }
        next++;
    }
    return named;
}
