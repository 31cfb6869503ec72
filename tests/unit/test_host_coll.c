/* SPDX-License-Identifier: BSD-3-Clause */
/* test_host_coll.c - every collective of the host backend has the bits of a serial sum
 * in rank order, on every layout, element type, size and kind of memory
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/host_ref.h"
#include "tests/unit/ranks.h"

static const struct mu_backend_ops *const host = &mu_backend_host;

enum memory { ARENA, PRIVATE, MIXED };

static const struct layout {
    const char *name, *transport;
    int n, nodes[8];
    bool force_tcp;
} layouts[] = {
    { "one rank", "shared memory", 1, { 0 }, false },
    { "two ranks of a node", "shared memory", 2, { 0, 0 }, false },
    { "four ranks of a node", "shared memory", 4, { 0, 0, 0, 0 }, false },
    { "seven ranks of a node", "shared memory", 7, { 0 }, false },
    { "two ranks over TCP", "TCP", 2, { 0 }, true },
    { "four ranks over TCP", "TCP", 4, { 0 }, true },
    { "two nodes of two", "shared memory + TCP", 4, { 0, 0, 1, 1 }, false },
    { "nodes of 2, 2, 2 and 1",
      "shared memory + TCP",
      7,
      { 0, 0, 1, 1, 2, 2, 3 },
      false },
    { "two nodes, ranks dealt in turn",
      "shared memory + TCP",
      5,
      { 0, 1, 0, 1, 0 },
      false },
};

static const struct shape {
    const char *name;
    enum mu_coll_kind kind;
    enum muster_dtype dtype;
    enum muster_op op;
    size_t bytes; /* about; of the larger buffer */
    double scale;
} shapes[] = {
    { "a barrier", MU_COLL_BARRIER, MUSTER_F32, MUSTER_SUM, 0, 1 },
    { "nothing", MU_COLL_ALLREDUCE, MUSTER_F32, MUSTER_SUM, 0, 1 },
    { "one fp32", MU_COLL_ALLREDUCE, MUSTER_F32, MUSTER_SUM, 4, 1 },
    { "one fp32, mean", MU_COLL_ALLREDUCE, MUSTER_F32, MUSTER_SUM, 4, 1.0 / 3 },
    { "an odd number of fp32", MU_COLL_ALLREDUCE, MUSTER_F32, MUSTER_SUM, 4092, 0.25 },
    { "an odd number of fp64", MU_COLL_ALLREDUCE, MUSTER_F64, MUSTER_SUM, 8184,
      1.0 / 3 },
    { "a page less a half", MU_COLL_ALLREDUCE, MUSTER_F16, MUSTER_SUM, 4094, 1.0 / 3 },
    { "bf16 beyond small", MU_COLL_ALLREDUCE, MUSTER_BF16, MUSTER_SUM, 70002, 1.0 / 7 },
    { "fp16 beyond small", MU_COLL_ALLREDUCE, MUSTER_F16, MUSTER_SUM, 70002, 1 },
    { "fp32, 1 MiB and 3 more", MU_COLL_ALLREDUCE, MUSTER_F32, MUSTER_SUM, 1048588,
      0.5 },
    { "fp64, 1 MiB and 3 more", MU_COLL_ALLREDUCE, MUSTER_F64, MUSTER_SUM, 1048600, 1 },
    { "bf16, 1 MiB and 3 more", MU_COLL_ALLREDUCE, MUSTER_BF16, MUSTER_SUM, 1048582,
      1 },
    { "int32 wraps", MU_COLL_ALLREDUCE, MUSTER_I32, MUSTER_SUM, 40004, 1 },
    { "int64 wraps", MU_COLL_ALLREDUCE, MUSTER_I64, MUSTER_SUM, 40008, 1 },
    { "int32, mean", MU_COLL_ALLREDUCE, MUSTER_I32, MUSTER_SUM, 20004, 1.0 / 3 },
    { "int64 min", MU_COLL_ALLREDUCE, MUSTER_I64, MUSTER_MIN, 20008, 1 },
    { "int32 max", MU_COLL_ALLREDUCE, MUSTER_I32, MUSTER_MAX, 20004, 1 },
    { "fp32 min", MU_COLL_ALLREDUCE, MUSTER_F32, MUSTER_MIN, 20004, 1 },
    { "fp16 max", MU_COLL_ALLREDUCE, MUSTER_F16, MUSTER_MAX, 20002, 1 },
    { "fp64 max, small", MU_COLL_ALLREDUCE, MUSTER_F64, MUSTER_MAX, 56, 1 },
    { "broadcast of nothing", MU_COLL_BROADCAST, MUSTER_F32, MUSTER_SUM, 0, 1 },
    { "small broadcast", MU_COLL_BROADCAST, MUSTER_F16, MUSTER_SUM, 34, 1 },
    { "broadcast", MU_COLL_BROADCAST, MUSTER_F32, MUSTER_SUM, 3000004, 1 },
    { "small all-gather", MU_COLL_ALLGATHER, MUSTER_I32, MUSTER_SUM, 60, 1 },
    { "all-gather", MU_COLL_ALLGATHER, MUSTER_F32, MUSTER_SUM, 2000012, 1 },
    { "small reduce-scatter", MU_COLL_REDUCE_SCATTER, MUSTER_BF16, MUSTER_SUM, 60,
      0.5 },
    { "reduce-scatter", MU_COLL_REDUCE_SCATTER, MUSTER_F32, MUSTER_SUM, 2000012,
      1.0 / 3 },
    { "reduce-scatter of nothing", MU_COLL_REDUCE_SCATTER, MUSTER_F32, MUSTER_SUM, 0,
      1 },
};
#define NSHAPES (sizeof shapes / sizeof shapes[0])

#define ROOM ((size_t)4 << 20)

struct buffers {
    struct mu_backend *b;
    char *arena[2], *private[2];
};

static bool is_split(enum mu_coll_kind kind)
{
    return kind == MU_COLL_ALLGATHER || kind == MU_COLL_REDUCE_SCATTER;
}

/* Fill what this rank gives, run, compare every element of what it gets. Overlap 0: two
 * buffers, 1: in place (the small one at its place in the large one), 2: the small one
 * at the start of the large one.
 */
static int run_case(struct ranks_self *self, const struct buffers *m,
                    const struct shape *s, enum memory memory, int overlap,
                    unsigned salt)
{
    size_t size = ref_size(s->dtype), n = (size_t)self->size, me = (size_t)self->rank;
    size_t count = s->bytes / size / (is_split(s->kind) ? n : 1), given = count,
           got = count;
    char *const *from =
        memory == ARENA || (memory == MIXED && self->rank % 2) ? m->arena : m->private;
    char *send = from[0], *recv = from[overlap ? 0 : 1], want[8];
    struct mu_coll c = { .kind = s->kind,
                         .dtype = s->dtype,
                         .op = s->op,
                         .count = count,
                         .root = s->kind == MU_COLL_BROADCAST ? self->size - 1 : 0,
                         .scale = s->scale };
    struct mu_err err = { 0 };
    struct mu_request *rq;
    bool gives = s->kind != MU_COLL_BROADCAST || c.root == self->rank;

    if (s->kind == MU_COLL_REDUCE_SCATTER)
        given = n * count;
    if (s->kind == MU_COLL_ALLGATHER)
        got = n * count;
    if (overlap == 1 && s->kind == MU_COLL_ALLGATHER)
        send = recv + me * count * size;
    if (overlap == 1 && s->kind == MU_COLL_REDUCE_SCATTER)
        recv = send + me * count * size;
    memset(recv, 0xee, got * size + 16);
    if (gives)
        ref_fill(s->dtype, self->rank, 0, given, salt, send);
    c.send = gives ? send : NULL;
    c.recv = recv;
    RANKS_CHECK(self, host->start(m->b, &c, &rq, &err) == 0, "%s: %s", s->name,
                err.text);
    RANKS_CHECK(self, host->join(m->b, rq, NULL, &err) == 0, "%s: %s", s->name,
                err.text);
    for (size_t i = 0; i < got; i++) {
        if (s->kind == MU_COLL_BROADCAST)
            ref_value(s->dtype, c.root, i, salt, want);
        else if (s->kind == MU_COLL_ALLGATHER)
            ref_value(s->dtype, (int)(i / count), i % count, salt, want);
        else
            ref_reduce(s->dtype, s->op, s->scale, self->size,
                       s->kind == MU_COLL_REDUCE_SCATTER ? me * count + i : i, salt,
                       want);
        RANKS_CHECK(self, memcmp(want, recv + i * size, size) == 0,
                    "%s, memory %d, overlap %d: element %zu of %zu differs", s->name,
                    memory, overlap, i, got);
    }
    for (size_t i = 0; i < 16 && !overlap; i++)
        RANKS_CHECK(self, recv[got * size + i] == (char)0xee,
                    "%s: written past the end", s->name);
    return 0;
}

/* Everything for what is quick; each kind of memory once for what is not. */
static bool worth_it(const struct shape *s, enum memory memory, int overlap)
{
    if (s->bytes == 0)
        return memory == ARENA && overlap == 0;
    if (s->bytes > 100000)
        return overlap == (memory == PRIVATE ? 0 : 1);
    return overlap < 2 || is_split(s->kind);
}

static int every_shape(struct ranks_self *self, void *arg)
{
    const struct layout *layout = arg;
    struct buffers m = { 0 };
    struct mu_err err = { 0 };

    RANKS_CHECK(self, host->open(&self->env, &m.b, &err) == 0, "%s", err.text);
    RANKS_CHECK(self, strcmp(host->transport(m.b), layout->transport) == 0, "%s",
                host->transport(m.b));
    for (int i = 0; i < 2; i++) {
        m.arena[i] = host->alloc(m.b, ROOM, &err);
        m.private[i] = malloc(ROOM);
        RANKS_CHECK(self, m.arena[i] && m.private[i], "%s", err.text);
        RANKS_CHECK(self,
                    (uintptr_t)m.arena[i] % 4096 == 0 && m.arena[i][ROOM - 1] == 0,
                    "alignment or contents of %p", (void *)m.arena[i]);
        m.private[i]++; /* unaligned */
    }
    for (size_t s = 0; s < NSHAPES; s++)
        for (int k = 0; k < 9; k++)
            if (worth_it(&shapes[s], (enum memory)(k % 3), k / 3) &&
                run_case(self, &m, &shapes[s], (enum memory)(k % 3), k / 3,
                         (unsigned)s) != 0)
                return 1;
    for (int i = 0; i < 2; i++) {
        host->free(m.b, m.arena[i]);
        free(m.private[i] - 1);
    }
    host->close(m.b);
    return 0;
}

static void every_collective_has_the_serial_bits(void **state)
{
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        struct ranks_world w = { .n = layouts[i].n,
                                 .node_of = layouts[i].nodes,
                                 .force_tcp = layouts[i].force_tcp };

        if (ranks_run(&w, every_shape, (void *)&layouts[i], NULL) != 0)
            fail_msg("%s", layouts[i].name);
    }
}

/* 25 MiB and more buckets in flight than may be entered ahead. */
static int many_in_flight(struct ranks_self *self, void *arg)
{
    enum { N = 12 };
    size_t big = 25u << 18, sizes[N], total = 0, at = 0;
    struct mu_backend *b;
    struct mu_request *rq[N];
    struct mu_err err = { 0 };
    bool arena = !*(bool *)arg;
    float *base;

    RANKS_CHECK(self, host->open(&self->env, &b, &err) == 0, "%s", err.text);
    for (int k = 0; k < N; k++) {
        sizes[k] = k == 5 ? big : (size_t)(k * 997 % 5) * 20011 + (size_t)k;
        total += sizes[k];
    }
    base = arena ? host->alloc(b, total * 4, &err) : malloc(total * 4);
    RANKS_CHECK(self, base, "%s", err.text);
    for (int k = 0; k < N; at += sizes[k++]) {
        struct mu_coll c = { .kind = MU_COLL_ALLREDUCE,
                             .send = base + at,
                             .recv = base + at,
                             .count = sizes[k],
                             .scale = 0.25 };

        for (size_t i = 0; i < sizes[k]; i++)
            base[at + i] = (float)(i % 1000) + (float)self->rank / 8 + (float)k;
        RANKS_CHECK(self, host->start(b, &c, &rq[k], &err) == 0, "%s", err.text);
    }
    at = 0;
    for (int k = 0; k < N; at += sizes[k++]) {
        RANKS_CHECK(self, host->join(b, rq[k], NULL, &err) == 0, "%s", err.text);
        for (size_t i = 0; i < sizes[k]; i++) {
            float want = 0;

            for (int r = 0; r < self->size; r++)
                want += (float)(i % 1000) + (float)r / 8 + (float)k;
            RANKS_CHECK(self, base[at + i] == want * 0.25f, "bucket %d element %zu", k,
                        i);
        }
    }
    if (arena)
        host->free(b, base);
    else
        free(base);
    host->close(b);
    return 0;
}

static void many_buckets_in_flight_come_back_right(void **state)
{
    bool private[] = { false, true };

    for (int i = 0; i < 2; i++) {
        struct ranks_world w = { .n = 4 };

        assert_int_equal(ranks_run(&w, many_in_flight, &private[i], NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_has_the_serial_bits),
        cmocka_unit_test(many_buckets_in_flight_come_back_right),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
