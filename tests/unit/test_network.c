/* SPDX-License-Identifier: BSD-3-Clause */
/* test_network.c - nodes whose networks NCCL could not join are refused at the start */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/forked.h"

/* Two ranks on each of two nodes; the second node has `there`, the first `here`. The
 * first rank that sees it ends the job: the others are killed, or see it too.
 */
static const struct difference {
    const char *name;
    const char *here, *there;            /* MUSTER_PLAN's fabric */
    const char *variable, *mine, *other; /* NULL: unset */
    int nodes;
    const char *said; /* "": nothing; the job goes on */
    bool refused;
} cases[] = {
    { "the same everywhere", "InfiniBand", "InfiniBand", "NCCL_ALGO", "Ring", "Ring", 2,
      "", false },
    { "case 034: InfiniBand here, Ethernet there", "InfiniBand", "Ethernet", NULL, NULL,
      NULL, 2,
      "RDMA over InfiniBand on ranks 0, 1 (node a), but RDMA over Ethernet on ranks 2, "
      "3 (node b); "
      "choose devices of one kind",
      true },
    { "no RDMA there", "InfiniBand", "none", NULL, NULL, NULL, 2,
      "RDMA over InfiniBand on ranks 0, 1 (node a), but RDMA over none on ranks 2, 3 "
      "(node b)",
      true },
    { "not known there", "InfiniBand", "", NULL, NULL, NULL, 2, "", false },
    { "RDMA is off for all", "InfiniBand", "Ethernet", "NCCL_IB_DISABLE", "1", "1", 2,
      "", false },
    { "another network is named", "InfiniBand", "Ethernet", "NCCL_NET", "Socket",
      "Socket", 2, "", false },
    { "RDMA is off there alone", "", "", "NCCL_IB_DISABLE", NULL, "1", 2,
      "NCCL_IB_DISABLE unset on ranks 0, 1 (node a), but NCCL_IB_DISABLE=1 on ranks 2, "
      "3 (node b); "
      "set it to the same value on all nodes",
      true },
    { "another algorithm", "", "", "NCCL_ALGO", "Ring", "Tree", 2,
      "NCCL_ALGO=Ring on ranks 0, 1 (node a), but NCCL_ALGO=Tree on ranks 2, 3 (node "
      "b)",
      true },
    { "another GID index is a warning", "Ethernet", "Ethernet", "NCCL_IB_GID_INDEX",
      "3", "1", 2,
      "NCCL_IB_GID_INDEX=3 on ranks 0, 1 (node a), but NCCL_IB_GID_INDEX=1 on ranks 2, "
      "3 (node b); "
      "this is right only",
      false },
    { "one node is not asked", "InfiniBand", "Ethernet", NULL, NULL, NULL, 1, "",
      false },
};

static int body(struct muster *m, int rank, void *arg)
{
    const struct difference *d = arg;
    const char *value = rank < 2 ? d->mine : d->other;
    struct mu_err err = { 0 };

    if (!m)
        return 96;
    if (d->variable && value)
        setenv(d->variable, value, 1);
    if (mu_agree_on_network(&m->comm, rank < 2 ? d->here : d->there, &err) < 0)
        return mu_fail_err(m, &err);
    return muster_finalize(m);
}

static void nodes_that_nccl_cannot_join_are_refused_by_name(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct difference *d = &cases[i];
        struct forked_world w = { .size = 4, .nodes = d->nodes };
        struct forked_result result;

        forked_run(&w, body, (void *)(uintptr_t)d, 30, &result);
        for (int r = 0; r < 4; r++)
            if (d->refused ? result.status[r] != MUSTER_ECONTRACT &&
                                 result.status[r] != 128 + SIGKILL
                           : result.status[r] != 0)
                fail_msg("%s: rank %d ended with %d: %s", d->name, r, result.status[r],
                         result.text);
        if (!strstr(result.text, d->said) || (!d->said[0] && result.text[0]))
            fail_msg("%s: it says: %s", d->name, result.text);
        forked_clear(&result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_that_nccl_cannot_join_are_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
