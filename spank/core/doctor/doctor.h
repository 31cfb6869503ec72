/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor.h - checks of the node, the step and Slurm's files; each finding has a remedy
 *
 *   facts (gathered by spank/tools/doctor_facts)  ->  checks, pure  ->  findings
 *
 * Each check reads the facts of one area and adds findings. It adds none where a fact
 * is missing. Nothing here reads the machine.
 */
#ifndef MU_DOCTOR_H
#define MU_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "spank/core/network/hca.h"
#include "spank/core/nccl/nccl_variables.h"
#include "spank/core/env/nccl_conf.h"
#include "spank/core/slurm/conf_lines.h"
#include "spank/core/network/interface.h"
#include "spank/core/node/node.h"

enum mu_severity { MU_OK, MU_HINT, MU_WARNING, MU_ERROR };

struct mu_finding {
    enum mu_severity severity;
    char area[16];   /* "step", "gpu", "network", "slurm", "platform", "limits" */
    char what[1024]; /* one sentence */
    char todo[512];  /* the remedy; "" where none is needed */
};

/* Owned; clear with mu_findings_clear. Adding never fails: out of memory, the finding
 * is dropped and `dropped` is set.
 */
struct mu_findings {
    int n;
    struct mu_finding *item;
    bool dropped;
};

void mu_findings_clear(struct mu_findings *findings);
/* `what` is a printf format, `todo` a plain sentence or "". */
void mu_findings_add(struct mu_findings *findings, enum mu_severity severity,
                     const char *area, const char *todo, const char *what, ...)
    __attribute__((format(printf, 5, 6)));
enum mu_severity mu_findings_worst(const struct mu_findings *findings);
const char *mu_severity_name(enum mu_severity severity);

/* The number of GPUs from five sources; -1: unknown. */
struct mu_gpu_counts {
    int slurm;    /* SLURM_STEP_GPUS or SLURM_GPUS_ON_NODE */
    int visible;  /* CUDA_VISIBLE_DEVICES */
    int openable; /* /dev/nvidiaN that open() allows */
    int nvml;     /* reported by the driver */
    int node;     /* in the machine */
};

/* A bridge above a GPU and the request redirection bits of its ACS capability. */
struct mu_acs {
    char busid[MU_BUSID_LEN];
    bool readable; /* root can read the extended capability, others cannot */
    bool redirect; /* ReqRedir, CmpltRedir or UpstreamFwd is on */
};

/* A link of a GPU, NIC or of the bridge above it. */
struct mu_link {
    char busid[MU_BUSID_LEN];
    double speed, max_speed; /* GT/s, 0 unknown */
    int width, max_width;    /* lanes, 0 unknown */
    bool bridge;
    bool on_root_bus;
};

#define MU_UNLIMITED UINT64_MAX

/* Files in /dev/shm that no process uses. */
struct mu_stale_files {
    int n, nccl;             /* all; those that NCCL made */
    uint64_t bytes, largest; /* of all; of the largest */
    char name[64];           /* of the largest */
};

/* Limits of this process in bytes, or of the job's tasks where these are lower; tasks
 * that it starts inherit them.
 */
struct mu_limits {
    bool known;         /* false: the machine was read from a file */
    uint64_t memlock;   /* locked, or MU_UNLIMITED */
    uint64_t addresses; /* virtual memory, or MU_UNLIMITED */
    uint64_t shm_free;  /* still free in /dev/shm; MU_UNLIMITED: not known */
};

/* Can NICs read and write GPU memory (GPUDirect RDMA)? */
enum mu_gpudirect {
    MU_GPUDIRECT_UNKNOWN,
    MU_GPUDIRECT_NONE, /* neither nvidia_peermem nor dma-buf in the driver */
    MU_GPUDIRECT_READY,
};

/* Where NCCL's RAS of another step of this job answers on this node. */
struct mu_ras {
    char step[32];
    char addr[128]; /* NCCL_RAS_ADDR: HOST:PORT */
};
#define MU_RAS_MAX 8

/* A line of plugstack.conf, or of a file that it includes, without effect. */
struct mu_stack_fault {
    enum {
        MU_STACK_WORD,   /* Slurm does not take the line */
        MU_STACK_SECOND, /* muster.so once more */
        MU_STACK_UNREAD, /* an include that cannot be read */
    } kind;
    char file[512];
    int line;              /* 0: plugstack.conf itself is MU_STACK_UNREAD */
    char text[512];        /* the first word, or the file that is not read */
    bool has_path, muster; /* MU_STACK_WORD: a path follows; it is that of muster.so */
    int error;             /* MU_STACK_UNREAD: errno; 0: includes are too deep */
    char why[64];          /* its text */
};
#define MU_STACK_FAULTS 8

/* An RDMA device whose device file this process cannot open. */
struct mu_closed_verbs {
    char nic[MU_NAME_LEN];
    char file[96]; /* "": the kernel has none for the device */
    int error;     /* errno */
    char why[64];  /* its text */
};
#define MU_CLOSED_MAX 16

/* A line of slurm.conf with nodes that do not resolve. */
struct mu_unresolved {
    char file[1024];
    int line;
    char node[256], addr[256]; /* the first of them, its NodeAddr or "" */
    int more;                  /* others */
};
#define MU_UNRESOLVED_MAX 4

struct mu_facts {
    char *const *env;            /* NAME=VALUE, NULL at the end */
    struct mu_cpuset affinity;   /* of this process */
    struct mu_cpuset job_cpus;   /* what the cpuset cgroup allows; empty: not known */
    const struct mu_node *node;  /* NULL: not known */
    const struct mu_net *net;    /* NULL: not known */
    const struct mu_peer *peers; /* other nodes and their addresses */
    int npeers;
    const struct mu_conf *nccl_conf;
    struct mu_gpu_counts gpus;
    const struct mu_slurm_files *gres; /* gres.conf, NULL: not readable */
    /* slurm.conf does not name this node: gres.conf lines for all nodes are not its */
    bool gres_elsewhere;
    struct mu_unresolved unresolved[MU_UNRESOLVED_MAX];
    int nunresolved;
    char names_late[256]; /* why look-ups took too long, "" they did not */
    const char *host;     /* Slurm's name of this node, NULL: unknown */
    struct mu_closed_verbs closed[MU_CLOSED_MAX];
    int nclosed;
    const struct mu_acs *acs;
    int nacs;
    bool iommu;
    enum mu_gpudirect gpudirect;
    struct mu_limits limits;
    struct mu_stale_files stale; /* this machine's only */
    const struct mu_link *link;
    int nlinks;
    const struct mu_library *nccl; /* every libnccl found */
    int nnccl;
    char conf_missing[512]; /* SLURM_CONF names this file, which cannot be read */
    char slurm_version[32]; /* of the installed slurmd or srun, "" unknown */
    char plugin_path[512], plugin_version[32]; /* of muster.so, "" not found */
    char plugin_from[512];    /* the line that names it, "FILE line N" */
    char plugin_fault[512];   /* why it cannot be loaded, "" if it can */
    char plugin_refused[256]; /* why its arguments are refused, "" if they are not */
    bool plugin_required;     /* that line has required, not optional */
    struct mu_stack_fault stack[MU_STACK_FAULTS];
    int nstack;
    bool pmix_plugin;       /* mpi_pmix*.so is in PluginDir */
    char pmix_missing[128]; /* the soname that did not load, "" if all loaded */
    /* command line of a task of another step of this job on this node, arguments
     * separated by blanks; NULL: none */
    const char *command_line;
    int command_tasks; /* tasks of that step on this node, 0 not known */
    struct mu_ras ras[MU_RAS_MAX];
    int nras;
};

/* Value of a variable, or NULL. */
const char *mu_facts_env(const struct mu_facts *facts, const char *name);
/* The first device with an active port that NCCL drives through verbs, or NULL. */
const struct mu_nic *mu_facts_verbs(const struct mu_facts *facts);

/* Cases 005 013 015 016 044: CPUs of the step, and inherited variables. */
void mu_doctor_step(const struct mu_facts *facts, struct mu_findings *out);
/* Cases 009 020 023 024 026 038: which GPUs a task sees. */
void mu_doctor_gpu(const struct mu_facts *facts, struct mu_findings *out);
/* Cases 027 029 031 034 035: interfaces and RDMA devices. */
void mu_doctor_network(const struct mu_facts *facts, struct mu_findings *out);
/* Cases 014 048 051: gres.conf, PMIx, the plugin's version. */
void mu_doctor_slurm(const struct mu_facts *facts, struct mu_findings *out);
/* Lines of plugstack.conf. */
void mu_doctor_stack(const struct mu_facts *facts, struct mu_findings *out);
/* Cases 036 039 042: virtual machines, links, ACS, GPUDirect RDMA, two NCCLs. */
void mu_doctor_platform(const struct mu_facts *facts, struct mu_findings *out);
/* Locked memory, addresses, /dev/shm. */
void mu_doctor_limits(const struct mu_facts *facts, struct mu_findings *out);

/* Explains a CPU mask or list in one sentence: the CPU list and the NUMA nodes of
 * `node` (may be NULL). The mask is Slurm's (0x...) or NCCL's (hexadecimal groups
 * separated by commas).
 */
int mu_doctor_explain_mask(const char *mask, const struct mu_node *node, char *buf,
                           size_t len, struct mu_err *err);

/* The same for each set in lines of a log: NCCL's "Setting affinity" and "Affinity
 * for GPU", Slurm's masks, the lines of /proc and taskset. Lines without a set are
 * skipped. A text that is one set alone, or several of Slurm's separated by commas, is
 * explained too. `print` gets each sentence.
 */
int mu_doctor_explain_text(const char *text, const struct mu_node *node,
                           void (*print)(void *arg, const char *sentence), void *arg,
                           struct mu_err *err);

#endif
