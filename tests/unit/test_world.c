/* SPDX-License-Identifier: BSD-3-Clause */
/* test_world.c - ranks that differ before they have a model are refused by name */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/forked.h"

static void another_release(struct muster *m)
{
    m->comm.version = "0.0.9";
}

static void another_backend(struct muster *m)
{
    forked_elsewhere(m);
}

static void is_elastic(struct muster *m)
{
    m->comm.config.elastic = 2;
}

static void more_nodes(struct muster *m)
{
    m->comm.world->nnodes = 3;
}

static void another_place(struct muster *m)
{
    m->comm.world->node_of[2] = 0;
}

static const struct difference {
    const char *name;
    void (*change)(struct muster *m);
    const char *said;
} differences[] = {
    { "another release", another_release,
      " on ranks 0, 2, 3, but libmuster 0.0.9 on rank 1" },
    { "another backend", another_backend,
      "backend host on ranks 0, 2, 3, but backend elsewhere on rank 1" },
    { "elastic on one", is_elastic,
      "elastic 0 on ranks 0, 2, 3, but elastic 2 on rank 1" },
    { "another number of nodes", more_nodes,
      "world of 4 ranks on 2 nodes on ranks 0, 2, 3, but world of 4 ranks on 3 nodes "
      "on rank 1" },
    { "another plan of the world", another_place,
      "rank 2 on node 1 on ranks 0, 2, 3, but rank 2 on node 0 on rank 1" },
};

static int body(struct muster *m, int rank, void *arg)
{
    const struct difference *d = arg;
    struct mu_err err = { 0 };

    if (rank == 1)
        d->change(m);
    RANK_CHECK(mu_agree_on_world(&m->comm, &err) < 0);
    if (err.code != MUSTER_ECONTRACT || !strstr(err.text, d->said)) {
        fprintf(stderr, "rank %d: %d: %s\n", rank, err.code, err.text);
        return 97;
    }
    return 0;
}

static void each_difference_is_refused_with_the_ranks_on_each_side(void **state)
{
    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++)
        forked_well(
            differences[i].name,
            (struct forked_world){ .size = 4, .nodes = 2, .return_failure = true },
            body, (void *)(uintptr_t)&differences[i]);
}

/* ---- A rank that ended before it had published ---- */

static int publish(void *arg, const char *key, const void *value, size_t len,
                   struct mu_err *err)
{
    return 0;
}

static int fence(void *arg, double timeout, struct mu_err *err)
{
    return 0;
}

static int fetch(void *arg, int rank, const char *key, void **value, size_t *len,
                 double timeout, struct mu_err *err)
{
    return -1;
}

static void a_rank_without_a_record_has_the_sentence_of_a_death(void **state)
{
    struct mu_world *w = mu_world_new(1, 2, "job", NULL);
    struct mu_err err = { 0 };

    w->exchange = (struct mu_exchange){ NULL, publish, fence, fetch, NULL };
    w->host_of[0] = strdup("b");
    assert_int_equal(mu_world_listen(w, NULL, &err), 0);
    assert_int_equal(mu_world_exchange(w, 1, &err), -1);
    assert_int_equal(err.code, MUSTER_EPEER);
    assert_string_equal(err.text,
                        "rank 0 (node b) died or left before all ranks had met");
    assert_int_equal(w->view.sight, MU_SAW_EARLY_DEATH);
    assert_int_equal(w->view.place, 1);
    mu_world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_difference_is_refused_with_the_ranks_on_each_side),
        cmocka_unit_test(a_rank_without_a_record_has_the_sentence_of_a_death),
    };

    return cmocka_run_group_tests_name("world", tests, NULL, NULL);
}
