/* SPDX-License-Identifier: BSD-3-Clause */
/* machine.h - a node and its PCI tree, which the readers fill.
 *
 * The planner needs only struct mu_node. The tree serves those who write or check NCCL
 * topology files. They find a GPU or NIC in it by bus id, since mu_machine_finish
 * changes the order.
 */
#ifndef MU_MACHINE_H
#define MU_MACHINE_H

#include <stdio.h>

#include "spank/core/node/node.h"

enum mu_pci_kind {
    MU_PCI_HOST,   /* a host bridge: the root of a PCI hierarchy */
    MU_PCI_BRIDGE, /* a PCI-to-PCI bridge, one port of a switch or a root port */
    MU_PCI_SWITCH, /* a whole switch, ports merged, as NCCL writes it */
    MU_PCI_DEVICE,
};

struct mu_pci_dev {
    enum mu_pci_kind kind;
    int parent; /* index into dev[], smaller than its own; -1 for hosts */
    char busid[MU_BUSID_LEN];
    unsigned class_id; /* 24 bits as NCCL writes them: 0x030200 */
    unsigned vendor, device, subvendor, subdevice;
    char link_speed[32]; /* "16.0 GT/s PCIe", "" unknown */
    int link_width;      /* lanes, 0 unknown */
    int place;           /* of hosts: index into place[] */
};

/* Where a host bridge is attached to the processors. */
struct mu_place {
    int numa;               /* index into node.numas, -1: unknown or several */
    int package;            /* OS index, -1 unknown or several */
    bool known;             /* false: the firmware does not report it */
    struct mu_cpuset local; /* CPUs of the locality, those not in cores[] too */
};

struct mu_machine {
    struct mu_node node;
    int ndevs;
    struct mu_pci_dev *dev;
    int nplaces;
    struct mu_place *place;
    bool links_are_max; /* link_speed is the maximum, not the current rate */
    int ngpu_devs,
        nnic_devs; /* before mu_machine_finish: dev[] index of each GPU and NIC */
    int *gpu_dev, *nic_dev;
    char arch[16];             /* x86_64, aarch64, ppc64le, "" unknown */
    char cpu_vendor[32];       /* GenuineIntel, AuthenticAMD, "" unknown */
    int cpu_family, cpu_model; /* -1 unknown */
};

void mu_machine_clear(struct mu_machine *machine);

/* Append one zeroed element and return it, or NULL with err set. Pointers to earlier
 * elements of the same array become invalid.
 */
struct mu_core *mu_add_core(struct mu_node *node, struct mu_err *err);
struct mu_numa *mu_add_numa(struct mu_node *node, struct mu_err *err);
struct mu_gpu *mu_add_gpu(struct mu_machine *machine, int dev, struct mu_err *err);
struct mu_nic *mu_add_nic(struct mu_machine *machine, int dev, struct mu_err *err);
struct mu_pci_dev *mu_add_pci(struct mu_machine *machine, struct mu_err *err);
struct mu_place *mu_add_place(struct mu_machine *machine, struct mu_err *err);

/* Allocate gpu_nic and gpu_gpu (all MU_NEAR_NONE) and nvlinks (0) for the GPUs and NICs
 * there are now.
 */
int mu_node_matrices(struct mu_node *node, struct mu_err *err);

/* Index of the first device with this bus id, or -1. */
int mu_pci_find(const struct mu_machine *machine, const char *busid);

/* The place of the host above device `index`. */
const struct mu_place *mu_pci_place(const struct mu_machine *machine, int index);

/* Fill both path matrices of the node from the tree; before mu_machine_finish. */
int mu_pci_fill_paths(struct mu_machine *machine, struct mu_err *err);

/* mu_node_finish, with the NUMA indices of the places changed to the new order. */
int mu_machine_finish(struct mu_machine *machine, struct mu_err *err);

/* A GPU that computes, by PCI ids; display cards (a BMC's, ATI's ES1000, an integrated
 * one) are not. class_id has 24 bits.
 */
bool mu_pci_is_gpu(unsigned class_id, unsigned vendor, unsigned device);

/* Readers; all leave *machine empty on failure. name is for messages. known (NULL none)
 * is the machine that an NCCL file is about: from it come the CPUs of a NUMA node and
 * the class of a device that the file leaves out.
 */
int mu_read_hwloc_live(struct mu_machine *machine, struct mu_err *err);
int mu_read_hwloc_xml(const char *name, const char *text, size_t len,
                      struct mu_machine *machine, struct mu_err *err);
int mu_read_nccl_xml(const char *name, const char *text, size_t len,
                     const struct mu_node *known, struct mu_machine *machine,
                     struct mu_err *err);
int mu_read_smi(const char *name, const char *text, size_t len,
                struct mu_machine *machine, struct mu_err *err);

/* hwloc loads its plugins, libxml2 and what that needs among them, for the first
 * topology of a process, and unloads them after the last. A process in which others
 * read the machine too, such as slurmstepd, holds them meanwhile: one load in place of
 * two. Returns NULL where that fails, which costs time only; release accepts it.
 */
void *mu_hwloc_hold(void);
void mu_hwloc_release(void *held);

/* Write an NCCL topology file: NCCL's dialect, GPUs and NICs as leaves without gpu and
 * net elements. Fails when the source has no PCI addresses or the machine is larger
 * than NCCL's limits.
 */
int mu_nccl_write(FILE *out, const struct mu_machine *machine, struct mu_err *err);

/* One finding of a check; text has no final newline. line 0: none. */
enum mu_nccl_level { MU_NCCL_ERROR, MU_NCCL_WARNING, MU_NCCL_HINT };
struct mu_nccl_finding {
    enum mu_nccl_level level;
    int line;
    const char *text;
};

struct mu_nccl_verdict {
    bool parsable; /* by NCCL's own reader */
    int errors, warnings, hints;
};

/* Check an NCCL topology file by itself and, when machine is not NULL, against that
 * machine (here: the machine is the node this runs on). Each finding goes to `report`.
 */
void mu_nccl_check(const char *text, size_t len, const struct mu_machine *machine,
                   bool here,
                   void (*report)(void *arg, const struct mu_nccl_finding *finding),
                   void *arg, struct mu_nccl_verdict *verdict);

/* As mu_node_load_live and mu_node_load_file, with the tree. */
int mu_machine_load_live(struct mu_machine *machine, struct mu_err *err);
int mu_machine_load_file(const char *path, struct mu_machine *machine,
                         struct mu_err *err);

/* As mu_node_load_site. */
int mu_machine_load_site(const char *path, struct mu_machine *machine,
                         struct mu_err *err);

/* A whole file of at most 64 MiB into a string (a terminator is added; *len without
 * it); the caller frees *text. What is not a regular file is read up to that size.
 */
int mu_read_file(const char *path, char **text, size_t *len, struct mu_err *err);

#endif
