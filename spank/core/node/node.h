/* SPDX-License-Identifier: BSD-3-Clause */
/* node.h - one machine as the planner sees it: cores, NUMA nodes, GPUs, NICs, links.
 *
 * Filled by spank/hw from sysfs, an hwloc XML, an NCCL topology XML or the text of
 * nvidia-smi topo -m; read by everything else. CPU numbers are Linux numbers, NUMA
 * nodes are referred to by index into numas[] (their OS index is in the entry), GPUs
 * and NICs by index into gpus[] and nics[], which are in PCI order (or in the order of
 * the source where it names no PCI addresses).
 *
 * A GPU has four numbers, all int; a name's last part says which one it is:
 *
 *   gpu_num   Slurm's, in SLURM_STEP_GPUS: place among the node's GPUs as Slurm counts
 *             them (struct mu_gres_order has the node index of each)
 *   gpu_node  the node's: index into node.gpus[]. Decisions travel in this number:
 *             alloc.gpu_node[pos], slot.gpu_node[]
 *   pos       position in the step: 0 is the step's first GPU in PCI order. gpu-bind
 *             names these (map_gpu:, mask_gpu:)
 *   gpu_cuda  CUDA's: place among the GPUs that the task can open, which is what
 *             CUDA_VISIBLE_DEVICES names
 *
 * Where a step owns GPUs 2 and 3 of four and devices are confined, its second GPU is
 * gpu_num 3, gpu_node 3, pos 1 and gpu_cuda 1. plugin/gpus.c translates them. The minor
 * N of /dev/nvidiaN is none of these: it opens the device.
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

/* How near two devices are, or a device and a CPU; smaller is nearer. NVIDIA's and
 * NCCL's vocabulary, with PKG added: same package, other NUMA node (NPS4, SNC), which
 * they call SYS.
 */
enum mu_nearness {
    MU_NEAR_PIX,  /* one PCIe switch */
    MU_NEAR_PXB,  /* several PCIe switches, no host bridge */
    MU_NEAR_PHB,  /* same PCIe host bridge */
    MU_NEAR_NODE, /* same NUMA node */
    MU_NEAR_PKG,  /* same package */
    MU_NEAR_SYS,  /* between packages */
    MU_NEAR_NONE, /* not known, or there is no such device */
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
    struct mu_cpuset cpus; /* online CPUs of this node itself; empty: memory only */
    uint64_t memory; /* bytes; 0: no memory; UINT64_MAX: the source does not say */
    bool gpu_memory; /* memory of a GPU (Grace, POWER9): never for host pages */
    int package;     /* -1 unknown or several */
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
    int minor;               /* N of /dev/nvidiaN, -1 unknown */
    int numa;                /* nearest NUMA node that has CPUs, index; -1 unknown */
    int package;             /* -1 unknown */
    /* CPUs of the finest locality the source knows (a CCD, a NUMA node, the machine);
     * empty: it has none of the CPUs in cores[], or locality is unknown */
    struct mu_cpuset local;
    bool local_known; /* false: numa_node -1 on a machine with several nodes */
    bool adopted;     /* the system does not know it, a topology file does */
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

struct mu_nic {
    char name[MU_NAME_LEN];   /* mlx5_0, cxi0, hsn0; "" if the source has none */
    char busid[MU_BUSID_LEN]; /* "" if the source has none */
    int numa;                 /* index, -1 unknown */
    int package;
    enum mu_link_layer layer;
    bool active; /* a port is up (true where the source does not say) */
    /* port rate in Gb/s, 0 unknown; of several ports the best one's, as is the layer */
    double gbits;
    /* the only port of that kind, where other active ones of the device are of another;
     * 0: all are alike */
    int port;
    bool virtual_fn; /* an SR-IOV function whose physical one this system has */
    char guid[32];   /* system image GUID: equal on the ports of one card; "" unknown */
};

/* Owned arrays; free with mu_node_clear. */
struct mu_node {
    char source[MU_NAME_LEN]; /* "this node", "hwloc xml", "nccl xml", "nvidia-smi" */
    char host[MU_NAME_LEN];
    /* false: the source lists CPUs, not cores; cores[] then come from equal runs or are
     * single CPUs (smt_guess) */
    bool core_data;
    bool smt_guess; /* cores could not be told from CPUs: note "smt?" */
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
    enum mu_nearness *gpu_nic; /* ngpus x nnics */
    enum mu_nearness *gpu_gpu; /* ngpus x ngpus: the PCI path */
    int *nvlinks;              /* ngpus x ngpus: number of NVLinks (or xGMI), 0 none */
};

/* NCCL drives it by verbs; Slingshot and EFA have libraries of their own. */
bool mu_nic_has_verbs(const struct mu_nic *nic);

/* All zero is a valid empty node. */
void mu_node_clear(struct mu_node *node);

/* Bring a filled node into its normal form: sort cores, NUMA nodes, GPUs and NICs (and
 * the matrices with them), write labels, check that no CPU is in two cores. Readers
 * call it last.
 */
int mu_node_finish(struct mu_node *node, struct mu_err *err);

/* Put `parts` entries in the place of GPU `gpu`, alike but for sub (0, 1, ...); the
 * arrays must be owned. Indices above it move. Labels are the caller's.
 */
int mu_node_split_gpu(struct mu_node *node, int gpu, int parts, struct mu_err *err);

/* Write a PCI address as plans do ("07:00.0", "00000000:07:00.0" and upper case become
 * "0000:07:00.0"); a domain above ffff keeps its digits. *key, if not NULL, sorts in
 * PCI order. -1 when text is no PCI address; then nothing is written.
 */
int mu_busid_normal(const char *text, char out[MU_BUSID_LEN], uint64_t *key);

/* Is a CPU of the core in the set? And how many cores have one there? */
bool mu_core_in(const struct mu_core *core, const struct mu_cpuset *set);
int mu_node_core_count(const struct mu_node *node, const struct mu_cpuset *set);

/* All CPUs of cores[]. */
void mu_node_cpus(const struct mu_node *node, struct mu_cpuset *out);

/* SLIT distance between two numas[] indices; 10 for the same, 20 when not known. */
int mu_node_distance(const struct mu_node *node, int a, int b);

/* How far a core (index into cores[]) is from a GPU; 0: it is one of the GPU's own
 * local CPUs, or the locality is not known. Otherwise four times the SLIT distance of
 * their NUMA nodes, plus 2 between packages. Only the order of the values means
 * something.
 */
int mu_node_core_distance(const struct mu_node *node, int gpu, int core);

/* Where the system does not know what its GPUs are near (local_known is false, as in
 * many virtual machines), take it from `file`, the same machine as an NCCL topology
 * file describes it (finished, too), with the paths between GPUs and NICs that both
 * name. All or nothing: the file must name each such GPU by its bus id, with CPUs that
 * are whole NUMA nodes of this machine, and its own NUMA nodes must not share CPUs.
 * Returns the number of GPUs that gained a place, 0 when none was in need; fails with a
 * sentence that names the contradiction, and *node is untouched then.
 */
int mu_node_adopt(struct mu_node *node, const struct mu_node *file, struct mu_err *err);

/* Index of the GPU whose label, bus id (short forms "07:00.0" and upper case too) or
 * UUID is text, or -1.
 */
int mu_node_find_gpu(const struct mu_node *node, const char *text);
/* Index of the GPU with this device minor, or -1; a minor below 0 is nobody's. */
int mu_node_gpu_of_minor(const struct mu_node *node, int minor);

#endif
