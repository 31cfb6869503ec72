/* SPDX-License-Identifier: BSD-3-Clause */
/* test_thief.c - another user listens at the address of the parent, of a dead leader or
 * of the next node: the token is not sent there, and the answer is not believed
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/random.h"
#include "runtime/boot/control.h"
#include "runtime/endpoint/net.h"
#include "runtime/boot/node_ring.h"
#include "runtime/boot/survive.h"
#include "tests/unit/patience.h"
#include "tests/unit/thief.h"

static const struct mu_log quiet = { .level = MU_LOG_ERROR };

/* ---- The parent of the control connections ----------------------------------------
 */

/* What the parent publishes; behind it this release may have more. */
struct whereabouts {
    uint32_t port;
    char local[64], address[MU_NET_ADDRESSES];
};

struct exchange {
    uint32_t port;
    char value[1024];
    size_t len;
};

static int publish(void *arg, const char *key, const void *value, size_t len,
                   struct mu_err *err)
{
    struct exchange *x = arg;

    assert_true(len <= sizeof x->value);
    memcpy(x->value, value, len);
    x->len = len;
    return 0;
}

static int fence(void *arg, double timeout, struct mu_err *err)
{
    return 0;
}

/* Rank 0's record is ours with the thief's port in it. */
static int fetch(void *arg, int rank, const char *key, void **value, size_t *len,
                 double timeout, struct mu_err *err)
{
    struct exchange *x = arg;
    struct whereabouts *at = malloc(x->len);

    memcpy(at, x->value, x->len);
    at->port = x->port;
    strcpy(at->address, "127.0.0.1");
    *value = at;
    *len = x->len;
    return 0;
}

static void control_neither_sends_the_token_to_a_thief_nor_believes_it(void **state)
{
    static const char *const node[2] = { "a", "b" };
    struct mu_world *w = mu_world_new(1, 2, "1.0", NULL);
    struct exchange x = { 0 };
    struct mu_control_env env = {
        .world = w, .init_timeout = 1.5, .timeout = 5, .log = &quiet
    };
    struct mu_control *c = NULL;
    struct mu_err err = { 0 };
    struct thief t;

    mu_world_number_nodes(w, node);
    for (int r = 0; r < 2; r++)
        w->host_of[r] = strdup(node[r]);
    mu_random(w->token, sizeof w->token);
    w->exchange = (struct mu_exchange){ &x, publish, fence, fetch };
    thief_begin(&t, 0);
    x.port = t.port;
    assert_int_equal(mu_control_open(&env, &c, &err), -1);
    assert_non_null(strstr(err.text, "rank 0 (node a) cannot be reached"));
    assert_true(t.loot->calls > 0);
    assert_false(thief_has(&t, w->token, sizeof w->token));
    thief_end(&t);
    mu_world_free(w);
}

/* ---- The leader of the survivors ---------------------------------------------------
 */

enum { RANKS = 3 };

struct shared {
    atomic_int ready, go;
    uint8_t token[MU_TOKEN_LEN];
    char card[RANKS][MU_SURVIVE_RECORD];
    char text[RANKS][MU_ERR_TEXT];
    int life[RANKS][RANKS];
};

static void await(atomic_int *n, int least)
{
    while (atomic_load(n) < least)
        usleep(1000);
}

static struct mu_survive *open_survive(struct shared *sh, int me, int size)
{
    struct mu_world *w = mu_world_new(me, size, "1.0", NULL);
    struct mu_survive *s;

    memcpy(w->token, sh->token, sizeof w->token);
    assert_int_equal(mu_survive_open(w, NULL, &quiet, sh->card[me], &s, NULL), 0);
    mu_world_free(w);
    return s;
}

static void survivor(struct shared *sh, int me)
{
    const int64_t words[MU_SURVIVE_BALLOT] = { me };
    struct mu_survive *s = open_survive(sh, me, RANKS);
    struct mu_err err = { 0 };
    int rc;

    atomic_fetch_add(&sh->ready, 1);
    await(&sh->ready, RANKS);
    if (me == 0)
        _exit(0);
    await(&sh->go, 1);
    for (int r = 0; r < RANKS; r++)
        mu_survive_set_address(s, r, sh->card[r], MU_SURVIVE_RECORD, &err);
    rc = mu_survive_agree(s, words, 0.3 * PATIENCE, &err);
    if (rc < 0)
        snprintf(sh->text[me], sizeof sh->text[me], "%s", err.text);
    for (int r = 0; r < RANKS; r++)
        sh->life[me][r] = (int)mu_survive_life(s, r);
    _exit(rc < 0);
}

static void the_survivors_go_on_when_a_thief_took_the_dead_leaders_port(void **state)
{
    struct shared *sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid[RANKS];
    struct thief t;
    uint32_t port;
    int status;

    assert_true(sh != MAP_FAILED);
    mu_random(sh->token, sizeof sh->token);
    for (int r = 0; r < RANKS; r++) {
        pid[r] = fork();
        assert_true(pid[r] >= 0);
        if (pid[r] == 0)
            survivor(sh, r);
    }
    assert_int_equal(waitpid(pid[0], &status, 0), pid[0]);
    memcpy(&port, sh->card[0], sizeof port);
    thief_begin(&t, port);
    atomic_store(&sh->go, 1);
    for (int r = 1; r < RANKS; r++)
        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
    assert_true(t.loot->calls > 0);
    assert_false(thief_has(&t, sh->token, sizeof sh->token));
    for (int r = 1; r < RANKS; r++) {
        assert_string_equal(sh->text[r], "");
        assert_int_equal(sh->life[r][0], MU_DIED);
        assert_int_equal(sh->life[r][1], MU_LIVES);
        assert_int_equal(sh->life[r][2], MU_LIVES);
    }
    thief_end(&t);
    munmap(sh, sizeof *sh);
}

/* A card begins with the port; 8 bytes on is the machine. */
static void a_rank_elsewhere_is_never_called_at_this_hosts_own_addresses(void **state)
{
    const int64_t words[MU_SURVIVE_BALLOT] = { 0 };
    struct shared *sh = calloc(1, sizeof *sh);
    struct mu_survive *s = open_survive(sh, 1, 2);
    struct thief t;

    thief_begin(&t, 0);
    memcpy(sh->card[0], sh->card[1], sizeof sh->card[0]);
    memcpy(sh->card[0], &t.port, sizeof t.port);
    strcpy(sh->card[0] + 8, "another machine");
    assert_int_equal(mu_survive_set_address(s, 0, sh->card[0], MU_SURVIVE_RECORD, NULL),
                     0);
    mu_survive_agree(s, words, 1, NULL);
    assert_int_equal(t.loot->calls, 0);
    assert_int_equal(mu_survive_life(s, 0), MU_SILENT);
    thief_end(&t);
    mu_survive_close(s);
    free(sh);
}

/* ---- The ring of nodes -------------------------------------------------------------
 */

static void look_for(struct mu_node_ring *n, int ms)
{
    const char *host;

    for (int i = 0; i < ms / 2; i++) {
        for (int r = 0; r < 2; r++)
            assert_int_equal(mu_node_ring_poll(&n[r], &host), -1);
        usleep(2000);
    }
}

static void the_ring_goes_on_past_a_thief_that_gets_no_part_of_the_secret(void **state)
{
    static const uint64_t node_of[2] = { 1, 2 };
    static const char *const host[2] = { "a", "b" };
    struct mu_node_ring n[2];
    struct thief t;

    thief_begin(&t, 0);
    for (int r = 0; r < 2; r++)
        mu_node_ring_open(&n[r], r, node_of, 2, host[r]);
    for (int r = 0; r < 2; r++)
        mu_node_ring_set_next(&n[r], &n[!r].mine, sizeof n[!r].mine);
    n[0].theirs.port = t.port;
    for (int i = 0; i < 30 && t.loot->done == 0; i++)
        look_for(n, 100);
    assert_true(t.loot->done > 0);
    assert_int_equal(n[0].to.fd, -1);
    assert_false(thief_has(&t, n[0].theirs.secret, sizeof n[0].theirs.secret));
    n[0].theirs.port = n[1].mine.port;
    look_for(n, 800);
    assert_true(n[0].to.fd >= 0);
    assert_true(n[1].from.fd >= 0);
    assert_string_equal(n[1].host_before, "a");
    for (int r = 0; r < 2; r++)
        mu_node_ring_close(&n[r]);
    thief_end(&t);
}

/* ---- Addresses ---------------------------------------------------------------------
 */

static void the_address_of_a_bridge_is_published_only_without_any_other(void **state)
{
    char before[MU_NET_ADDRESSES], after[MU_NET_ADDRESSES];

    if (geteuid() != 0 || unshare(CLONE_NEWNET) < 0 ||
        system("ip link add docker0 type bridge 2>/dev/null && "
               "ip addr add 10.99.1.1/24 dev docker0 && ip link set docker0 up && "
               "ip link set lo up") != 0)
        skip();
    mu_net_addresses(NULL, before, sizeof before);
    assert_int_equal(system("ip link add muster0 type bridge && "
                            "ip addr add 10.99.2.1/24 dev muster0 && "
                            "ip link set muster0 up"),
                     0);
    mu_net_addresses(NULL, after, sizeof after);
    assert_non_null(strstr(before, "10.99.1.1"));
    assert_null(strstr(after, "10.99.1.1"));
    assert_non_null(strstr(after, "10.99.2.1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_neither_sends_the_token_to_a_thief_nor_believes_it),
        cmocka_unit_test(the_survivors_go_on_when_a_thief_took_the_dead_leaders_port),
        cmocka_unit_test(a_rank_elsewhere_is_never_called_at_this_hosts_own_addresses),
        cmocka_unit_test(the_ring_goes_on_past_a_thief_that_gets_no_part_of_the_secret),
        /* last: it leaves this network */
        cmocka_unit_test(the_address_of_a_bridge_is_published_only_without_any_other),
    };

    return cmocka_run_group_tests_name("thief", tests, NULL, NULL);
}
