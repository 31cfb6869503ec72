/* SPDX-License-Identifier: BSD-3-Clause */
/* where.c - a task that prints where it runs: its CPUs, its memory policy, the NUMA
 * nodes of its pages (numa_maps), its GPUs. One line, for tests on a machine with NUMA.
 *
 *   where [MIB]    touch that much memory first (default 32)
 */
#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *env(const char *name)
{
    const char *value = getenv(name);

    return value && value[0] ? value : "-";
}

static void print_cpus(void)
{
    cpu_set_t set;
    const char *comma = "";

    printf("cpus=");
    if (sched_getaffinity(0, sizeof set, &set) < 0) {
        printf("?");
        return;
    }
    for (int i = 0; i < CPU_SETSIZE; i++) {
        int end = i;

        if (!CPU_ISSET(i, &set))
            continue;
        while (end + 1 < CPU_SETSIZE && CPU_ISSET(end + 1, &set))
            end++;
        printf(end > i ? "%s%d-%d" : "%s%d", comma, i, end);
        comma = ",";
        i = end;
    }
}

static void print_policy(void)
{
    static const char *const names[] = { "default",    "preferred", "bind",
                                         "interleave", "local",     "preferred-many" };
    unsigned long nodes[16] = { 0 };
    int mode = -1;

    if (syscall(SYS_get_mempolicy, &mode, nodes, 8 * sizeof nodes, NULL, 0) < 0)
        mode = -1;
    printf(" policy=%s:%lx", mode >= 0 && mode < 6 ? names[mode] : "?", nodes[0]);
}

/* The N0=... words of the mapping that starts at addr. */
static void print_pages(const void *addr)
{
    char line[4096], start[32];
    FILE *maps = fopen("/proc/self/numa_maps", "r");

    printf(" pages=");
    snprintf(start, sizeof start, "%lx ", (unsigned long)addr);
    while (maps && fgets(line, sizeof line, maps)) {
        char *save = NULL;

        if (strncmp(line, start, strlen(start)) != 0)
            continue;
        for (char *word = strtok_r(line, " \n", &save); word;
             word = strtok_r(NULL, " \n", &save))
            if (word[0] == 'N' && word[1] >= '0' && word[1] <= '9')
                printf("%s,", word);
    }
    if (maps)
        fclose(maps);
}

int main(int argc, char **argv)
{
    size_t len = (argc > 1 ? strtoul(argv[1], NULL, 10) : 32) << 20;
    char *memory =
        mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        fprintf(stderr, "where: cannot map %zu bytes: %s\n", len, strerror(errno));
        return 1;
    }
    /* Small pages, so that the count is in units of 4 KiB. */
    madvise(memory, len, MADV_NOHUGEPAGE);
    memset(memory, 1, len);
    printf("task=%s ", env("SLURM_PROCID"));
    print_cpus();
    print_policy();
    print_pages(memory);
    printf(" visible=%s plan=%s\n", env("CUDA_VISIBLE_DEVICES"), env("MUSTER_PLAN"));
    return 0;
}
