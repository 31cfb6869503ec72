/* SPDX-License-Identifier: BSD-3-Clause */
/* node.h - one machine as the planner sees it: cores, NUMA nodes, GPUs, NICs, links.
 *
 * spank/hw fills it from sysfs, an hwloc XML, an NCCL topology XML or the text of
 * nvidia-smi topo -m. CPU numbers are Linux numbers. NUMA nodes are given by index into
 * numas[], whose entries have the OS index. GPUs and NICs are given by index into
 * gpus[] and nics[], which are in PCI order, or in the order of a source without PCI
 * addresses.
 *
 * A GPU has four numbers, all int. The last part of a name shows which one it is:
 *
 *   gpu_num   Slurm's, in SLURM_STEP_GPUS: index among the node's GPUs as Slurm counts
 *             them (struct mu_gres_order has the node index of each)
 *   gpu_node  the node's: index into node.gpus[]. Decisions are stored in this number:
 *             alloc.gpu_node[pos], slot.gpu_node[]
 *   pos       position in the step: 0 is the step's first GPU in PCI order. gpu-bind
 *             names these (map_gpu:, mask_gpu:)
 *   gpu_cuda  CUDA's: index among the GPUs that the task can open;
 *             CUDA_VISIBLE_DEVICES names these. Other vendors' runtimes have variables
 *             and an order of their own (runtime_nth)
 *
 * If a step owns GPUs 2 and 3 of four and devices are confined, its second GPU is
 * gpu_num 3, gpu_node 3, pos 1 and gpu_cuda 1. plugin/gpus.c converts them. The minor N
 * of /dev/nvidiaN is none of these: it opens the device.
 */
#ifndef MU_NODE_H
#define MU_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/cpuset.h"
#include "runtime/base/err.h"

#define MU_CORE_CPUS 8 /* hardware threads of one core: 8 on POWER8 */
#define MU_BUSID_LEN 24
#define MU_NAME_LEN 64
#define MU_GPUS_MAX 128 /* of a machine, MIG devices included */

/* How near two devices are, or a device and a CPU; smaller is nearer. The names are
 * those of NVIDIA and NCCL. PKG is added: same package, other NUMA node (NPS4, SNC),
 * which they call SYS.
 */
enum mu_nearness {
    MU_NEAR_PIX,  /* one PCIe switch */
    MU_NEAR_PXB,  /* several PCIe switches, no host bridge */
    MU_NEAR_PHB,  /* same PCIe host bridge */
    MU_NEAR_NODE, /* same NUMA node */
    MU_NEAR_PKG,  /* same package */
    MU_NEAR_SYS,  /* between packages */
    MU_NEAR_NONE, /* unknown, or there is no such device */
};

/* "PIX" ... "SYS", "-" for NONE. */
const char *mu_nearness_name(enum mu_nearness path);

struct mu_core {
    int ncpus;
    int cpu[MU_CORE_CPUS]; /* ascending */
    int numa;              /* index into numas[], -1 unknown */
    int package;           /* OS index of the package, -1 unknown */
    /* ordinal of its outermost cache domain below the NUMA node (L3, CCD), -1 unknown
     */
    int cache;
};

struct mu_numa {
    int os_index;
    struct mu_cpuset cpus; /* online CPUs of this node itself */
    bool cpus_elsewhere;   /* it has CPUs, but none that the source may use */
    uint64_t memory;       /* bytes; 0: no memory; UINT64_MAX: unknown */
    bool gpu_memory;       /* memory of a GPU (Grace, POWER9): never for host pages */
    int package;           /* -1 unknown or several */
};

enum mu_vendor {
    MU_VENDOR_NVIDIA = 0x10de,
    MU_VENDOR_AMD = 0x1002,
    MU_VENDOR_INTEL = 0x8086
};

struct mu_gpu {
    char busid[MU_BUSID_LEN]; /* "0000:07:00.0" lower case, "" if the source has none */
    /* what plans print: the bus id, with /K for the K-th of several devices of one PCI
     * function, a MIG UUID, or GPUn where the source has no bus id */
    char label[MU_NAME_LEN];
    int sub;                 /* the K above; -1 when the function is one device */
    char uuid[MU_NAME_LEN];  /* "" unknown */
    char model[MU_NAME_LEN]; /* "" unknown */
    int vendor;              /* PCI vendor id, 0 unknown */
    /* N of its device file: /dev/nvidiaN, /dev/dri/renderDN of AMD and Intel; -1
     * unknown */
    int minor;
    int cap; /* MIG: N of its /dev/nvidia-caps/nvidia-capN, 0 unknown */
    /* The vendor's runtime counts it as its n-th device, from 1 (AMD: the KFD driver's
     * order); 0: the runtime counts along the PCI bus. */
    int runtime_nth;
    int tiles;   /* Intel: devices that one card has in the flat hierarchy; 0 unknown */
    int numa;    /* nearest NUMA node that has CPUs, index; -1 unknown */
    int package; /* -1 unknown */
    /* CPUs of the finest locality that the source reports (a CCD, a NUMA node, the
     * machine); empty: it has none of the CPUs in cores[], or the locality is unknown
     */
    struct mu_cpuset local;
    bool local_known; /* false: numa_node is -1 on a machine with several nodes */
    bool adopted;     /* its locality comes from a topology file, not from the system */
};

enum mu_link_layer {
    MU_LINK_UNKNOWN,
    MU_LINK_IB,
    MU_LINK_ETHERNET,
    MU_LINK_OPA,
    MU_LINK_SLINGSHOT,
    MU_LINK_EFA, /* Amazon's */
};

/* "InfiniBand", "Ethernet", ..., "unknown". */
const char *mu_link_layer_name(enum mu_link_layer layer);

/* An entry of a RoCE port's GID table: the address of a network interface. */
struct mu_gid {
    int port, index;
    uint8_t byte[16]; /* IPv6, or IPv4 as ::ffff:a.b.c.d */
};

#define MU_NIC_GIDS 32 /* of one NIC: each VLAN has an entry for each address */

struct mu_nic {
    char name[MU_NAME_LEN];   /* mlx5_0, cxi0, hsn0; "" if the source has none */
    char busid[MU_BUSID_LEN]; /* "" if the source has none */
    int numa;                 /* index, -1 unknown */
    int package;
    enum mu_link_layer layer;
    bool active; /* a port is up (true if the source does not report it) */
    /* rate of the fastest port in Gb/s, 0 unknown; layer is of the same port */
    double gbits;
    /* the port to name, if the other active ports of the device are of another kind; 0:
     * all ports are alike */
    int port;
    bool virtual_fn; /* an SR-IOV function whose physical function this system has */
    bool software;   /* soft-iWARP or soft-RoCE over an Ethernet card */
    bool gids_known; /* Ethernet, and the GID tables of its ports can be read */
    int ngids;       /* of RoCE v2, on the active ports that count */
    struct mu_gid gid[MU_NIC_GIDS];
    char guid[32]; /* system image GUID: equal on the ports of one card; "" unknown */
};

/* Owned arrays; free with mu_node_clear. */
struct mu_node {
    char source[MU_NAME_LEN]; /* "this node", "hwloc xml", "nccl xml", "nvidia-smi" */
    char host[MU_NAME_LEN];
    /* false: the source lists CPUs, not cores; cores[] then come from equal runs or are
     * single CPUs (smt_guess) */
    bool core_data;
    bool smt_guess; /* the source does not group CPUs into cores: note "smt?" */
    bool virtual_machine;
    int ncores;
    struct mu_core *cores; /* ascending by cpu[0] */
    int nnumas;
    struct mu_numa *numas; /* ascending by os_index */
    int *numa_distance;    /* nnumas x nnumas as in SLIT (10 = itself), or NULL */
    int ngpus;
    struct mu_gpu *gpus;
    int nnics;
    struct mu_nic *nics;
    /* RDMA devices in software: never near a GPU, wherever the kernel shows them */
    int nsoft;
    struct mu_nic *soft;
    enum mu_nearness *gpu_nic; /* ngpus x nnics */
    enum mu_nearness *gpu_gpu; /* ngpus x ngpus: the PCI path */
    int *nvlinks;              /* ngpus x ngpus: number of NVLinks (or xGMI), 0 none */
};

/* Does NCCL drive the device through verbs? Slingshot and EFA have their own libraries.
 */
bool mu_nic_has_verbs(const struct mu_nic *nic);

/* Is this the name of an RDMA device in software (siw_eth0, rxe0)? A source without
 * /sys has only names.
 */
bool mu_nic_soft_name(const char *name);

/* Append a copy to node->soft. -1: out of memory. */
int mu_node_add_soft(struct mu_node *node, const struct mu_nic *nic);

/* Move the NICs that are software from nics[] to soft[]. mu_node_finish calls it. */
int mu_node_part_soft(struct mu_node *node);

/* All zero is a valid empty node. */
void mu_node_clear(struct mu_node *node);

/* Bring a filled node into its normal form: sort cores, NUMA nodes, GPUs and NICs (and
 * the matrices with them), set labels, check that no CPU is in two cores. Readers call
 * it last. RDMA devices in software leave nics[] for soft[].
 */
int mu_node_finish(struct mu_node *node, struct mu_err *err);

/* Replace GPU `gpu` by `parts` entries that differ only in sub (0, 1, ...). The arrays
 * must be owned. Higher indices move up. The caller sets the labels.
 */
int mu_node_split_gpu(struct mu_node *node, int gpu, int parts, struct mu_err *err);

/* Write a PCI address in the form of plans ("07:00.0", "00000000:07:00.0" and upper
 * case become "0000:07:00.0"); a domain above ffff keeps its digits. *key, if not NULL,
 * sorts in PCI order. -1 if text is not a PCI address; then nothing is written.
 */
int mu_busid_normal(const char *text, char out[MU_BUSID_LEN], uint64_t *key);

/* Is a CPU of the core in the set? How many cores have a CPU in the set? */
bool mu_core_in(const struct mu_core *core, const struct mu_cpuset *set);
int mu_node_core_count(const struct mu_node *node, const struct mu_cpuset *set);

/* All CPUs of cores[]. */
void mu_node_cpus(const struct mu_node *node, struct mu_cpuset *out);

/* How many of numas[] have CPUs. */
int mu_node_numas_with_cpus(const struct mu_node *node);

/* SLIT distance between two numas[] indices; 10 for the same, 20 if unknown. */
int mu_node_distance(const struct mu_node *node, int a, int b);

/* How far a core (index into cores[]) is from a GPU. 0: it is one of the local CPUs of
 * the GPU, or the locality is unknown. Otherwise four times the SLIT distance of their
 * NUMA nodes, plus 2 between packages. Only the order of the values has a meaning.
 */
int mu_node_core_distance(const struct mu_node *node, int gpu, int core);

/* Take the locality of GPUs from `file`, an NCCL topology file of the same machine, if
 * the system does not report it (local_known is false, as in many virtual machines).
 * The paths between these GPUs and the NICs that both name are taken as well. `file` is
 * finished, too.
 * All or nothing: the file must name each such GPU by its bus id, with CPUs that are
 * whole NUMA nodes of this machine. Its own NUMA nodes must not share CPUs. Returns the
 * number of GPUs that gained a locality, 0 if all had one. On failure the sentence
 * names the contradiction, and *node is unchanged.
 */
int mu_node_adopt(struct mu_node *node, const struct mu_node *file, struct mu_err *err);

/* Index of the GPU whose label, bus id (short forms "07:00.0" and upper case too) or
 * UUID is text, or -1.
 */
int mu_node_find_gpu(const struct mu_node *node, const char *text);
/* Index of the GPU with this device minor, or -1; a negative minor matches no GPU. */
int mu_node_gpu_of_minor(const struct mu_node *node, int minor);
/* Is the GPU a MIG slice of a physical one? */
bool mu_gpu_is_slice(const struct mu_gpu *gpu);

#endif
