/* SPDX-License-Identifier: BSD-3-Clause */
/* ledger_place.c - where a process runs: CPUs, GPU, NIC and their NUMA nodes */
#include <stdio.h>
#include <string.h>

#include "runtime/base/cpuset.h"
#include "runtime/base/parse.h"
#include "runtime/base/record.h"
#include "runtime/ledger/ledger_out.h"

#define NODES_MOST 1024

/* The first line of a file below sys; NULL: it cannot be read. */
static char *read_line(const char *sys, const char *name, char *buf, size_t size)
{
    char path[512];
    char *line;
    FILE *f;

    if (snprintf(path, sizeof path, "%s/%s", sys, name) >= (int)sizeof path)
        return NULL;
    f = fopen(path, "re");
    if (!f)
        return NULL;
    line = fgets(buf, (int)size, f);
    fclose(f);
    if (line)
        line[strcspn(line, "\n")] = '\0';
    return line;
}

/* Nodes have numbers with gaps: the list of those that are online has them. */
static int16_t node_of_cpus(const struct mu_cpuset *cpus, const char *sys)
{
    char text[4096], name[64];
    struct mu_cpuset nodes, of;
    struct mu_err err = { 0 };

    if (!read_line(sys, "devices/system/node/online", text, sizeof text) ||
        mu_cpuset_parse(text, &nodes, &err) < 0)
        return 0;
    for (int n = mu_cpuset_next(&nodes, -1); n >= 0 && n < NODES_MOST;
         n = mu_cpuset_next(&nodes, n)) {
        snprintf(name, sizeof name, "devices/system/node/node%d/cpulist", n);
        if (!read_line(sys, name, text, sizeof text) || !*text ||
            mu_cpuset_parse(text, &of, &err) < 0 || !mu_cpuset_intersects(cpus, &of))
            continue;
        return (int16_t)(mu_cpuset_inside(cpus, &of) ? n + 1 : -1);
    }
    return 0;
}

/* -1 in the file: the firmware does not report it. */
static int16_t node_of_gpu(const char *gpu, const char *sys)
{
    struct mu_err err = { 0 };
    char text[32], name[96];
    long node;

    snprintf(name, sizeof name, "bus/pci/devices/%s/numa_node", gpu);
    if (!read_line(sys, name, text, sizeof text) ||
        mu_parse_int("numa_node", text, 0, NODES_MOST - 1, &node, &err) < 0)
        return 0;
    return (int16_t)(node + 1);
}

/* The first of a list; "" where it is "-". */
static void copy_first(char *to, size_t size, const char *list, const char *ends)
{
    size_t n = strcspn(list, ends);

    if (n < size && strcmp(list, "-") != 0) {
        memcpy(to, list, n);
        to[n] = '\0';
    }
}

void mu_ledger_place(struct mu_ledger_head *head, const char *plan, const char *sys)
{
    struct mu_err err = { 0 };
    struct mu_record record;
    struct mu_cpuset cpus;

    if (mu_cpuset_of_process(0, &cpus) == 0) {
        head->cpus = mu_cpuset_count(&cpus);
        head->cpu_node = node_of_cpus(&cpus, sys);
    }
    if (!plan || mu_record_decode(plan, &record, &err) < 0)
        return;
    copy_first(head->gpu, sizeof head->gpu, record.gpus, ",/");
    copy_first(head->nic, sizeof head->nic, record.nics, ",");
    if (head->gpu[0])
        head->gpu_node = node_of_gpu(head->gpu, sys);
}
