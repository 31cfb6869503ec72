/* SPDX-License-Identifier: BSD-3-Clause */
/* test_free_memory.c - what is left on the node and in the job's cgroups, on made-up
 * trees of /proc and /sys, and muster_alloc in a cgroup of this machine. A group of
 * version 2 has files of the test, since version 1 may have the memory controller.
 */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
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

static bool make_folder(const char *path)
{
    char command[1024];

    snprintf(command, sizeof command, "mkdir -p \"%s\"", path);
    return system(command) == 0;
}

static void write_file(const char *root, const char *path, const char *text)
{
    char full[512], folder[512];
    FILE *f;

    snprintf(full, sizeof full, "%s%s", root, path);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(full, '/') - full), full);
    assert_true(make_folder(folder));
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
    static const struct {
        const char *mount, *limit;
    } versions[] = { { "/sys/fs/cgroup/memory", "memory.limit_in_bytes" },
                     { "/sys/fs/cgroup", "memory.max" } };
    char folder[128];
    int done = 0;

    for (int v = 0; v < 2; v++) {
        snprintf(folder, sizeof folder, "%s/muster-test-%d", versions[v].mount,
                 (int)getpid());
        if (mkdir(folder, 0755) < 0)
            continue;
        if (put(folder, versions[v].limit, "67108864")) {
            alloc_in_cgroup(folder);
            done++;
        }
        rmdir(folder);
    }
    if (done == 0) {
        printf("# SKIP no memory cgroup can be made here\n");
        skip();
    }
}

/* ---- version 2 ---- */

#define MB(n) #n "000000\n"

/* The job's cgroup, and the step's below it. */
static const struct nested_case {
    const char *name, *job_max, *job_current, *job_stat;
    const char *step_max, *step_current;
    size_t fits, refused; /* MiB; refused 0: nothing */
    const char *limit_by; /* a part */
} nested[] = {
    { "the step's limit", "max\n", MB(10), "file 0\n", MB(64), MB(10), 48, 56,
      "/job_7/step_0: memory.max 64000000, used 10000000)" },
    { "the job's limit above a step without one", MB(64), MB(10), "file 0\n", "max\n",
      MB(10), 48, 56, "/job_7: memory.max 64000000, used 10000000)" },
    { "other steps have used up the job's larger limit", MB(80), MB(60), "file 0\n",
      MB(64), MB(10), 8, 32, "/job_7: memory.max 80000000, used 60000000)" },
    { "files in the page cache give way", MB(64), MB(60),
      "anon 1\nfile 50000000\ninactive_file 30000000\nactive_file 20000000\n", "max\n",
      MB(1), 48, 56, "/job_7: memory.max 64000000, used 10000000)" },
    { "no limit at all", "max\n", MB(10), "file 0\n", "max\n", MB(10), 80, 0, "" },
};

static int nested_body(struct muster *m, int rank, void *arg)
{
    const struct nested_case *c = arg;
    float one = 1;
    char what[128];
    void *p = muster_alloc(m, c->fits << 20);

    RANK_CHECK(p);
    muster_free(m, p);
    RANK_CHECK(c->refused == 0 || !muster_alloc(m, c->refused << 20));
    if (c->refused > 0) {
        snprintf(what, sizeof what,
                 "cannot reserve %zu bytes: the memory limit of the job leaves ",
                 c->refused << 20);
        RANK_CHECK(strstr(muster_error(m), what));
        RANK_CHECK(strstr(muster_error(m), c->limit_by));
    }
    RANK_OK(muster_allreduce(m, &one, 1, MUSTER_F32, MUSTER_SUM, NULL));
    return muster_finalize(m);
}

static char group[64]; /* "": none was made */

static const char *in_group(const char *path)
{
    static char text[192];

    snprintf(text, sizeof text, "%s%s", group, path);
    return text;
}

/* This process enters a new cgroup of version 2, and its ranks with it. */
static bool enter_version_2(void)
{
    if (unshare(CLONE_NEWNS) < 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", "/sys/fs/cgroup", "cgroup2", 0, NULL) < 0)
        return false;
    snprintf(group, sizeof group, "/sys/fs/cgroup/muster-test-%d", (int)getpid());
    return make_folder(in_group("/job_7/step_0")) &&
           put(in_group("/job_7/step_0"), "cgroup.procs", "0");
}

static int leave_version_2(void **state)
{
    if (!group[0])
        return 0;
    umount(group);
    put("/sys/fs/cgroup", "cgroup.procs", "0");
    rmdir(in_group("/job_7/step_0"));
    rmdir(in_group("/job_7"));
    return rmdir(group);
}

/* The mount, the cgroup and its processes are the kernel's. Its files are the test's,
 * with the texts of the memory controller, which version 1 may have.
 */
static void the_least_limit_of_nested_cgroups_of_version_2_counts(void **state)
{
    if (!enter_version_2()) {
        printf("# SKIP no cgroup of version 2 can be made here\n");
        skip();
    }
    assert_int_equal(mount("none", group, "tmpfs", 0, NULL), 0);
    for (size_t i = 0; i < sizeof nested / sizeof nested[0]; i++) {
        const struct nested_case *c = &nested[i];

        write_file(group, "/job_7/memory.max", c->job_max);
        write_file(group, "/job_7/memory.current", c->job_current);
        write_file(group, "/job_7/memory.stat", c->job_stat);
        write_file(group, "/job_7/step_0/memory.max", c->step_max);
        write_file(group, "/job_7/step_0/memory.current", c->step_current);
        for (int size = 1; size <= 2; size++)
            forked_well(c->name,
                        (struct forked_world){ .size = size, .return_failure = 1 },
                        nested_body, (void *)(uintptr_t)c);
    }
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
        /* the last one: it stays in a mount namespace of its own */
        cmocka_unit_test_teardown(the_least_limit_of_nested_cgroups_of_version_2_counts,
                                  leave_version_2),
    };

    return cmocka_run_group_tests_name("free_memory", tests, NULL, NULL);
}
