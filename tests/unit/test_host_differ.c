/* SPDX-License-Identifier: BSD-3-Clause */
/* test_host_differ.c - ranks whose calls differ: one sentence, whoever sees it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/backend/host/host.h"

#define ORDER                                                                          \
    ": gradients of all ddp objects, and collectives beside them, must start in the "  \
    "same order on all ranks; a collective on another group (muster_split) may start " \
    "at any time"

static char *hosts[] = { "a", "b", "c" };

static const struct calls {
    const char *name;
    int rank[2];
    struct mu_coll call[2];
    const char *text; /* NULL: they agree */
} all_calls[] = {
    { "the same",
      { 0, 2 },
      { { .kind = MU_COLL_ALLREDUCE, .count = 3, .scale = 1, .what = "x" },
        { .kind = MU_COLL_ALLREDUCE, .count = 3, .scale = 1, .what = "y" } },
      NULL },
    { "another count",
      { 0, 2 },
      { { .kind = MU_COLL_ALLREDUCE, .count = 3, .scale = 1, .what = "x" },
        { .kind = MU_COLL_ALLREDUCE, .count = 4, .scale = 1, .what = "y" } },
      "rank 0 (node a) calls all-reduce of 3 f32 (sum, scale 1) where rank 2 (node c) "
      "calls all-reduce of 4 f32 (sum, scale 1)" },
    { "another root",
      { 2, 1 },
      { { .kind = MU_COLL_BROADCAST, .count = 3, .root = 2, .what = "x" },
        { .kind = MU_COLL_BROADCAST, .count = 3, .root = 1, .what = "x" } },
      "rank 1 (node b) calls broadcast of 3 f32 from rank 1 where rank 2 (node c) "
      "calls "
      "broadcast of 3 f32 from rank 2" },
    { "another scale of one bucket",
      { 0, 1 },
      { { .kind = MU_COLL_ALLREDUCE,
          .count = 3,
          .scale = 1,
          .owner = { 1, 0, 4 },
          .what = "bucket 0 of step 4" },
        { .kind = MU_COLL_ALLREDUCE,
          .count = 3,
          .scale = 0.5,
          .owner = { 1, 0, 4 },
          .what = "bucket 0 of step 4" } },
      "rank 0 (node a) calls all-reduce of 3 f32 (sum, scale 1) where rank 1 (node b) "
      "calls all-reduce of 3 f32 (sum, scale 0.5) (bucket 0 of step 4)" },
    { "a bucket and a barrier",
      { 1, 0 },
      { { .kind = MU_COLL_ALLREDUCE,
          .count = 3,
          .owner = { 1, 0, 4 },
          .what = "bucket 0 of step 4" },
        { .kind = MU_COLL_ALLREDUCE,
          .count = 1,
          .owner = { MU_OWNER_LIBRARY, 0, 0 },
          .what = "muster_barrier" } },
      "rank 0 (node a) calls a barrier or an exchange of libmuster's own where rank 1 "
      "(node b) calls all-reduce of bucket 0 of ddp object 1 in step 4" ORDER },
    { "a bucket and the end of the program",
      { 1, 0 },
      { { .kind = MU_COLL_ALLREDUCE,
          .count = 3,
          .owner = { 1, 0, 4 },
          .what = "bucket 0 of step 4" },
        { .kind = MU_COLL_ALLREDUCE,
          .count = 1,
          .owner = { MU_OWNER_LIBRARY, MU_PART_FINALIZE, 0 },
          .what = "muster_finalize" } },
      "rank 0 (node a) calls muster_finalize where rank 1 (node b) calls all-reduce of "
      "bucket 0 of ddp object 1 in step 4: all ranks must take the same number of "
      "steps; a rank without data for the rest calls muster_ddp_join" },
    { "a barrier and the end of the program",
      { 1, 0 },
      { { .kind = MU_COLL_ALLREDUCE, .count = 1, .owner = { MU_OWNER_LIBRARY, 0, 0 } },
        { .kind = MU_COLL_ALLREDUCE,
          .count = 1,
          .owner = { MU_OWNER_LIBRARY, MU_PART_FINALIZE, 0 } } },
      NULL },
};

/* Rank `rank`, which has called `coll`. */
static void make(struct mu_host_backend *b, struct mu_host_request *rq, int rank,
                 const struct mu_coll *coll)
{
    memset(b, 0, sizeof *b);
    memset(rq, 0, sizeof *rq);
    b->env.rank = rank;
    b->env.size = 3;
    b->host_of = hosts;
    rq->coll = *coll;
    if (coll->what)
        snprintf(rq->what, sizeof rq->what, "%s", coll->what);
}

static void both_ranks_write_one_sentence_about_their_calls(void **state)
{
    static struct mu_host_backend b;
    static struct mu_host_request rq;

    for (size_t i = 0; i < sizeof all_calls / sizeof all_calls[0]; i++)
        for (int mine = 0; mine < 2; mine++) {
            const struct calls *t = &all_calls[i];
            struct mu_signature theirs;
            char why[512] = "";
            bool agrees;

            make(&b, &rq, t->rank[1 - mine], &t->call[1 - mine]);
            theirs = mu_host_request_signature(&rq);
            make(&b, &rq, t->rank[mine], &t->call[mine]);
            agrees = mu_host_request_agrees(&b, &rq, t->rank[1 - mine], &theirs, why,
                                            sizeof why);
            if (agrees != !t->text || strcmp(why, t->text ? t->text : "") != 0)
                fail_msg("%s: rank %d writes '%s'", t->name, t->rank[mine], why);
        }
}

/* What each of two ranks sends to the other, and expects from it. */
static const struct parts {
    const char *name;
    int rank[2];
    size_t sends[2], expects[2];
    const char *text;
} all_parts[] = {
    { "the same", { 0, 1 }, { 3, 4 }, { 4, 3 }, NULL },
    { "rank 1 sends less",
      { 0, 1 },
      { 3, 2 },
      { 4, 3 },
      "rank 1 (node b) sends 2 f32 to rank 0 (node a), which expects 4 from it (v)" },
    { "both send less",
      { 2, 1 },
      { 3, 2 },
      { 4, 5 },
      "rank 1 (node b) sends 2 f32 to rank 2 (node c), which expects 4 from it (v)" },
};

static void both_ranks_write_one_sentence_about_their_parts(void **state)
{
    static struct mu_host_backend b;
    static struct mu_host_request rq;

    for (size_t i = 0; i < sizeof all_parts / sizeof all_parts[0]; i++)
        for (int mine = 0; mine < 2; mine++) {
            const struct parts *t = &all_parts[i];
            int it = 1 - mine, rank = t->rank[it];
            struct mu_part sends[3] = { 0 }, expects[3] = { 0 };
            struct mu_coll coll = {
                .kind = MU_COLL_EXCHANGE, .sends = sends, .recvs = expects, .what = "v"
            };
            char why[256] = "";

            sends[rank].count = t->sends[mine];
            expects[rank].count = t->expects[mine];
            make(&b, &rq, t->rank[mine], &coll);
            if (mu_host_parts_agree(&b, &rq, rank, t->sends[it], t->expects[it], why,
                                    sizeof why) != !t->text ||
                strcmp(why, t->text ? t->text : "") != 0)
                fail_msg("%s: rank %d writes '%s'", t->name, t->rank[mine], why);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ranks_write_one_sentence_about_their_calls),
        cmocka_unit_test(both_ranks_write_one_sentence_about_their_parts),
    };

    return cmocka_run_group_tests_name("host_differ", tests, NULL, NULL);
}
