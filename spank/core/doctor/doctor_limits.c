/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_limits.c - limits under which NCCL or CUDA cannot start */
#include "spank/core/doctor/doctor.h"

#include <inttypes.h>
#include <stdio.h>

#define AREA "limits"
#define MIB (UINT64_C(1) << 20)
/* NCCL allocates shared-memory segments of 9 to 10 MB, a few for each GPU that reaches
 * a neighbour only through host memory. The 64 MiB that containers usually have are
 * enough for two GPUs.
 */
#define SHM_EACH (64 * MIB)

static void size_text(uint64_t bytes, char *buf, size_t len)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
    int u = 0;

    while (u < 4 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        u++;
    }
    snprintf(buf, len, "%" PRIu64 " %s", bytes, units[u]);
}

/* The first active device whose library locks all of its buffers, or NULL. */
static const struct mu_nic *locks_buffers(const struct mu_facts *facts)
{
    const struct mu_nic *nic = mu_facts_verbs(facts);

    for (int i = 0; !nic && facts->node && i < facts->node->nnics; i++)
        if (facts->node->nics[i].active && facts->node->nics[i].layer == MU_LINK_EFA)
            nic = &facts->node->nics[i];
    return nic;
}

static void check_locked_memory(const struct mu_facts *facts, struct mu_findings *out)
{
    const struct mu_nic *nic = locks_buffers(facts);
    char most[32];

    if (!nic || facts->limits.memlock == MU_UNLIMITED)
        return;
    size_text(facts->limits.memlock, most, sizeof most);
    mu_findings_add(
        out, MU_WARNING, AREA,
        "set LimitMEMLOCK=infinity in slurmd's unit file and "
        "PropagateResourceLimitsExcept=MEMLOCK in slurm.conf: srun propagates the "
        "limits of the shell that starts it",
        "a process may lock %s of memory (ulimit -l), but %s needs every buffer that "
        "it sends or receives locked: NCCL fails with \"Cannot allocate memory\"",
        most, nic->name);
}

static void check_addresses(const struct mu_facts *facts, struct mu_findings *out)
{
    char most[32];

    if (!facts->node || facts->node->ngpus == 0 ||
        facts->limits.addresses == MU_UNLIMITED)
        return;
    size_text(facts->limits.addresses, most, sizeof most);
    mu_findings_add(
        out, MU_WARNING, AREA,
        "set ulimit -v unlimited in the shell and VSizeFactor=0 in slurm.conf; limit "
        "memory with cgroups (ConstrainRAMSpace=yes)",
        "a process may have %s of virtual memory (ulimit -v): CUDA reserves more "
        "addresses than the node and its GPUs have memory, and fails to start",
        most);
}

/* GPUs of the step; outside of a step those that can be opened, or the node's. */
static int used_gpus(const struct mu_facts *facts)
{
    if (facts->gpus.slurm > 0)
        return facts->gpus.slurm;
    if (facts->gpus.openable > 0)
        return facts->gpus.openable;
    return facts->node ? facts->node->ngpus : 0;
}

static void check_shared_memory(const struct mu_facts *facts, struct mu_findings *out)
{
    int gpus = used_gpus(facts);
    uint64_t need = SHM_EACH * (uint64_t)gpus;

    if (gpus < 2 || facts->limits.shm_free >= need)
        return;
    mu_findings_add(out, MU_WARNING, AREA,
                    "give the container more shared memory (--shm-size=1g), or remove "
                    "files that ended jobs left there (ls -l /dev/shm)",
                    "/dev/shm has %" PRIu64
                    " MiB left for %d GPUs, which may need %" PRIu64
                    ": NCCL fails with \"No space left on device\"",
                    facts->limits.shm_free / MIB, gpus, need / MIB);
}

/* Semaphores and the like stay for good reasons, but they are small. */
static void check_stale_files(const struct mu_facts *facts, struct mu_findings *out)
{
    const struct mu_stale_files *stale = &facts->stale;
    char most[32];

    if (stale->nccl == 0 && stale->bytes < MIB)
        return;
    size_text(stale->bytes >= MIB ? stale->bytes / MIB * MIB : stale->bytes, most,
              sizeof most);
    mu_findings_add(out, MU_HINT, AREA,
                    "remove them where no job of yours runs on this node; an epilog "
                    "can do it for each job",
                    "/dev/shm has %d file%s that no process uses, %s in all (%s%s): "
                    "ended jobs left memory there",
                    stale->n, mu_plural(stale->n), most, stale->name,
                    stale->n > 1 ? " and others" : "");
}

void mu_doctor_limits(const struct mu_facts *facts, struct mu_findings *out)
{
    if (!facts->limits.known)
        return;
    check_locked_memory(facts, out);
    check_addresses(facts, out);
    check_shared_memory(facts, out);
    check_stale_files(facts, out);
}
