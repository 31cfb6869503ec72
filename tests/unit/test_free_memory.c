/* SPDX-License-Identifier: BSD-3-Clause */
/* test_free_memory.c - what is left on the node and in the job's cgroups, on made-up
 * trees of /proc and /sys, and muster_alloc in a cgroup of this machine
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/backend/host/free_memory.h"
#include "tests/unit/folder.h"
#include "tests/unit/forked.h"

#define V1_MOUNT                                                                       \
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
#define V2_MOUNT "42 31 0:38 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
#define NODE "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:    4000 kB\n"

static const struct tree_case {
    const char *name;
    const char *files[9][2]; /* path below the root, text */
    uint64_t bytes;
    const char *limit_by; /* a part */
} trees[] = {
    { "nothing can be read", { { NULL } }, UINT64_MAX, "" },
    { "the node alone",
      { { "/proc/meminfo", NODE } },
      4000 * 1024,
      "this node has 4096000 left (MemAvailable)" },
    { "version 2, the step's limit",
      { { "/proc/meminfo", NODE },
        { "/proc/self/mountinfo", V2_MOUNT },
        { "/proc/self/cgroup", "0::/system.slice/job_7/step_0\n" },
        { "/sys/fs/cgroup/system.slice/job_7/step_0/memory.max", "3000000\n" },
        { "/sys/fs/cgroup/system.slice/job_7/step_0/memory.current", "1000000\n" } },
      2000000,
      "(/sys/fs/cgroup/system.slice/job_7/step_0: memory.max 3000000, used 1000000)" },
    { "version 2, the job's limit above the step",
      { { "/proc/meminfo", NODE },
        { "/proc/self/mountinfo", "1 1 0:1 / / rw - ext4 /dev/sda rw\n" V2_MOUNT },
        { "/proc/self/cgroup", "0::/job_7/step_0\n" },
        { "/sys/fs/cgroup/job_7/step_0/memory.max", "max\n" },
        { "/sys/fs/cgroup/job_7/memory.max", "2000000\n" },
        { "/sys/fs/cgroup/job_7/memory.current", "1900000\n" },
        { "/sys/fs/cgroup/job_7/memory.stat",
          "anon 7\nfile 800000\ninactive_file 300000\nactive_file 200000\n" } },
      600000,
      "job_7: memory.max 2000000, used 1400000" },
    { "used up",
      { { "/proc/meminfo", NODE },
        { "/proc/self/mountinfo", V2_MOUNT },
        { "/proc/self/cgroup", "0::/job_7\n" },
        { "/sys/fs/cgroup/job_7/memory.max", "1000\n" },
        { "/sys/fs/cgroup/job_7/memory.current", "1500\n" } },
      0,
      "leaves 0" },
    { "version 1, beside a version 2 without memory",
      { { "/proc/meminfo", NODE },
        { "/proc/self/mountinfo", V1_MOUNT "41 31 0:38 / /sys/fs/cgroup/unified rw - "
                                           "cgroup2 cgroup2 rw\n" },
        { "/proc/self/cgroup", "4:cpu,memory:/slurm/job_7\n1:cpuset:/other\n0::/\n" },
        { "/sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "3000\n" },
        { "/sys/fs/cgroup/memory/slurm/job_7/memory.usage_in_bytes", "2000\n" },
        { "/sys/fs/cgroup/memory/slurm/job_7/memory.stat",
          "inactive_file 5000\ntotal_inactive_file 400\ntotal_active_file 100\n" },
        { "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n" },
        { "/sys/fs/cgroup/memory/memory.usage_in_bytes", "7\n" } },
      1500,
      "memory.limit_in_bytes 3000, used 1500" },
    { "a container that mounts its own part",
      { { "/proc/meminfo", NODE },
        { "/proc/self/mountinfo", "35 31 0:32 /docker/ab /sys/fs/cgroup/memory rw - "
                                  "cgroup cgroup rw,memory\n" },
        { "/proc/self/cgroup", "4:memory:/docker/ab/inner\n" },
        { "/sys/fs/cgroup/memory/memory.limit_in_bytes", "3000\n" },
        { "/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n" } },
      2000,
      "/sys/fs/cgroup/memory: memory.limit_in_bytes" },
    { "a cgroup outside of what is mounted",
      { { "/proc/meminfo", NODE },
        { "/proc/self/mountinfo", "35 31 0:32 /docker/ab /sys/fs/cgroup/memory rw - "
                                  "cgroup cgroup rw,memory\n" },
        { "/proc/self/cgroup", "4:memory:/slurm\n" },
        { "/sys/fs/cgroup/memory/memory.limit_in_bytes", "3000\n" },
        { "/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n" } },
      2000,
      "used 1000" },
    { "a limit above what the node has",
      { { "/proc/meminfo", NODE },
        { "/proc/self/mountinfo", V2_MOUNT },
        { "/proc/self/cgroup", "0::/job_7\n" },
        { "/sys/fs/cgroup/job_7/memory.max", "9000000\n" },
        { "/sys/fs/cgroup/job_7/memory.current", "1500\n" } },
      4000 * 1024,
      "MemAvailable" },
};

static void write_file(const char *root, const char *path, const char *text)
{
    char command[1024], full[512];
    FILE *f;

    snprintf(full, sizeof full, "%s%s", root, path);
    snprintf(command, sizeof command, "mkdir -p \"$(dirname %s)\"", full);
    assert_int_equal(system(command), 0);
    f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void the_least_of_node_and_cgroups_is_left(void **state)
{
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        const struct tree_case *c = &trees[i];
        char root[] = "/tmp/muster-memory-XXXXXX";
        struct mu_free_memory left;

        assert_non_null(mkdtemp(root));
        for (int k = 0; c->files[k][0]; k++)
            write_file(root, c->files[k][0], c->files[k][1]);
        mu_free_memory(root, &left);
        folder_remove(root);
        if (left.bytes != c->bytes || !strstr(left.limit_by, c->limit_by))
            fail_msg("%s: %llu, %s", c->name, (unsigned long long)left.bytes,
                     left.limit_by);
    }
}

static bool put(const char *folder, const char *name, const char *text)
{
    char path[300];
    int fd;
    bool done;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return done;
}

/* A rank in a cgroup of 64 MiB: what does not fit is refused, the world stays whole. */
static int limited_body(struct muster *m, int rank, void *arg)
{
    float *small, one = 1;
    char pid[32];

    snprintf(pid, sizeof pid, "%d", (int)getpid());
    RANK_CHECK(put(arg, "cgroup.procs", pid));
    small = muster_alloc(m, 1 << 20);
    RANK_CHECK(small);
    RANK_CHECK(!muster_alloc(m, (size_t)80 << 20));
    RANK_CHECK(strstr(muster_error(m), "cannot reserve 83886080 bytes"));
    RANK_CHECK(strstr(muster_error(m), "the memory limit of the job leaves"));
    RANK_OK(muster_allreduce(m, &one, 1, MUSTER_F32, MUSTER_SUM, NULL));
    muster_free(m, small);
    return muster_finalize(m);
}

/* All at once 96 MiB, of 64. Some are refused, nobody is killed, and what a refused one
 * had taken is free again.
 */
static int crowd_body(struct muster *m, int rank, void *arg)
{
    float refused;
    char pid[32];
    void *p;

    snprintf(pid, sizeof pid, "%d", (int)getpid());
    RANK_CHECK(put(arg, "cgroup.procs", pid));
    RANK_OK(muster_barrier(m));
    p = muster_alloc(m, (size_t)24 << 20);
    refused = p == NULL;
    RANK_OK(muster_allreduce(m, &refused, 1, MUSTER_F32, MUSTER_SUM, NULL));
    RANK_CHECK(refused >= 1);
    muster_free(m, p);
    RANK_OK(muster_barrier(m));
    p = muster_alloc(m, (size_t)8 << 20);
    RANK_CHECK(p);
    muster_free(m, p);
    return muster_finalize(m);
}

static void alloc_in_cgroup(const char *folder)
{
    forked_well("a world of one",
                (struct forked_world){ .size = 1, .return_failure = 1 }, limited_body,
                (void *)(uintptr_t)folder);
    forked_well("shared memory",
                (struct forked_world){ .size = 2, .return_failure = 1 }, limited_body,
                (void *)(uintptr_t)folder);
    forked_well("private memory",
                (struct forked_world){ .size = 2, .nodes = 2, .return_failure = 1 },
                limited_body, (void *)(uintptr_t)folder);
    forked_well("all at once", (struct forked_world){ .size = 4, .return_failure = 1 },
                crowd_body, (void *)(uintptr_t)folder);
}

static void muster_alloc_stops_before_the_limit_of_the_job(void **state)
{
    char folder[128];

    snprintf(folder, sizeof folder, "/sys/fs/cgroup/memory/muster-test-%d",
             (int)getpid());
    if (mkdir(folder, 0755) < 0) {
        printf("# SKIP no memory cgroup of version 1 can be made here\n");
        skip();
    }
    if (!put(folder, "memory.limit_in_bytes", "67108864")) {
        rmdir(folder);
        printf("# SKIP the memory cgroup takes no limit\n");
        skip();
    }
    alloc_in_cgroup(folder);
    rmdir(folder);
}

static int node_body(struct muster *m, int rank, void *arg)
{
    struct mu_free_memory left;

    mu_free_memory("", &left);
    RANK_CHECK(left.bytes < (uint64_t)1 << 50);
    RANK_CHECK(!muster_alloc(m, left.bytes + ((size_t)1 << 30)));
    RANK_CHECK(strstr(muster_error(m), "cannot reserve"));
    RANK_CHECK(!muster_alloc(m, SIZE_MAX - 10));
    return muster_finalize(m);
}

static void muster_alloc_stops_before_the_end_of_the_nodes_memory(void **state)
{
    for (int size = 1; size <= 2; size++)
        forked_well("node", (struct forked_world){ .size = size, .return_failure = 1 },
                    node_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_of_node_and_cgroups_is_left),
        cmocka_unit_test(muster_alloc_stops_before_the_limit_of_the_job),
        cmocka_unit_test(muster_alloc_stops_before_the_end_of_the_nodes_memory),
    };

    return cmocka_run_group_tests_name("free_memory", tests, NULL, NULL);
}
