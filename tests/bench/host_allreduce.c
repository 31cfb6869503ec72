/* SPDX-License-Identifier: BSD-3-Clause */
/* host_allreduce.c - the host backend's all-reduce against MPI_Allreduce, or its
 * messages between two ranks against MPI_Send and MPI_Recv, in one process
 *
 * host_allreduce ROUNDS [messages], started by mpirun (see tests/bench/host-allreduce).
 * The contestants take turns, a few iterations each, for a number of rounds. The time
 * of a round is that of the slowest rank, for messages that of one way. Every result is
 * checked. Rank 0 prints one line per contestant and size:
 *   NAME BYTES MEDIAN_US LEAST_US MOST_US
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/backend.h"
#include "runtime/endpoint/endpoint.h"

#define MAX_ROUNDS 1000

enum { MPI_PRIVATE, ARENA, PRIVATE, TCP, NCONTESTANTS };

static const char *const names[] = { "mpi", "arena", "private", "tcp" };

static int rank, size;

/* ---- an exchange over MPI: one record is published before each fence ---- */

static struct record {
    size_t len;
    char bytes[4096];
} mine, *all;

static int publish(void *arg, const char *key, const void *value, size_t len,
                   struct mu_err *err)
{
    if (len > sizeof mine.bytes)
        return mu_err_set(err, MUSTER_EMEMORY, "%s has %zu bytes", key, len);
    mine.len = len;
    memcpy(mine.bytes, value, len);
    return 0;
}

static int fence(void *arg, double timeout, struct mu_err *err)
{
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE,
                  MPI_COMM_WORLD);
    return 0;
}

static int fetch(void *arg, int from, const char *key, void **value, size_t *len,
                 double timeout, struct mu_err *err)
{
    *len = all[from].len;
    *value = malloc(*len + 1);
    if (!*value)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %s", key);
    memcpy(*value, all[from].bytes, *len);
    ((char *)*value)[*len] = '\0'; /* some values are texts */
    return 0;
}

static void die(const char *what, const struct mu_err *err)
{
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, err->text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The connections of all backends begin at one endpoint. */
static void open_endpoint(struct mu_backend_env *env)
{
    static struct mu_endpoint *endpoint;
    static struct mu_address *address;
    struct mu_err err = { 0 };

    if (!endpoint) {
        if (mu_endpoint_open(NULL, &endpoint, &err) < 0)
            die("endpoint", &err);
        for (int s = MU_SERVICE_CONTROL; s < MU_NSERVICES; s++)
            mu_endpoint_set_secret(endpoint, (enum mu_service)s, env->token);
        address = calloc((size_t)size, sizeof *address);
        MPI_Allgather(mu_endpoint_address(endpoint), sizeof *address, MPI_BYTE, address,
                      sizeof *address, MPI_BYTE, MPI_COMM_WORLD);
    }
    env->endpoint = endpoint;
    env->address = address;
}

static struct mu_backend *open_backend(bool force_tcp)
{
    static int node_of[1024];
    static const char *host_of[1024];
    struct mu_backend_env env = { .rank = rank,
                                  .size = size,
                                  .local_rank = rank,
                                  .local_size = size,
                                  .nnodes = 1,
                                  .node_of = node_of,
                                  .host_of = host_of,
                                  .job = "bench",
                                  .gpus = "",
                                  .generation = force_tcp,
                                  .force_tcp = force_tcp,
                                  .init_timeout = 30,
                                  .timeout = 120,
                                  .exchange = { NULL, publish, fence, fetch } };
    struct mu_backend *b;
    struct mu_err err = { 0 };

    for (int r = 0; r < size; r++)
        host_of[r] = "here";
    open_endpoint(&env);
    if (mu_backend_host.open(&env, &b, &err) < 0)
        die("open", &err);
    return b;
}

/* ---- the contest ---- */

struct entry {
    struct mu_backend *b; /* NULL: MPI */
    float *p;
    double us[MAX_ROUNDS];
};

static void all_reduce(struct entry *e, size_t count)
{
    struct mu_coll c = { .kind = MU_COLL_ALLREDUCE,
                         .send = e->p,
                         .recv = e->p,
                         .count = count,
                         .scale = 1 };
    struct mu_request *rq;
    struct mu_err err = { 0 };

    if (!e->b)
        MPI_Allreduce(MPI_IN_PLACE, e->p, (int)count, MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
    else if (mu_backend_host.start(e->b, &c, &rq, &err) < 0 ||
             mu_backend_host.join(e->b, rq, NULL, &err) < 0)
        die("all-reduce", &err);
}

/* The time of one, on the slowest rank. */
static double time_of(void (*move)(struct entry *, size_t), struct entry *e,
                      size_t count, int iters)
{
    double start, took, slowest;

    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    for (int i = 0; i < iters; i++)
        move(e, count);
    took = (MPI_Wtime() - start) * 1e6 / iters;
    MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static double all_reduces(struct entry *e, size_t bytes, int iters)
{
    size_t count = bytes / 4;
    double slowest;

    for (size_t i = 0; i < count; i++)
        e->p[i] = (float)(rank + (int)(i % 5));
    slowest = time_of(all_reduce, e, count, iters);
    for (size_t i = 0; i < count; i++) {
        float want = (float)(size * (int)(i % 5) + size * (size - 1) / 2);

        for (int k = 1; k < iters; k++)
            want *= (float)size;
        if (e->p[i] < want * 0.9999f || e->p[i] > want * 1.0001f) {
            struct mu_err err = { 0 };

            mu_err_set(&err, 0, "element %zu is %g, should be %g", i, e->p[i], want);
            die("wrong result", &err);
        }
    }
    return slowest;
}

static void send_or_receive(struct entry *e, size_t bytes, bool sends)
{
    int other = !rank;
    struct mu_coll c = { .kind = MU_COLL_PAIR,
                         .dtype = MUSTER_BYTE,
                         .send = e->p,
                         .recv = e->p,
                         .count = sends ? bytes : 0,
                         .recv_count = sends ? 0 : bytes,
                         .to = sends ? other : -1,
                         .from = sends ? -1 : other,
                         .scale = 1,
                         .joined = true };
    struct mu_request *rq;
    struct mu_err err = { 0 };

    if (!e->b && sends)
        MPI_Send(e->p, (int)bytes, MPI_BYTE, other, 0, MPI_COMM_WORLD);
    else if (!e->b)
        MPI_Recv(e->p, (int)bytes, MPI_BYTE, other, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    else if (mu_backend_host.start(e->b, &c, &rq, &err) < 0 ||
             mu_backend_host.join(e->b, rq, NULL, &err) < 0)
        die("message", &err);
}

static void there_and_back(struct entry *e, size_t bytes)
{
    send_or_receive(e, bytes, rank == 0);
    send_or_receive(e, bytes, rank == 1);
}

static double messages(struct entry *e, size_t bytes, int iters)
{
    unsigned char *p = (unsigned char *)e->p;
    double us;

    for (size_t i = 0; i < bytes; i++) /* rank 1 gets them, and sends them back */
        p[i] = rank == 0 ? (unsigned char)(i % 251) : 255;
    us = time_of(there_and_back, e, bytes, iters) / 2;
    for (size_t i = 0; i < bytes; i++) {
        struct mu_err err = { 0 };

        if (p[i] == i % 251)
            continue;
        mu_err_set(&err, 0, "byte %zu is %d, should be %zu", i, p[i], i % 251);
        die("wrong message", &err);
    }
    return us;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void contest(double (*turn)(struct entry *, size_t, int), struct entry *entries,
                    size_t bytes, int rounds, int iters)
{
    for (int r = -1; r < rounds; r++) /* the first is a warm-up */
        for (int i = 0; i < NCONTESTANTS; i++) {
            int k = (i + r + 1) % NCONTESTANTS; /* another one starts each round */
            double us = turn(&entries[k], bytes, iters);

            if (r >= 0)
                entries[k].us[r] = us;
        }
    for (int k = 0; k < NCONTESTANTS && rank == 0; k++) {
        double *us = entries[k].us;

        qsort(us, (size_t)rounds, sizeof *us, ascending);
        printf("%s %zu %.2f %.2f %.2f\n", names[k], bytes, us[rounds / 2], us[0],
               us[rounds - 1]);
    }
}

int main(int argc, char **argv)
{
    bool pairs = argc > 2 && strcmp(argv[2], "messages") == 0;
    size_t bytes = pairs ? 64u << 20 : 25u << 20;
    int rounds = argc > 1 ? atoi(argv[1]) : 9;
    static struct entry entries[NCONTESTANTS];
    struct mu_err err = { 0 };
    int level;

    /* No call while another thread calls: our thread makes no MPI calls at all. */
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rounds < 1 || rounds > MAX_ROUNDS || size > 1024 || (pairs && size != 2))
        MPI_Abort(MPI_COMM_WORLD, 2);
    all = calloc((size_t)size, sizeof *all);
    entries[ARENA].b = entries[PRIVATE].b = open_backend(false);
    entries[TCP].b = open_backend(true);
    for (int k = 0; k < NCONTESTANTS; k++)
        entries[k].p = k == ARENA ? mu_backend_host.alloc(entries[k].b, bytes, &err)
                                  : malloc(bytes);
    if (!entries[ARENA].p)
        die("alloc", &err);
    if (pairs) {
        all_reduces(&entries[PRIVATE], 4, 1); /* ranks on cores of their own spin now */
        contest(messages, entries, 16, rounds, 500);
        contest(messages, entries, 1024, rounds, 500);
        contest(messages, entries, 1 << 20, rounds, 30);
        contest(messages, entries, bytes, rounds, 3);
    } else {
        contest(all_reduces, entries, bytes, rounds, 3);
        contest(all_reduces, entries, 1024, rounds, 20);
    }
    mu_backend_host.close(entries[ARENA].b);
    mu_backend_host.close(entries[TCP].b);
    MPI_Finalize();
    return 0;
}
