/* SPDX-License-Identifier: BSD-3-Clause */
/* test_ways.c - the ways into a world without PMIx: equal weights, deaths, strangers
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/api/impl.h"
#include "runtime/endpoint/endpoint.h"
#include "tests/unit/forked.h"
#include "tests/unit/strangers.h"
#include "tests/unit/ways.h"

#define WEIGHTS 257
#define STEPS 12
#define RANKS 4

/* ---- A small training ----------------------------------------------------------- */

struct trained {
    double weight[RANKS][WEIGHTS];
};

static int train(struct muster *m, void *arg)
{
    struct trained *trained = arg;
    double *w = trained->weight[muster_rank(m)];
    const struct muster_param param = {
        .name = "weight", .count = WEIGHTS, .dtype = MUSTER_F64, .data = w
    };
    struct muster_ddp *ddp;

    for (int i = 0; i < WEIGHTS; i++)
        w[i] = muster_rank(m) == 0 ? 1.0 / (i + 3) : 0;
    RANK_OK(muster_ddp_create(m, &param, 1, NULL, &ddp));
    RANK_OK(muster_ddp_broadcast(ddp, 0));
    for (int step = 0; step < STEPS; step++) {
        double *grad = muster_ddp_grad(ddp, 0);

        for (int i = 0; i < WEIGHTS; i++)
            grad[i] = w[i] - 1.0 / (7 + muster_rank(m) * 3 + (i + step) % 5);
        RANK_OK(muster_ddp_grad_ready(ddp, 0, NULL));
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int i = 0; i < WEIGHTS; i++)
            w[i] -= 0.3 * grad[i];
    }
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static int train_forked(struct muster *m, int rank, void *arg)
{
    return train(m, arg);
}

static void well(const char *name, const struct ways *w, const struct trained *expected)
{
    struct trained *trained = forked_shared(sizeof *trained);
    struct ways_result r;

    ways_run(w, ways_port(), train, trained, &r);
    for (int k = 0; k < w->size; k++)
        if (r.status[k] != 0)
            fail_msg("%s: rank %d: %d\n%s", name, k, r.status[k], r.text);
    if (r.text[0])
        fail_msg("%s: %s", name, r.text);
    if (memcmp(trained, expected, sizeof *trained) != 0)
        fail_msg("%s: the weights differ", name);
    free(r.text);
}

static const struct trained *expected_weights(void)
{
    struct trained *e = forked_shared(sizeof *e);

    forked_well("ranks of the tests' own exchange",
                (struct forked_world){ .size = RANKS, .nodes = 1 }, train_forked, e);
    return e;
}

static void each_way_gives_the_same_weights_bit_for_bit(void **state)
{
    const struct trained *expected = expected_weights();
    char path[256];

    ways_token(path, sizeof path);
    well("AF_UNIX", &(struct ways){ .size = RANKS }, expected);
    well("TCP, a token in a file",
         &(struct ways){ .size = RANKS, .set = { { -1, "MUSTER_TOKEN_FILE", path } } },
         expected);
    well("TCP, a token in a variable",
         &(struct ways){ .size = RANKS, .set = { { -1, "MUSTER_TOKEN", WAYS_TOKEN } } },
         expected);
    well("TCP between nodes",
         &(struct ways){ .size = RANKS,
                         .set = { { -1, "MUSTER_TOKEN", WAYS_TOKEN },
                                  { 2, "NODE_RANK", "1" },
                                  { 3, "NODE_RANK", "1" } } },
         expected);
    well("the program's own exchange",
         &(struct ways){ .size = RANKS,
                         .set = { { -1, "RANK", NULL }, { -1, "WORLD_SIZE", NULL } },
                         .allgather = ways_allgather },
         expected);
    well("the program's own exchange before other variables",
         &(struct ways){ .size = RANKS,
                         .set = { { -1, "RANK", "7" },
                                  { -1, "WORLD_SIZE", "8" },
                                  { -1, "MUSTER_PLAN", "v=1;task=7" } },
                         .allgather = ways_allgather,
                         .first = true },
         expected);
    unlink(path);
}

static int go_on_without_rank_3(struct muster *m, void *arg)
{
    struct trained *trained = arg;
    int me = muster_rank(m), shrunk = 0;
    double *w = trained->weight[me];
    const struct muster_param param = {
        .name = "weight", .count = WEIGHTS, .dtype = MUSTER_F64, .data = w
    };
    struct muster_ddp *ddp;

    RANK_OK(muster_ddp_create(m, &param, 1, NULL, &ddp));
    for (int step = 0; step < STEPS; step++) {
        double *grad = muster_ddp_grad(ddp, 0);
        int status;

        if (me == 3 && step == 5)
            raise(SIGKILL);
        for (int i = 0; i < WEIGHTS; i++)
            grad[i] = me + i;
        status = muster_ddp_grad_ready(ddp, 0, NULL);
        if (status == MUSTER_OK)
            status = muster_ddp_sync(ddp, NULL);
        RANK_CHECK(status == MUSTER_OK || status == MUSTER_ESHRUNK);
        if (status == MUSTER_ESHRUNK) {
            shrunk++;
            step--;
            continue;
        }
        for (int i = 0; i < WEIGHTS; i++)
            w[i] -= 0.25 * grad[i];
    }
    RANK_CHECK(shrunk == 1 && muster_size(m) == 3);
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void elastic_ranks_go_on_when_one_dies(void **state)
{
    static const char *const token[] = { NULL, WAYS_TOKEN };

    for (int tcp = 0; tcp < 2; tcp++) {
        struct trained *trained = forked_shared(sizeof *trained);
        struct ways w = { .size = RANKS,
                          .set = { { -1, "MUSTER_TOKEN", token[tcp] },
                                   { -1, "MUSTER_ELASTIC", "1" } } };
        struct ways_result r;

        ways_run(&w, ways_port(), go_on_without_rank_3, trained, &r);
        if (r.status[0] | r.status[1] | r.status[2])
            fail_msg("%d %d %d\n%s", r.status[0], r.status[1], r.status[2], r.text);
        assert_int_equal(r.status[3], 128 + SIGKILL);
        for (int k = 1; k < 3; k++)
            assert_memory_equal(trained->weight[k], trained->weight[0],
                                sizeof trained->weight[0]);
        free(r.text);
    }
}

static int check_gpu(struct muster *m, void *gpu)
{
    RANK_CHECK(strcmp(m->comm.gpus, gpu) == 0);
    return muster_finalize(m);
}

static void the_plans_gpu_is_not_used_where_the_program_has_its_own(void **state)
{
    for (int own = 0; own < 2; own++) {
        struct ways w = { .size = 1,
                          .own_device = own,
                          .set = {
                              { -1, "MUSTER_TOKEN", WAYS_TOKEN },
                              { -1, "MUSTER_PLAN", "v=1;task=0;gpus=0:41:0.0" } } };
        struct ways_result r;

        ways_run(&w, ways_port(), check_gpu, own ? "" : "0:41:0.0", &r);
        if (r.status[0] != 0)
            fail_msg("own_device %d: %d %s", own, r.status[0], r.text);
        free(r.text);
    }
}

/* ---- The token ------------------------------------------------------------------ */

struct sent {
    size_t len;
    uint8_t bytes[8192];
};

static int record(void *arg, const char *key, const void *value, size_t len,
                  struct mu_err *err)
{
    struct sent *sent = arg;

    assert_true(len <= sizeof sent->bytes);
    memcpy(sent->bytes, value, len);
    sent->len = len;
    return -1; /* it goes no further */
}

static void a_token_that_all_ranks_have_is_not_sent(void **state)
{
    for (int has = 0; has < 2; has++) {
        struct mu_world *w = mu_world_new(0, 2, "1.0", NULL);
        struct sent sent = { 0 };

        assert_non_null(w);
        memcpy(w->token, WAYS_TOKEN, MU_TOKEN_LEN);
        w->has_token = has;
        w->exchange = (struct mu_exchange){ .arg = &sent, .publish = record };
        assert_int_equal(mu_world_listen(w, NULL, NULL), 0);
        assert_int_equal(mu_world_exchange(w, 1, NULL), -1);
        assert_true(sent.len > MU_TOKEN_LEN);
        assert_int_equal(memmem(sent.bytes, sent.len, w->token, MU_TOKEN_LEN) == NULL,
                         has);
        mu_world_free(w);
    }
}

/* ---- Strangers ------------------------------------------------------------------ */

#define CHALLENGE 36 /* bytes that any caller over TCP gets: a nonce */

struct stranger {
    int port;
    _Atomic int calls, most; /* over TCP; bytes that one of them got */
    _Atomic int local_calls, local_bytes;
};

/* Answer the challenge as a rank 2 whose proof is a guess; returns the bytes got. */
static int guess(int fd)
{
    struct timeval patience = { .tv_usec = 300000 };
    unsigned char in[256] = { 0 }, out[MU_HELLO_RESPONSE] = { 0 };
    ssize_t got, more;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    got = recv(fd, in, sizeof in, 0);
    if (got <= 0)
        return 0;
    memcpy(out, in, 4); /* the magic */
    out[4] = MU_SERVICE_RENDEZVOUS;
    out[16] = 2; /* the rank */
    if (send(fd, out, sizeof out, MSG_NOSIGNAL) < 0)
        return (int)got;
    more = recv(fd, in, sizeof in, 0);
    return (int)(got + (more > 0 ? more : 0));
}

static void call_port(struct stranger *s)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)s->port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM, 0), got;

    if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0) {
        got = guess(fd);
        s->calls++;
        if (got > s->most)
            s->most = got;
    }
    close(fd);
}

/* Any user finds the names in /proc. That of a rendezvous begins with "muster". */
static void call_names(struct stranger *s)
{
    static const char begin[] = "@muster-6d7573746572";
    FILE *f = fopen("/proc/net/unix", "r");
    char line[512], *name;

    while (f && fgets(line, sizeof line, f)) {
        struct sockaddr_un at = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);

        line[strcspn(line, "\n")] = '\0';
        name = strstr(line, begin);
        if (name) {
            size_t len = strlen(name + 1);

            memcpy(at.sun_path + 1, name + 1, len);
            if (connect(fd, (struct sockaddr *)&at,
                        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                                    len)) == 0) {
                s->local_bytes += guess(fd);
                s->local_calls++;
            }
        }
        close(fd);
    }
    if (f)
        fclose(f);
}

static pid_t begin_stranger(struct stranger *s)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    if (setgid(65534) < 0 || setuid(65534) < 0)
        _exit(1);
    for (;;) {
        call_port(s);
        call_names(s);
        usleep(20000);
    }
}

static void another_user_at_the_rendezvous_gets_nothing(void **state)
{
    static const char *const token[] = { NULL, WAYS_TOKEN };

    if (geteuid() != 0 || !nodes_leave()) /* names of other tests are not ours */
        skip();
    for (int tcp = 0; tcp < 2; tcp++) {
        struct ways w = { .size = 3,
                          .skip = 1u << 2,
                          .init_timeout = WAYS_SHORT,
                          .set = { { -1, "MUSTER_TOKEN", token[tcp] } } };
        struct stranger *s = forked_shared(sizeof *s);
        int port = ways_port();
        struct ways_result r;
        pid_t pid;

        s->port = port + 1;
        pid = begin_stranger(s);
        ways_run(&w, port, ways_end, NULL, &r);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        assert_true(ways_line(r.text, "rank 2 of WORLD_SIZE=3 did not arrive", ""));
        free(r.text);
        assert_int_equal(s->calls > 0, tcp);
        assert_int_equal(s->local_calls > 0, !tcp);
        assert_true(s->most <= CHALLENGE);
        assert_int_equal(s->local_bytes, 0);
        print_message("# %s: %d calls over TCP, %d to the name\n",
                      tcp ? "a token" : "no token", s->calls, s->local_calls);
    }
}

/* ---- Another user holds the name ------------------------------------------------ */

enum hold { SERVED, FULL, BOUND };

/* "muster", the port after MASTER_PORT, the ranks' user, a turn: rank 0's first is 0. */
static int hold_name(int port, uint32_t turn, enum hold how)
{
    const struct {
        char name[6];
        uint16_t port;
        uint32_t user, turn;
    } id = { "muster", (uint16_t)(port + 1), 0, turn };
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), len;
    char name[64] = "muster-";

    for (size_t i = 0; i < sizeof id; i++)
        snprintf(name + 7 + 2 * i, 3, "%02x", ((const uint8_t *)&id)[i]);
    memcpy(at.sun_path + 1, name, strlen(name));
    len = (int)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    if (bind(fd, (struct sockaddr *)&at, (socklen_t)len) < 0)
        return -1;
    if (how != BOUND)
        listen(fd, how == FULL ? 0 : 128);
    for (int i = 0; how == FULL && i < 2; i++) {
        int caller = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

        connect(caller, (struct sockaddr *)&at, (socklen_t)len);
    }
    return fd;
}

static pid_t begin_holder(int port, enum hold how, _Atomic int *calls)
{
    pid_t pid = fork();
    int fd;

    if (pid != 0)
        return pid;
    if (setgid(65534) < 0 || setuid(65534) < 0)
        _exit(1);
    fd = hold_name(port, 0, how);
    for (uint32_t turn = 1; turn < 20; turn++)
        if (hold_name(port, turn, how) < 0)
            fd = -1;
    if (fd < 0)
        _exit(1);
    *calls = 0;
    for (;;)
        if (how == SERVED && accept(fd, NULL, NULL) >= 0)
            ++*calls;
        else
            pause();
}

static void another_user_may_hold_the_name_of_rank_0(void **state)
{
    _Atomic int *calls = forked_shared(sizeof *calls);

    if (geteuid() != 0 || !nodes_leave())
        skip();
    for (enum hold how = SERVED; how <= BOUND; how++) {
        struct ways w = { .size = 3 };
        struct ways_result r;
        int port = ways_port();
        pid_t pid;

        *calls = -1;
        pid = begin_holder(port, how, calls);
        while (*calls < 0 && waitpid(pid, NULL, WNOHANG) == 0)
            usleep(1000);
        ways_run(&w, port, ways_end, NULL, &r);
        for (int i = 0; how == SERVED && *calls == 0 && i < 20000; i++)
            usleep(1000);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_int_equal(*calls > 0, how == SERVED);
        for (int k = 0; k < w.size; k++)
            assert_int_equal(r.status[k], 0);
        free(r.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_way_gives_the_same_weights_bit_for_bit),
        cmocka_unit_test(elastic_ranks_go_on_when_one_dies),
        cmocka_unit_test(the_plans_gpu_is_not_used_where_the_program_has_its_own),
        cmocka_unit_test(a_token_that_all_ranks_have_is_not_sent),
        cmocka_unit_test(another_user_at_the_rendezvous_gets_nothing),
        cmocka_unit_test(another_user_may_hold_the_name_of_rank_0),
    };

    return cmocka_run_group_tests_name("ways", tests, NULL, NULL);
}
