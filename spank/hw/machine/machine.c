/* SPDX-License-Identifier: BSD-3-Clause */
/* machine.c - growing the arrays of a machine while a reader fills them; its normal
 * form */
#include "spank/hw/machine/machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* More of anything than a machine can hold: a wrong or hostile file. */
#define MOST 65536

static void *grow(void **array, int *count, size_t size, const char *what,
                  struct mu_err *err)
{
    void *p;

    if (*count >= MOST) {
        mu_err_set(err, EINVAL, "more than %d %s", MOST, what);
        return NULL;
    }
    /* Doubling at powers of two: the capacity need not be stored. */
    if (*count == 0 || (*count >= 8 && (*count & (*count - 1)) == 0)) {
        p = realloc(*array, size * (*count < 8 ? 8 : (size_t)*count * 2));
        if (!p) {
            mu_err_set(err, ENOMEM, "no memory for %d %s", *count + 1, what);
            return NULL;
        }
        *array = p;
    }
    p = (char *)*array + size * (size_t)(*count)++;
    memset(p, 0, size);
    return p;
}

#define GROW(array, count, what)                                                       \
    grow((void **)&(array), &(count), sizeof *(array), (what), err)

struct mu_core *mu_add_core(struct mu_node *node, struct mu_err *err)
{
    struct mu_core *core = GROW(node->cores, node->ncores, "cores");

    if (core)
        core->numa = core->package = core->cache = -1;
    return core;
}

struct mu_numa *mu_add_numa(struct mu_node *node, struct mu_err *err)
{
    struct mu_numa *numa = GROW(node->numas, node->nnumas, "NUMA nodes");

    if (numa) {
        numa->memory = UINT64_MAX;
        numa->package = -1;
    }
    return numa;
}

static int add_index(int **array, int *count, int value, const char *what,
                     struct mu_err *err)
{
    int *slot = grow((void **)array, count, sizeof *slot, what, err);

    if (!slot)
        return -1;
    *slot = value;
    return 0;
}

struct mu_gpu *mu_add_gpu(struct mu_machine *machine, int dev, struct mu_err *err)
{
    struct mu_gpu *gpu = GROW(machine->node.gpus, machine->node.ngpus, "GPUs");

    if (!gpu || add_index(&machine->gpu_dev, &machine->ngpu_devs, dev, "GPUs", err) < 0)
        return NULL;
    gpu->sub = gpu->minor = gpu->numa = gpu->package = -1;
    return gpu;
}

struct mu_nic *mu_add_nic(struct mu_machine *machine, int dev, struct mu_err *err)
{
    struct mu_nic *nic = GROW(machine->node.nics, machine->node.nnics, "NICs");

    if (!nic || add_index(&machine->nic_dev, &machine->nnic_devs, dev, "NICs", err) < 0)
        return NULL;
    nic->numa = nic->package = -1;
    nic->active = true;
    return nic;
}

struct mu_pci_dev *mu_add_pci(struct mu_machine *machine, struct mu_err *err)
{
    struct mu_pci_dev *dev = GROW(machine->dev, machine->ndevs, "PCI devices");

    if (dev)
        dev->parent = dev->place = -1;
    return dev;
}

struct mu_place *mu_add_place(struct mu_machine *machine, struct mu_err *err)
{
    struct mu_place *place = GROW(machine->place, machine->nplaces, "PCI host bridges");

    if (place)
        place->numa = place->package = -1;
    return place;
}

int mu_node_matrices(struct mu_node *node, struct mu_err *err)
{
    size_t gn = (size_t)node->ngpus * (size_t)node->nnics;
    size_t gg = (size_t)node->ngpus * (size_t)node->ngpus;

    if (gn > 1 << 22 || gg > 1 << 22)
        return mu_err_set(err, EINVAL,
                          "%d GPUs and %d NICs are more than a machine has",
                          node->ngpus, node->nnics);
    free(node->gpu_nic);
    free(node->gpu_gpu);
    free(node->nvlinks);
    node->gpu_nic = calloc(gn + 1, sizeof *node->gpu_nic);
    node->gpu_gpu = calloc(gg + 1, sizeof *node->gpu_gpu);
    node->nvlinks = calloc(gg + 1, sizeof *node->nvlinks);
    if (!node->gpu_nic || !node->gpu_gpu || !node->nvlinks)
        return mu_err_set(err, ENOMEM, "no memory for %d GPUs and %d NICs", node->ngpus,
                          node->nnics);
    for (size_t i = 0; i < gn; i++)
        node->gpu_nic[i] = MU_NEAR_NONE;
    for (size_t i = 0; i < gg; i++)
        node->gpu_gpu[i] = MU_NEAR_NONE;
    return 0;
}

int mu_machine_finish(struct mu_machine *machine, struct mu_err *err)
{
    struct mu_node *node = &machine->node;

    /* As OS indices while the nodes change their order. */
    for (int i = 0; i < machine->nplaces; i++)
        if (machine->place[i].numa >= 0)
            machine->place[i].numa = node->numas[machine->place[i].numa].os_index;
    if (mu_node_finish(node, err) < 0)
        return -1;
    for (int i = 0; i < machine->nplaces; i++) {
        int os_index = machine->place[i].numa;

        machine->place[i].numa = -1;
        for (int n = 0; n < node->nnumas && os_index >= 0; n++)
            if (node->numas[n].os_index == os_index)
                machine->place[i].numa = n;
    }
    return 0;
}

void mu_machine_clear(struct mu_machine *machine)
{
    if (!machine)
        return;
    mu_node_clear(&machine->node);
    free(machine->dev);
    free(machine->gpu_dev);
    free(machine->nic_dev);
    free(machine->place);
    memset(machine, 0, sizeof *machine);
}
