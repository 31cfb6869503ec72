/* SPDX-License-Identifier: BSD-3-Clause */
/* test_host_pair.c - messages between two ranks of the host backend */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/backend/host/cores.h"
#include "runtime/backend/host/shm.h"
#include "runtime/base/clock.h"
#include "tests/unit/host_told.h"
#include "tests/unit/patience.h"

#define LARGE ((size_t)3 << 20)

static struct mu_coll to_rank(int rank, const void *p, size_t bytes)
{
    return (struct mu_coll){ .kind = MU_COLL_PAIR,
                             .dtype = MUSTER_BYTE,
                             .send = p,
                             .count = bytes,
                             .to = rank,
                             .from = -1,
                             .scale = 1,
                             .what = "a send" };
}

static struct mu_coll from_rank(int rank, void *p, size_t bytes)
{
    return (struct mu_coll){ .kind = MU_COLL_PAIR,
                             .dtype = MUSTER_BYTE,
                             .recv = p,
                             .recv_count = bytes,
                             .to = -1,
                             .from = rank,
                             .scale = 1,
                             .what = "a receive" };
}

static int move(struct mu_backend *b, struct mu_coll c, struct mu_err *err)
{
    struct mu_request *rq;

    c.joined = true;
    return host->start(b, &c, &rq, err) < 0 ? -1 : host->join(b, rq, NULL, err);
}

/* ---- Where the bytes pass ---- */

static int channels_mapped(void)
{
    FILE *f = fopen("/proc/self/maps", "re");
    char line[512];
    int n = 0;

    while (f && fgets(line, sizeof line, f))
        n += strstr(line, "muster-pair") != NULL;
    if (f)
        fclose(f);
    return n;
}

static int see_the_way(struct ranks_self *self, void *arg)
{
    int each = *(int *)arg, other = !self->rank;
    struct mu_err err = { 0 };
    struct mu_backend *b;
    char out = (char)self->rank, in = 7;

    if (open_world(self, &b) != 0)
        return 1;
    RANKS_CHECK(self, channels_mapped() == 0, "before the first message");
    for (int way = 0; way < 2; way++) {
        RANKS_CHECK(
            self,
            move(b,
                 self->rank == way ? to_rank(other, &out, 1) : from_rank(other, &in, 1),
                 &err) == 0,
            "%s", err.text);
        RANKS_CHECK(self, channels_mapped() == (way + 1) * each,
                    "%d in shared memory, direction %d", channels_mapped(), way);
    }
    RANKS_CHECK(self, in == (char)other, "%d", in);
    host->close(b);
    RANKS_CHECK(self, channels_mapped() == 0, "after the end");
    return 0;
}

static void inside_a_host_messages_pass_through_shared_memory(void **state)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        struct ranks_world w = { .n = 2, .force_tcp = tcp };
        int each = !tcp;

        assert_int_equal(ranks_run(&w, see_the_way, &each, NULL), 0);
    }
}

/* ---- How a rank waits ---- */

/* Before any collective. *arg: both ranks share a core. */
static int wait_for_messages(struct ranks_self *self, void *arg)
{
    bool share = *(bool *)arg;
    struct mu_err err = { 0 };
    struct mu_backend *b;
    cpu_set_t all, mine;
    char byte = 0;
    int cpu = 0;

    sched_getaffinity(0, sizeof all, &all);
    for (int left = share ? 0 : self->rank; left >= 0 && cpu < CPU_SETSIZE; cpu++)
        left -= CPU_ISSET(cpu, &all) != 0;
    CPU_ZERO(&mine);
    CPU_SET(cpu - 1, &mine);
    sched_setaffinity(0, sizeof mine, &mine);
    if (open_world(self, &b) != 0)
        return 1;
    for (int i = 0; i < 3; i++) {
        bool sends = (self->rank + i) % 2 == 0;

        RANKS_CHECK(self,
                    move(b,
                         sends ? to_rank(!self->rank, &byte, 1)
                               : from_rank(!self->rank, &byte, 1),
                         &err) == 0,
                    "%s", err.text);
    }
    RANKS_CHECK(self, ((struct mu_host_backend *)b)->shm->message_spins == !share,
                "share: %d", share);
    host->close(b);
    return 0;
}

static void a_wait_spins_where_each_rank_has_a_core(void **state)
{
    struct mu_cpuset cores;

    mu_cores_own(&cores);
    for (int share = mu_cpuset_count(&cores) > 1 ? 0 : 1; share < 2; share++) {
        struct ranks_world w = { .n = 2 };
        bool both = share;

        assert_int_equal(ranks_run(&w, wait_for_messages, &both, NULL), 0);
    }
}

/* ---- What arrives ---- */

static const size_t sizes[] = { 1,      0,      17,     32767,  32768, 32769, 262143,
                                262144, 262145, 500000, 262128, 3,     LARGE, 64 };
#define NSIZES (sizeof sizes / sizeof sizes[0])

static unsigned char byte_at(int rank, size_t message, size_t i)
{
    return (unsigned char)((i * 31 + (i >> 8) * 7 + message * 5 + (size_t)rank) % 251);
}

struct burst {
    const char *name;
    bool force_tcp, no_memory; /* none can be had for a channel */
    int late;                  /* rank that comes late with all it does; -1: none */
    bool one_by_one;           /* the caller moves the messages, not the thread */
};

static const struct burst bursts[] = {
    { "at once", false, false, -1, false },
    { "rank 0 is late", false, false, 0, false },
    { "rank 1 is late", false, false, 1, false },
    { "one by one", false, false, -1, true },
    { "one by one, rank 1 is late", false, false, 1, true },
    { "no memory for it", false, true, -1, false },
    { "no memory for it, one by one", false, true, 0, true },
    { "TCP", true, false, 1, false },
};

/* Starts message k of both directions, or moves them one after the other. */
static int exchange_one(struct ranks_self *self, struct mu_backend *b,
                        const struct burst *t, size_t k, unsigned char *data[2],
                        struct mu_request *rq[2])
{
    struct mu_coll both[2] = { to_rank(!self->rank, data[0], sizes[k]),
                               from_rank(!self->rank, data[1], sizes[k]) };
    struct mu_err err = { 0 };

    for (int i = 0; i < 2; i++) {
        /* Rank 0 sends first, rank 1 receives first. */
        int way = t->one_by_one ? i ^ self->rank : i;
        int rc = t->one_by_one ? move(b, both[way], &err)
                               : host->start(b, &both[way], &rq[way], &err);

        RANKS_CHECK(self, rc == 0, "%s, message %zu: %s", t->name, k, err.text);
    }
    return 0;
}

static int send_bursts(struct ranks_self *self, void *arg)
{
    const struct burst *t = arg;
    unsigned char *data[NSIZES][2];
    struct mu_request *rq[NSIZES][2];
    struct mu_err err = { 0 };
    struct mu_backend *b;

    if (open_world(self, &b) != 0)
        return 1;
    if (t->no_memory) { /* not even for a file in memory */
        signal(SIGXFSZ, SIG_IGN);
        RANKS_CHECK(self, setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 0, 0 }) == 0,
                    "setrlimit");
    }
    if (self->rank == t->late)
        sleep_ms(100);
    for (size_t k = 0; k < NSIZES; k++) {
        for (int i = 0; i < 2; i++)
            data[k][i] = calloc(1, sizes[k] + 1);
        for (size_t i = 0; i < sizes[k]; i++)
            data[k][0][i] = byte_at(self->rank, k, i);
        if (exchange_one(self, b, t, k, data[k], rq[k]) != 0)
            return 1;
        if (self->rank == t->late && k % 5 == 0)
            sleep_ms(20);
    }
    for (size_t k = 0; k < NSIZES; k++) {
        for (int i = 0; i < 2 && !t->one_by_one; i++)
            RANKS_CHECK(self, host->join(b, rq[k][i], NULL, &err) == 0, "%s", err.text);
        for (size_t i = 0; i < sizes[k]; i++)
            RANKS_CHECK(self, data[k][1][i] == byte_at(!self->rank, k, i),
                        "%s: byte %zu of message %zu", t->name, i, k);
        free(data[k][0]);
        free(data[k][1]);
    }
    RANKS_CHECK(self, channels_mapped() == (t->force_tcp || t->no_memory ? 0 : 2),
                "%s: %d in shared memory", t->name, channels_mapped());
    host->close(b);
    return 0;
}

static void messages_of_all_sizes_arrive_in_order(void **state)
{
    for (size_t i = 0; i < sizeof bursts / sizeof bursts[0]; i++) {
        struct burst t = bursts[i];
        struct ranks_world w = { .n = 2, .force_tcp = t.force_tcp };

        if (ranks_run(&w, send_bursts, &t, NULL) != 0)
            fail_msg("%s", t.name);
    }
}

/* ---- A rank that is gone, or never there ---- */

/* More than the memory between two ranks and the buffers of TCP take. */
#define HUGE_BYTES ((size_t)32 << 20)

enum end { DIES, LISTENS_NO_MORE, CLOSES, NEVER_COMES };

struct absence {
    const char *name;
    enum end how;
    bool receives; /* rank 0; else it sends */
    size_t bytes;
    bool received; /* the message before; else it waits at rank 1 */
    int status;
    const char *say;
};

static const struct absence absences[] = {
    { "the sender dies", DIES, true, HUGE_BYTES, true, MUSTER_EPEER, "rank 1 " },
    { "the receiver dies", DIES, false, HUGE_BYTES, true, MUSTER_EPEER, "rank 1 " },
    { "it ends before the first message to it", LISTENS_NO_MORE, false, 8, true,
      MUSTER_EPEER,
      "rank 1 (node n0) died or closed its communicator; this rank waits for it in a "
      "send" },
    { "the sender closes", CLOSES, true, 8, true, MUSTER_EPEER,
      "rank 1 (node n0) died or closed its communicator; this rank waits for it in a "
      "receive" },
    { "the receiver closes", CLOSES, false, HUGE_BYTES, true, MUSTER_EPEER,
      "rank 1 (node n0) died or closed its communicator; this rank waits for it in a "
      "send" },
    { "it closes before a small message", CLOSES, false, 8, true, MUSTER_EPEER,
      "rank 1 (node n0) died or closed its communicator" },
    { "it closes without a receive", CLOSES, false, 8, false, MUSTER_EPEER, "rank 1 " },
    { "the sender never comes", NEVER_COMES, true, 8, true, MUSTER_ETIMEOUT,
      "rank 1 (node n0) has not taken part in a receive after 1 s" },
    { "the receiver never comes", NEVER_COMES, false, HUGE_BYTES, true, MUSTER_ETIMEOUT,
      "rank 1 (node n0) has not taken part in a send after 1 s" },
};

/* results[0]: rank 0 is through; [1]: rank 1 has left; [2]: it has made its first call.
 */
static int be_absent(struct ranks_self *self, struct mu_backend *b,
                     const struct absence *t)
{
    if (t->how == NEVER_COMES)
        while (!self->results[0])
            sleep_ms(1);
    if (t->how == DIES) {
        sleep_ms(50); /* rank 0 waits by then */
        _exit(0);
    }
    if (t->how == LISTENS_NO_MORE) { /* as in the middle of its end */
        mu_endpoint_close(self->env.endpoint);
        self->env.endpoint = NULL;
    } else {
        host->close(b);
        mu_endpoint_retire(self->env.endpoint, self->env.generation);
    }
    self->results[1] = 1;
    while (!self->results[0])
        sleep_ms(1);
    return 0;
}

static int miss(struct ranks_self *self, void *arg)
{
    const struct absence *t = arg;
    unsigned char *p = calloc(1, HUGE_BYTES);
    struct mu_coll c =
        t->receives ? from_rank(1, p, t->bytes) : to_rank(1, p, t->bytes);
    struct mu_err err = { 0 };
    struct mu_backend *b;
    int64_t from;
    int rc = 0;

    if (open_world(self, &b) != 0)
        return 1;
    if (t->how == LISTENS_NO_MORE)
        ; /* before the first message */
    else if (self->rank == t->receives)
        rc = move(b, to_rank(!self->rank, p, 1), &err);
    else if (t->received)
        rc = move(b, from_rank(!self->rank, p, 1), &err);
    if (self->rank == 0)
        self->results[2] = 1;
    while (!self->results[2])
        sleep_ms(1);
    RANKS_CHECK(self, rc == 0, "%s: %s", t->name, err.text);
    if (self->rank == 1) {
        free(p);
        return be_absent(self, b, t);
    }
    while ((t->how == CLOSES || t->how == LISTENS_NO_MORE) && !self->results[1])
        sleep_ms(1);
    from = mu_clock_ns();
    rc = move(b, c, &err);
    self->results[0] = 1;
    RANKS_CHECK(self, rc < 0 && err.code == t->status && strstr(err.text, t->say),
                "%s: %d, code %d: %s", t->name, rc, err.code, err.text);
    RANKS_CHECK(self, mu_clock_ns() - from < (int64_t)5000000000 * PATIENCE,
                "%s: after %lld ms", t->name,
                (long long)(mu_clock_ns() - from) / 1000000);
    RANKS_CHECK(self, was_told(1, t->status), "%s: told of rank %d", t->name,
                told.rank);
    host->close(b);
    free(p);
    return 0;
}

static void an_absent_rank_is_named_in_time(void **state)
{
    for (size_t i = 0; i < sizeof absences / sizeof absences[0]; i++)
        for (int tcp = 0; tcp < 2; tcp++) {
            struct absence t = absences[i];
            struct ranks_world w = { .n = 2,
                                     .force_tcp = tcp,
                                     .timeout = t.how == NEVER_COMES ? 1 : 60 };

            /* The kernel takes a small message for a peer that has closed. */
            if (tcp && t.how == CLOSES && !t.receives && t.bytes < HUGE_BYTES)
                continue;
            if (ranks_run(&w, miss, &t, NULL) != 0)
                fail_msg("%s, %s", t.name, tcp ? "TCP" : "shared memory");
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inside_a_host_messages_pass_through_shared_memory),
        cmocka_unit_test(a_wait_spins_where_each_rank_has_a_core),
        cmocka_unit_test(messages_of_all_sizes_arrive_in_order),
        cmocka_unit_test(an_absent_rank_is_named_in_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
