/* SPDX-License-Identifier: BSD-3-Clause */
/* test_checkpoint_folder.c - folders that are local to a node, as /tmp is: a sharded
 * checkpoint is refused at open, where every save would succeed and no load
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/folder.h"
#include "tests/unit/forked.h"

static char base[64];

static int make_folder(void **state)
{
    strcpy(base, "/tmp/muster-folder-XXXXXX");
    return mkdtemp(base) && chmod(base, 0755) == 0 ? 0 : -1;
}

static int remove_folder(void **state)
{
    return folder_remove(base);
}

struct plan {
    int sharded;
    const char *folder; /* %d is the node */
    int status;
};

static int node_of(int rank)
{
    return rank >= 2;
}

/* Four ranks on two nodes. */
static int body(struct muster *m, int rank, void *arg)
{
    const struct plan *p = arg;
    struct muster_checkpoint_options o = { .sharded = p->sharded };
    struct muster_checkpoint *c = NULL;
    uint64_t data = 7, step;
    struct muster_item item = { .name = "w", .data = &data, .bytes = sizeof data };
    char folder[200], name[100];
    int status, found;

    snprintf(name, sizeof name, p->folder, node_of(rank));
    snprintf(folder, sizeof folder, "%s/%s", base, name);
    status = muster_checkpoint_open(m, folder, &o, &c);
    RANK_CHECK(status == p->status);
    if (status == MUSTER_OK) {
        RANK_OK(muster_checkpoint_save(c, 3, &item, 1));
        data = 0;
        RANK_OK(muster_checkpoint_load(c, &item, 1, &step, &found));
        RANK_CHECK(found && step == 3 && data == 7);
        RANK_OK(muster_checkpoint_close(c));
    } else {
        RANK_CHECK(strstr(muster_error(m), "rank 2 (node "));
        RANK_CHECK(strstr(muster_error(m), folder) || node_of(rank) == 0);
        RANK_CHECK(strstr(muster_error(m), "is not the one of rank 0 (node "));
    }
    return muster_finalize(m);
}

static void opened(const char *what, struct plan plan)
{
    forked_well(what,
                (struct forked_world){ .size = 4, .nodes = 2, .return_failure = true },
                body, &plan);
}

static void folders_of_a_node_are_refused_for_shards(void **state)
{
    opened("one folder", (struct plan){ 1, "shared", MUSTER_OK });
    opened("again", (struct plan){ 1, "shared", MUSTER_OK });
    opened("a folder for each node", (struct plan){ 1, "local%d", MUSTER_EUSAGE });
    opened("again, both exist", (struct plan){ 1, "local%d", MUSTER_EUSAGE });
    opened("rank 0 alone writes", (struct plan){ 0, "alone%d", MUSTER_OK });
}

/* What the proof needs for a moment does not stay. */
static void the_proof_leaves_no_file(void **state)
{
    char command[200];

    opened("one folder", (struct plan){ 1, "shared", MUSTER_OK });
    opened("a folder for each node", (struct plan){ 1, "local%d", MUSTER_EUSAGE });
    snprintf(command, sizeof command, "test -z \"$(find %s -name '*.tmp')\"", base);
    assert_int_equal(system(command), 0);
}

/* A folder of an earlier project, for loads only. */
static int read_body(struct muster *m, int rank, void *arg)
{
    struct muster_checkpoint_options o = { .sharded = 1 };
    struct muster_checkpoint *c;
    uint64_t data = 0, step;
    struct muster_item item = { .name = "w", .data = &data, .bytes = sizeof data };
    char folder[200];
    int found;

    snprintf(folder, sizeof folder, "%s/shared", base);
    if (geteuid() == 0)
        RANK_CHECK(seteuid(65534) == 0);
    RANK_OK(muster_checkpoint_open(m, folder, &o, &c));
    RANK_OK(muster_checkpoint_load(c, &item, 1, &step, &found));
    RANK_CHECK(found && step == 3 && data == 7);
    RANK_OK(muster_checkpoint_close(c));
    return muster_finalize(m);
}

static void a_folder_without_the_right_to_write_is_read(void **state)
{
    char folder[200];

    opened("one folder", (struct plan){ 1, "shared", MUSTER_OK });
    snprintf(folder, sizeof folder, "%s/shared", base);
    assert_int_equal(chmod(folder, 0555), 0);
    forked_well("read only", (struct forked_world){ .size = 4, .nodes = 2 }, read_body,
                NULL);
    assert_int_equal(chmod(folder, 0755), 0);
}

/* Rank 0 decides for all: node 1 may see none, or one that does not count. */
static int lone_body(struct muster *m, int rank, void *arg)
{
    int found = 0, want = *(int *)arg;
    struct muster_checkpoint *c;
    uint64_t data = 0, step = 0;
    struct muster_item item = { .name = "w", .data = &data, .bytes = sizeof data };
    char folder[200];

    snprintf(folder, sizeof folder, "%s/alone%d", base, node_of(rank));
    RANK_OK(muster_checkpoint_open(m, folder, NULL, &c));
    RANK_OK(muster_checkpoint_load(c, &item, 1, &step, &found));
    RANK_CHECK(found == want && data == (want ? 7u : 0u) && step == (want ? 3u : 0u));
    RANK_OK(muster_checkpoint_close(c));
    return muster_finalize(m);
}

static void case_091_rank_0_decides_whether_there_is_a_checkpoint(void **state)
{
    struct forked_world w = { .size = 4, .nodes = 2 };
    char command[300];
    int found = 1;

    opened("rank 0 alone writes", (struct plan){ 0, "alone%d", MUSTER_OK });
    forked_well("node 1 has none", w, lone_body, &found);
    snprintf(command, sizeof command, "cd %s && rm -rf alone1 && mv alone0 alone1",
             base);
    assert_int_equal(system(command), 0);
    found = 0;
    forked_well("node 1 alone has one", w, lone_body, &found);
}

/* Without inodes the checkpoint of the last one is whole, the link to it is old. */
static void case_089_the_newest_is_loaded_whatever_the_link_names(void **state)
{
    char command[300];

    snprintf(command, sizeof command, "mkdir -p %s/shared/checkpoint-latest.muster",
             base);
    assert_int_equal(system(command), 0);
    opened("the link cannot be written", (struct plan){ 1, "shared", MUSTER_OK });
    opened("nor by rank 0 alone", (struct plan){ 0, "shared", MUSTER_OK });
}

/* Two checkpoints, and one rank that calls something else. */
struct pair {
    struct muster_checkpoint *c[2];
    uint64_t data[2];
    struct muster_item item[2];
};

static int load(struct pair *p, int k, const struct muster_item *items, int nitems)
{
    uint64_t step;
    int found;

    return muster_checkpoint_load(p->c[k], items, nitems, &step, &found);
}

static int loads_the_other(struct pair *p, bool odd)
{
    int rc = load(p, odd, p->item, 2);

    return rc == MUSTER_OK ? load(p, !odd, p->item, 2) : rc;
}

static int loads_in_another_order(struct pair *p, bool odd)
{
    const struct muster_item items[] = { p->item[odd], p->item[!odd] };

    return load(p, 0, items, 2);
}

static int loads_another_name(struct pair *p, bool odd)
{
    if (odd)
        p->item[0].name = "other";
    return load(p, 0, p->item, 2);
}

static int saves_the_other(struct pair *p, bool odd)
{
    int rc = muster_checkpoint_save(p->c[odd], 5, p->item, 2);

    return rc == MUSTER_OK ? muster_checkpoint_save(p->c[!odd], 5, p->item, 2) : rc;
}

static int saves_another_step(struct pair *p, bool odd)
{
    return muster_checkpoint_save(p->c[0], odd ? 6 : 5, &p->item[0], 1);
}

static int saves_another_item(struct pair *p, bool odd)
{
    return muster_checkpoint_save(p->c[0], 5, &p->item[odd], 1);
}

static int saves_where_others_load(struct pair *p, bool odd)
{
    return odd ? muster_checkpoint_save(p->c[0], 5, &p->item[0], 1)
               : load(p, 0, p->item, 2);
}

static const struct odd_call {
    const char *name;
    int (*call)(struct pair *p, bool odd);
    int sharded;
    const char *one, *other;
} odd_calls[] = {
    { "one rank loads two checkpoints in another order", loads_the_other, 0,
      "checkpoint 'one'", "checkpoint 'two'" },
    { "one rank loads the parts of another checkpoint", loads_the_other, 1,
      "checkpoint 'one'", "checkpoint 'two'" },
    { "one rank gives its items in another order", loads_in_another_order, 0,
      "item 0 'a': 8 bytes", "item 0 'b': 8 bytes" },
    { "one rank loads an item of another name", loads_another_name, 0,
      "item 0 'a': 8 bytes", "item 0 'other': 8 bytes" },
    { "one rank saves two checkpoints in another order", saves_the_other, 1,
      "checkpoint 'one'", "checkpoint 'two'" },
    { "one rank saves another step", saves_another_step, 1, "step 5", "step 6" },
    { "one rank saves another item", saves_another_item, 1, "item 0 'a': 8 bytes",
      "item 0 'b': 8 bytes" },
    { "one rank saves where the others load", saves_where_others_load, 0,
      "muster_checkpoint_load", "muster_checkpoint_save" },
};

static int odd_body(struct muster *m, int rank, void *arg)
{
    const struct odd_call *o = arg;
    struct muster_checkpoint_options options[2] = {
        { .name = "one", .sharded = o->sharded },
        { .name = "two", .sharded = o->sharded }
    };
    struct pair p = { .data = { 1, 2 },
                      .item = { { .name = "a", .bytes = 8 },
                                { .name = "b", .bytes = 8 } } };
    int rc;

    for (int k = 0; k < 2; k++) {
        p.item[k].data = &p.data[k];
        RANK_OK(muster_checkpoint_open(m, base, &options[k], &p.c[k]));
    }
    RANK_OK(muster_checkpoint_save(p.c[0], 3, p.item, 2));
    RANK_OK(muster_checkpoint_save(p.c[1], 3, p.item, 2));
    rc = o->call(&p, rank == 1);
    if (rc != MUSTER_ECONTRACT || !strstr(muster_error(m), o->one) ||
        !strstr(muster_error(m), o->other)) {
        fprintf(stderr, "rank %d: status %d: %s\n", rank, rc, muster_error(m));
        return 97;
    }
    return 0;
}

static void a_rank_that_saves_or_loads_something_else_is_named(void **state)
{
    for (size_t i = 0; i < sizeof odd_calls / sizeof odd_calls[0]; i++) {
        struct odd_call o = odd_calls[i];

        forked_well(o.name, (struct forked_world){ .size = 3, .return_failure = true },
                    odd_body, &o);
    }
}

static int other_options_body(struct muster *m, int rank, void *arg)
{
    static const struct muster_checkpoint_options usual = { .name = "one" }, odd[] = {
        { .name = "two" },
        { .name = "one", .kind = "k" },
        { .name = "one", .sharded = 1 }
    };

    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct muster_checkpoint *c = NULL;

        RANK_CHECK(muster_checkpoint_open(m, base, rank == 1 ? &odd[i] : &usual, &c) ==
                   MUSTER_ECONTRACT);
        RANK_CHECK(strstr(muster_error(m), "rank 1 (node "));
    }
    return muster_finalize(m);
}

static void a_rank_that_opens_another_checkpoint_is_named(void **state)
{
    forked_well("other options",
                (struct forked_world){ .size = 3, .return_failure = true },
                other_options_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(folders_of_a_node_are_refused_for_shards,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(the_proof_leaves_no_file, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_folder_without_the_right_to_write_is_read,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(
            case_091_rank_0_decides_whether_there_is_a_checkpoint, make_folder,
            remove_folder),
        cmocka_unit_test_setup_teardown(
            case_089_the_newest_is_loaded_whatever_the_link_names, make_folder,
            remove_folder),
        cmocka_unit_test_setup_teardown(
            a_rank_that_saves_or_loads_something_else_is_named, make_folder,
            remove_folder),
        cmocka_unit_test_setup_teardown(a_rank_that_opens_another_checkpoint_is_named,
                                        make_folder, remove_folder),
    };

    return cmocka_run_group_tests_name("checkpoint_folder", tests, NULL, NULL);
}
