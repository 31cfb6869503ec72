/* SPDX-License-Identifier: BSD-3-Clause */
/* test_grow_gpu.c - a process joins ranks whose backend works elsewhere, as on a GPU:
 * all ranks wait until that is done before any of them gives its backend up
 *
 * It is the host backend under another name.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <unistd.h>

#include "runtime/api/impl.h"
#include "tests/unit/forked.h"
#include "tests/unit/ways.h"

#define RANKS 2
#define LATE 0.05 /* seconds that the last of them takes to be quiet */

static struct {
    _Atomic int quiet, aborted, early; /* ranks */
} * seen;

static int fake_quiet(struct mu_backend *b, struct mu_err *err)
{
    if (ways_rank() == RANKS - 1)
        usleep((useconds_t)(LATE * 1e6));
    seen->quiet++;
    return 0;
}

static void fake_abort(struct mu_backend *b, int status, const char *why)
{
    seen->early += seen->quiet < RANKS;
    seen->aborted++;
    mu_backend_host.abort(b, status, why);
}

/* In place of libmuster's. */
int mu_backend_choose(enum mu_backend_choice choice, int size, const char *dir,
                      const struct mu_backend_ops **ops, void **module,
                      struct mu_err *err)
{
    static struct mu_backend_ops elsewhere;

    elsewhere = mu_backend_host;
    elsewhere.name = "elsewhere";
    elsewhere.host_memory = false;
    elsewhere.quiet = fake_quiet;
    elsewhere.abort = fake_abort;
    *ops = &elsewhere;
    *module = NULL;
    return 0;
}

/* The first call takes the newcomer. */
static int grow(struct muster *m)
{
    int joined = 0;

    while (muster_rank(m) == 0 && mu_survive_waiting(m->recover.survive) == 0)
        usleep(1000);
    RANK_OK(muster_barrier(m));
    RANK_OK(muster_grow(m, &joined));
    RANK_CHECK(joined == 1);
    return MUSTER_OK;
}

static int body(struct muster *m, void *arg)
{
    int32_t one = 1;

    if (ways_rank() < RANKS)
        RANK_OK(grow(m));
    RANK_OK(muster_allreduce(m, &one, 1, MUSTER_I32, MUSTER_SUM, NULL));
    RANK_CHECK(one == RANKS + 1);
    return muster_finalize(m);
}

static void all_are_quiet_before_one_gives_its_backend_up(void **state)
{
    struct ways_result r;
    char path[256];

    seen = forked_shared(sizeof *seen);
    ways_join_file(path, sizeof path);
    ways_run(&(struct ways){ .size = RANKS + 1,
                             .set = { { -1, "WORLD_SIZE", "2" },
                                      { -1, "MUSTER_ELASTIC", "1" },
                                      { -1, "MUSTER_GROW", path },
                                      { RANKS, "MUSTER_JOIN", path } } },
             ways_port(), body, NULL, &r);
    for (int p = 0; p <= RANKS; p++)
        if (r.status[p])
            fail_msg("process %d: %d\n%s", p, r.status[p], r.text);
    assert_int_equal(seen->aborted, RANKS);
    assert_int_equal(seen->early, 0);
    free(r.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_quiet_before_one_gives_its_backend_up),
    };

    return cmocka_run_group_tests_name("grow_gpu", tests, NULL, NULL);
}
