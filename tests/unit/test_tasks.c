/* SPDX-License-Identifier: BSD-3-Clause */
/* test_tasks.c - which tasks of a node have ended, from a /proc of our own making */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/boot/tasks.h"
#include "tests/unit/folder.h"

enum { SIZE = 6, SELF = 400 };

static char proc[64];

static void put(const char *text, size_t len, const char *fmt, int pid, int thread)
{
    char path[256], name[128];
    FILE *file;

    snprintf(name, sizeof name, fmt, pid, thread);
    snprintf(path, sizeof path, "%s/%s", proc, name);
    for (char *slash = path + strlen(proc) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, len, file), len);
    fclose(file);
}

/* A process; rank -1: its environment has none, -2: it is not ours to read. */
static void process(int pid, int parent, const char *name, int rank)
{
    char text[128];
    int n = snprintf(text, sizeof text, "%d (%s) S %d 1 1 0", pid, name, parent);

    put(text, (size_t)n, "%d/stat", pid, 0);
    n = snprintf(text, sizeof text, "%s\n", name);
    put(text, (size_t)n, "%d/comm", pid, 0);
    n = snprintf(text, sizeof text, "A=b%cSLURM_PROCID=%d%cZ=", 0, rank, 0);
    if (rank >= -1)
        put(text, rank < 0 ? 4 : (size_t)n, "%d/environ", pid, 0);
}

static void children(int daemon, int thread, const char *list)
{
    put(list, strlen(list), "%d/task/%d/children", daemon, thread);
}

static const struct tasks_case {
    const char *name;
    const char *daemon;         /* what slurmstepd is called */
    const char *first, *second; /* children of its two threads */
    int parent;                 /* of this process: 100 the daemon, 300 a shell */
    int rank_of_302;            /* see process */
    int n;
    bool gone[SIZE];
} cases[] = {
    { "all live", "slurmstepd", "300 302 ", "303 ", 300, 2, 0, { 0 } },
    { "rank 2 has no process",
      "slurmstepd",
      "300 ",
      "303 ",
      300,
      2,
      1,
      { [2] = true } },
    { "two have none",
      "slurmstepd",
      "300 ",
      "",
      300,
      2,
      2,
      { [2] = true, [3] = true } },
    { "this process is the task itself",
      "slurmstepd",
      "400 302",
      "",
      100,
      2,
      1,
      { [3] = true } },
    { "one that cannot be read may be any rank",
      "slurmstepd",
      "300 302 ",
      "",
      300,
      -2,
      0,
      { 0 } },
    { "so may one without a rank", "slurmstepd", "300 302 ", "", 300, -1, 0, { 0 } },
    { "another launcher's children are not known",
      "orted",
      "300 ",
      "303 ",
      300,
      2,
      0,
      { 0 } },
    { "a list without ourselves is not believed",
      "slurmstepd",
      "302 ",
      "303 ",
      300,
      2,
      0,
      { 0 } },
    { "a rank of another node is no news",
      "slurmstepd",
      "300 302 304 ",
      "303 ",
      300,
      2,
      0,
      { 0 } },
};

static void tasks_without_a_process_are_found(void **state)
{
    bool local[SIZE] = { false, true, true, true, false, false };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tasks_case *t = &cases[i];
        bool gone[SIZE];

        print_message("# %s\n", t->name);
        strcpy(proc, "/tmp/muster-proc.XXXXXX");
        assert_non_null(mkdtemp(proc));
        process(100, 1, t->daemon, -1);
        children(100, 100, t->first);
        children(100, 101, t->second);
        process(300, 100, "bash (of rank 1)", 1);
        process(302, 100, "train", t->rank_of_302);
        process(303, 100, "train", 3);
        process(304, 100, "train", 4);
        process(SELF, t->parent, "a) S 7 (b", 1);
        assert_int_equal(mu_tasks_gone(proc, SELF, local, SIZE, gone), t->n);
        assert_memory_equal(gone, t->gone, sizeof gone);
        assert_int_equal(folder_remove(proc), 0);
    }
}

static void without_slurm_nothing_is_told(void **state)
{
    bool local[2] = { true, true }, gone[2] = { true, true };

    assert_int_equal(mu_tasks_gone("/nowhere", SELF, local, 2, gone), 0);
    assert_false(gone[0] || gone[1]);
    assert_int_equal(mu_tasks_gone("/proc", getpid(), local, 2, gone), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_without_a_process_are_found),
        cmocka_unit_test(without_slurm_nothing_is_told),
    };

    return cmocka_run_group_tests_name("tasks", tests, NULL, NULL);
}
