/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_platform.c - virtual machines, slow links, ACS, two NCCLs in one process */
#include "spank/core/doctor/doctor.h"

#include <string.h>

#define AREA "platform"

/* Case 036 (1): numa_node -1 where there are several nodes. */
static void check_lost_locality(const struct mu_node *node, struct mu_findings *out)
{
    int lost = 0;

    for (int i = 0; i < node->ngpus; i++)
        lost += !node->gpus[i].local_known;
    if (lost)
        mu_findings_add(
            out, MU_WARNING, AREA,
            "configure NUMA nodes and PCI expander bridges for the virtual machine on "
            "its host, or describe the machine with topology= in muster.conf",
            "%d of %d GPU%s without a known NUMA node (numa_node is -1)%s: Muster "
            "divides the CPUs evenly",
            lost, node->ngpus, mu_plural(node->ngpus),
            node->virtual_machine ? " in this virtual machine" : "");
}

/* Case 036 (5): the firmware puts the threads of one core on two NUMA nodes. */
static void check_cut_cores(const struct mu_node *node, struct mu_findings *out)
{
    for (int i = 0; i < node->ncores; i++) {
        const struct mu_core *core = &node->cores[i];
        int first = -1;

        for (int n = 0; n < node->nnumas; n++) {
            if (!mu_core_in(core, &node->numas[n].cpus))
                continue;
            if (first >= 0) {
                mu_findings_add(out, MU_WARNING, AREA,
                                "configure the virtual machine so that each NUMA node "
                                "holds whole cores",
                                "the NUMA nodes split cores: the threads of core "
                                "%d..%d are on nodes %d and %d",
                                core->cpu[0], core->cpu[core->ncpus - 1],
                                node->numas[first].os_index, node->numas[n].os_index);
                return;
            }
            first = n;
        }
    }
}

/* Bytes per second of a PCIe link direction, in GB/s: GT/s x lanes, 8b/10b below 8 GT/s
 * and 128b/130b from there (PCI Express Base Specification).
 */
static double link_gbytes(const struct mu_link *link)
{
    return link->speed * link->width / 8 * (link->speed < 8 ? 0.8 : 128.0 / 130);
}

/* Case 036 (2), (3), (4) */
static void check_links(const struct mu_facts *facts, struct mu_findings *out)
{
    int on_root = 0;

    for (int i = 0; i < facts->nlinks; i++) {
        const struct mu_link *link = &facts->link[i];

        on_root += link->on_root_bus && !link->bridge;
        if (link->bridge && link->speed > 0 && link->width > 0 && link_gbytes(link) < 1)
            mu_findings_add(
                out, MU_WARNING, AREA,
                "give NCCL a topology file with the real rate (start from muster topo "
                "--format nccl-xml)",
                "the uplink of switch %s reports %.2f GB/s: NCCL plans with that "
                "figure",
                link->busid, link_gbytes(link));
        else if (!link->bridge && link->max_speed > 0 && link->speed > 0 &&
                 (link->speed < link->max_speed || link->width < link->max_width))
            mu_findings_add(out, MU_HINT, AREA,
                            "idle GPUs reduce their link speed: check again under "
                            "load, then reseat the card or check the slot",
                            "%s runs at %g GT/s x%d, the card supports %g GT/s x%d",
                            link->busid, link->speed, link->width, link->max_speed,
                            link->max_width);
    }
    if (on_root > 1 && facts->node && facts->node->virtual_machine)
        mu_findings_add(out, MU_WARNING, AREA,
                        "put each GPU and its NIC behind one virtual switch on the "
                        "host, or describe the pairs in a topology file",
                        "%d GPUs and NICs are on the root bus of this virtual machine: "
                        "every NIC is equally far from every GPU",
                        on_root);
}

/* Case 042 a */
static void check_acs(const struct mu_facts *facts, struct mu_findings *out)
{
    int unreadable = 0;
    bool guest = facts->node && facts->node->virtual_machine;

    for (int i = 0; i < facts->nacs; i++) {
        unreadable += !facts->acs[i].readable;
        if (facts->acs[i].readable && facts->acs[i].redirect && !guest)
            mu_findings_add(
                out, MU_WARNING, AREA,
                "clear the ACS bits of the bridge (setpci) or boot with the "
                "IOMMU off",
                "bridge %s above a GPU redirects peer requests (ACS)%s: P2P over PCIe "
                "hangs or is very slow",
                facts->acs[i].busid, facts->iommu ? " and the IOMMU is on" : "");
    }
    if (unreadable)
        mu_findings_add(out, MU_HINT, AREA, "run muster doctor as root to read them",
                        "the ACS bits of %d bridge%s above GPUs cannot be read",
                        unreadable, mu_plural(unreadable));
}

/* NCCL reports "GPU Direct RDMA Disabled" only in its log. */
static void check_gpudirect(const struct mu_facts *facts, struct mu_findings *out)
{
    const struct mu_nic *nic = mu_facts_verbs(facts);

    if (nic && facts->gpudirect == MU_GPUDIRECT_NONE)
        mu_findings_add(out, MU_WARNING, AREA,
                        "modprobe nvidia_peermem (at boot: /etc/modules-load.d), or "
                        "install NVIDIA's open kernel modules, which do not need it",
                        "%s cannot access GPU memory: nvidia_peermem is not loaded, "
                        "and the driver is not the open one; NCCL copies all data "
                        "between nodes through host memory",
                        nic->name);
}

/* Case 042 c */
static void check_libraries(const struct mu_facts *facts, struct mu_findings *out)
{
    for (int i = 0; i < facts->nnccl; i++)
        mu_findings_add(out, MU_OK, AREA, "", "NCCL %s: %s", facts->nccl[i].version,
                        facts->nccl[i].path);
    for (int i = 1; i < facts->nnccl; i++)
        if (strcmp(facts->nccl[i].version, facts->nccl[0].version) != 0) {
            mu_findings_add(
                out, MU_WARNING, AREA,
                "keep one of them in LD_LIBRARY_PATH and link the program with the "
                "same one",
                "the program can load two NCCL versions: %s (%s) and %s (%s)",
                facts->nccl[0].version, facts->nccl[0].path, facts->nccl[i].version,
                facts->nccl[i].path);
            return;
        }
}

/* Case 039: the source of a topology or graph file: the environment or nccl.conf. */
static void check_topology_files(const struct mu_facts *facts, struct mu_findings *out)
{
    static const char *const names[] = { "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", NULL };

    for (int i = 0; names[i]; i++) {
        const char *env = mu_facts_env(facts, names[i]);
        const struct mu_conf_line *line =
            facts->nccl_conf ? mu_conf_find(facts->nccl_conf, names[i]) : NULL;

        if (env)
            mu_findings_add(out, MU_HINT, AREA, "",
                            "%s=%s is set in the environment%s%s", names[i], env,
                            line ? " and overrides " : "", line ? line->file : "");
        else if (line)
            mu_findings_add(out, MU_HINT, AREA, "", "%s=%s is set in %s line %d",
                            names[i], line->value, line->file, line->line);
    }
}

/* NCCL takes a line as it is: a blank before '=' is a part of the name. */
static void check_conf_names(const struct mu_facts *facts, struct mu_findings *out)
{
    for (int i = 0; facts->nccl_conf && i < facts->nccl_conf->n; i++) {
        const struct mu_conf_line *line = &facts->nccl_conf->line[i];

        if (strncmp(line->name, "export ", 7) != 0 && strpbrk(line->name, " \t"))
            mu_findings_add(out, MU_WARNING, AREA,
                            "remove the blanks in front of the name and of =",
                            "%s line %d sets '%s', which is no variable of NCCL's",
                            line->file, line->line, line->name);
    }
}

void mu_doctor_platform(const struct mu_facts *facts, struct mu_findings *out)
{
    if (facts->node) {
        check_lost_locality(facts->node, out);
        check_cut_cores(facts->node, out);
    }
    check_links(facts, out);
    check_acs(facts, out);
    check_gpudirect(facts, out);
    check_libraries(facts, out);
    check_topology_files(facts, out);
    check_conf_names(facts, out);
}
