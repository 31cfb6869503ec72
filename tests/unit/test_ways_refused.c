/* SPDX-License-Identifier: BSD-3-Clause */
/* test_ways_refused.c - mistakes in the variables of a launcher, and ranks that are
 * missing, are named
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/patience.h"
#include "tests/unit/ways.h"

static int fails(void *arg, const void *mine, void *all, size_t bytes)
{
    return 7;
}

static int hangs(void *arg, const void *mine, void *all, size_t bytes)
{
    pause();
    return 0;
}

static const struct mistake {
    const char *name;
    struct ways w;
    const char *said, *named; /* in one line; named: NULL for nothing more */
} mistakes[] = {
    { "a missing rank",
      { .size = 3, .init_timeout = WAYS_SHORT, .skip = 1u << 2 },
      "rank 2 of WORLD_SIZE=3 did not arrive within 2 s (MUSTER_INIT_TIMEOUT)",
      "user id" },
    { "a missing rank, over TCP",
      { .size = 3,
        .init_timeout = WAYS_SHORT,
        .skip = 1u << 1,
        .set = { { -1, "MUSTER_TOKEN", WAYS_TOKEN } } },
      "rank 1 of WORLD_SIZE=3 did not arrive within 2 s (MUSTER_INIT_TIMEOUT)",
      "(MASTER_PORT + 1)" },
    { "rank 0 is missing",
      { .size = 2, .init_timeout = WAYS_SHORT, .skip = 1u },
      ") cannot reach rank 0 at MASTER_ADDR=localhost port",
      "within 2 s (MUSTER_INIT_TIMEOUT)" },
    { "another WORLD_SIZE",
      { .size = 3, .set = { { 2, "WORLD_SIZE", "4" } } },
      "rank 2 (node ",
      "has WORLD_SIZE=4, but rank 0" },
    { "a RANK twice",
      { .size = 3, .set = { { 2, "RANK", "1" } } },
      "two processes have RANK=1: ",
      "of node" },
    { "RANK 0 twice",
      { .size = 2, .init_timeout = WAYS_SHORT, .set = { { 1, "RANK", "0" } } },
      "rank 0 (node ",
      "(MASTER_PORT + 1): another process has RANK=0" },
    { "a RANK above WORLD_SIZE",
      { .size = 2, .skip = 1u, .set = { { 1, "RANK", "2" } } },
      "RANK=2 but WORLD_SIZE=2",
      "ranks are 0 to" },
    { "a RANK that is no number",
      { .size = 2, .skip = 1u, .set = { { 1, "RANK", "one" } } },
      "RANK",
      "one" },
    { "a port that is no number",
      { .size = 2, .skip = 1u, .set = { { 1, "MASTER_PORT", "http" } } },
      "MASTER_PORT",
      "http" },
    { "the last port",
      { .size = 2, .skip = 1u, .set = { { 1, "MASTER_PORT", "65535" } } },
      "MASTER_PORT=65535",
      "MUSTER_PORT" },
    { "a name without an address",
      { .size = 2, .skip = 1u, .set = { { 1, "MASTER_ADDR", "no.such.invalid" } } },
      "rank 1 (node ",
      "cannot resolve MASTER_ADDR=no.such.invalid: " },
    { "several hosts without a token",
      { .size = 2, .skip = 2u, .set = { { 0, "LOCAL_WORLD_SIZE", "1" } } },
      "rank 0 (node ",
      "several hosts, which need a token: set MUSTER_TOKEN_FILE" },
    { "rank 0 elsewhere, without a token",
      { .size = 2, .skip = 1u, .set = { { 1, "MASTER_ADDR", "192.0.2.1" } } },
      "rank 1 (node ",
      "several hosts, which need a token: set MUSTER_TOKEN_FILE" },
    { "LOCAL_RANK in another order",
      { .size = 2,
        .set = { { -1, "LOCAL_WORLD_SIZE", "2" },
                 { 0, "LOCAL_RANK", "1" },
                 { 1, "LOCAL_RANK", "0" } } },
      "rank ",
      "in the order of RANK" },
    { "a token of another length",
      { .size = 2, .skip = 1u, .set = { { 1, "MUSTER_TOKEN", "12" } } },
      "MUSTER_TOKEN takes 64 hexadecimal digits",
      "" },
    { "an exchange that contradicts the variables",
      { .size = 2,
        .set = { { 0, "RANK", "1" }, { 1, "RANK", "0" } },
        .allgather = ways_allgather },
      "muster_options.exchange has rank 1 of 2, but",
      "rank 0 of 2" },
    { "an exchange of two ranks where one is asked for",
      { .size = 2,
        .set = { { -1, "MUSTER_SINGLE", "1" } },
        .allgather = ways_allgather,
        .first = true },
      "MUSTER_SINGLE=1 asks for a world of one rank, but",
      "rank 1 of 2" },
    { "an exchange that fails",
      { .size = 2,
        .set = { { -1, "RANK", NULL }, { -1, "WORLD_SIZE", NULL } },
        .allgather = fails },
      "rank 1 (node ",
      "the all-gather of muster_options.exchange returned 7" },
    { "an exchange that does not return",
      { .size = 2,
        .init_timeout = WAYS_SHORT,
        .set = { { -1, "RANK", NULL }, { -1, "WORLD_SIZE", NULL } },
        .allgather = hangs },
      "rank 0 (node ",
      "did not return within 2 s (MUSTER_INIT_TIMEOUT)" },
    { "an incomplete set of variables",
      { .size = 2, .skip = 1u, .set = { { 1, "MASTER_PORT", NULL } } },
      "WORLD_SIZE=2 RANK=1 MASTER_ADDR=localhost MASTER_PORT=(unset)",
      "set all four" },
};

static void a_mistake_is_named_before_the_deadline(void **state)
{
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        const struct mistake *t = &mistakes[i];
        struct ways w = t->w;
        struct ways_result r;
        double limit = w.init_timeout > 0 ? WAYS_SHORT + 4 : 10;

        ways_run(&w, ways_port(), ways_end, NULL, &r);
        for (int k = 0; k < w.size; k++)
            if (!(w.skip >> k & 1) &&
                (r.status[k] < MUSTER_ERENDEZVOUS || r.status[k] > MUSTER_EPEER))
                fail_msg("%s: rank %d: %d\n%s", t->name, k, r.status[k], r.text);
        if (!ways_line(r.text, t->said, t->named))
            fail_msg("%s: \n%s", t->name, r.text);
        if (r.seconds > limit * PATIENCE)
            fail_msg("%s: %.1f s\n%s", t->name, r.seconds, r.text);
        free(r.text);
    }
}

static void a_token_file_that_others_may_read_is_refused(void **state)
{
    static const struct {
        const char *name;
        unsigned mode;
        uid_t owner;
        size_t len;
        const char *said;
    } files[] = {
        { "readable by the group", 0640, 0, 32, "has mode 0640: others may read it" },
        { "writable by others", 0602, 0, 32, "has mode 0602" },
        { "of another user", 0600, 65534, 32, "belongs to user id 65534" },
        { "too short", 0600, 0, 31, "holds neither 32 bytes nor 64" },
        { "too long", 0600, 0, 33, "holds neither 32 bytes nor 64" },
        { "no digits", 0600, 0, 64, "holds neither 32 bytes nor 64" },
    };

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[256], bytes[64];
        struct ways w = { .size = 2,
                          .skip = 2,
                          .set = { { -1, "MUSTER_TOKEN_FILE", path } } };
        struct ways_result r;
        int fd;

        if (files[i].owner && geteuid() != 0)
            continue;
        ways_token(path, sizeof path);
        fd = open(path, O_WRONLY | O_TRUNC);
        memset(bytes, 'x', sizeof bytes);
        assert_int_equal(write(fd, bytes, files[i].len), files[i].len);
        close(fd);
        assert_int_equal(chmod(path, files[i].mode), 0);
        if (files[i].owner)
            assert_int_equal(chown(path, files[i].owner, (gid_t)-1), 0);
        ways_run(&w, ways_port(), ways_end, NULL, &r);
        unlink(path);
        if (r.status[0] != MUSTER_ERENDEZVOUS ||
            !ways_line(r.text, "MUSTER_TOKEN_FILE=", files[i].said))
            fail_msg("%s: %d\n%s", files[i].name, r.status[0], r.text);
        free(r.text);
    }
}
/* ---- Another program has the port ----------------------------------------------- */

static int listen_on(int port)
{
    struct sockaddr_in6 at = { .sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)port) };
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 16), 0);
    return fd;
}

static void master_port_itself_may_be_taken_and_the_port_above_it_may_not(void **state)
{
    struct ways w = { .size = 2,
                      .init_timeout = WAYS_SHORT,
                      .set = { { -1, "MUSTER_TOKEN", WAYS_TOKEN } } };
    struct ways_result r;
    int port = ways_port(), agent = listen_on(port), other;
    char text[32];

    ways_run(&w, port, ways_end, NULL, &r); /* as below the agent of torchrun */
    assert_int_equal(r.status[0] | r.status[1], 0);
    free(r.text);
    other = listen_on(port + 1);
    ways_run(&w, port, ways_end, NULL, &r);
    assert_int_equal(r.status[0], MUSTER_ERENDEZVOUS);
    assert_int_equal(r.status[1], MUSTER_ERENDEZVOUS);
    snprintf(text, sizeof text, "port %d", port + 1);
    assert_true(ways_line(r.text, "rank 0 (node ", text));
    assert_true(ways_line(r.text, text, "another program has the port"));
    assert_true(ways_line(r.text, ") cannot reach rank 0", text));
    free(r.text);
    snprintf(text, sizeof text, "%d", ways_port());
    w.set[1].rank = -1;
    w.set[1].name = "MUSTER_PORT";
    w.set[1].value = text;
    ways_run(&w, port, ways_end, NULL, &r);
    assert_int_equal(r.status[0] | r.status[1], 0);
    free(r.text);
    close(other);
    close(agent);
}

static void a_rank_that_dies_while_another_one_is_missing_is_named(void **state)
{
    static const char *const token[] = { NULL, WAYS_TOKEN };

    for (int tcp = 0; tcp < 2; tcp++) {
        struct ways w = { .size = 4,
                          .skip = 1u << 1,
                          .dies_after = 0.7,
                          .set = { { -1, "MUSTER_TOKEN", token[tcp] } } };
        struct ways_result r;

        ways_run(&w, ways_port(), ways_end, NULL, &r);
        assert_int_equal(r.status[3], 128 + SIGALRM);
        if (r.status[0] != MUSTER_EPEER || r.status[2] != MUSTER_EPEER ||
            !ways_line(r.text, "rank 3 (node ",
                       "died or left before all ranks had met"))
            fail_msg("%d, %d\n%s", r.status[0], r.status[2], r.text);
        assert_true(r.seconds < 10 * PATIENCE);
        free(r.text);
    }
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mistake_is_named_before_the_deadline),
        cmocka_unit_test(a_token_file_that_others_may_read_is_refused),
        cmocka_unit_test(master_port_itself_may_be_taken_and_the_port_above_it_may_not),
        cmocka_unit_test(a_rank_that_dies_while_another_one_is_missing_is_named),
    };

    return cmocka_run_group_tests_name("ways refused", tests, NULL, NULL);
}
