/* SPDX-License-Identifier: BSD-3-Clause */
/* forked.c - a world of ranks forked on this node, without Slurm or PMIx */
#include "runtime/tools/forked.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/muster.h"

#define KEY_LEN 64
#define VALUE_LEN 2048
#define ENTRIES 256 /* for each rank */

struct entry {
    char key[KEY_LEN];
    size_t len;
    unsigned char value[VALUE_LEN];
};

/* Memory that the ranks share. A rank writes an entry before it counts it. A value is
 * replaced only after a fence has followed its last read.
 */
struct board {
    atomic_uint arrived, generation;
    atomic_int pid[MU_FORKED_MAX];
    atomic_uint entries[MU_FORKED_MAX];
    struct entry entry[MU_FORKED_MAX][ENTRIES];
};

struct rank_impl {
    struct mu_world *world;
    struct board *board;
};

static void nap(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
}

static int publish(void *arg, const char *key, const void *value, size_t len,
                   struct mu_err *err)
{
    struct rank_impl *r = arg;
    int rank = r->world->rank;
    unsigned n = atomic_load(&r->board->entries[rank]), at = 0;
    struct entry *e;

    while (at < n && strcmp(r->board->entry[rank][at].key, key) != 0)
        at++;
    e = &r->board->entry[rank][at]; /* the same key again replaces its value */
    if (at == ENTRIES || len > VALUE_LEN || strlen(key) >= KEY_LEN)
        return mu_err_set(err, MUSTER_EINTERNAL, "no room for %zu bytes of '%s'", len,
                          key);
    /* Do not rewrite an equal key: a strcmp in another process would see it half
     * written.
     */
    if (at == n)
        snprintf(e->key, sizeof e->key, "%s", key);
    memcpy(e->value, value, len);
    e->len = len;
    if (at == n)
        atomic_store(&r->board->entries[rank], n + 1);
    return 0;
}

static int fence(void *arg, double timeout, struct mu_err *err)
{
    struct rank_impl *r = arg;
    struct board *b = r->board;
    unsigned generation = atomic_load(&b->generation);
    double end = mu_clock_s() + timeout;

    if (atomic_fetch_add(&b->arrived, 1) + 1 == (unsigned)r->world->size) {
        atomic_store(&b->arrived, 0);
        atomic_fetch_add(&b->generation, 1);
        return 0;
    }
    while (atomic_load(&b->generation) == generation) {
        if (mu_clock_s() > end)
            return mu_err_set(err, MUSTER_ETIMEOUT,
                              "a rank did not arrive within %.0f s", timeout);
        nap();
    }
    return 0;
}

static int fetch(void *arg, int rank, const char *key, void **value, size_t *len,
                 double timeout, struct mu_err *err)
{
    struct rank_impl *r = arg;
    double end = mu_clock_s() + timeout;

    do {
        unsigned n = atomic_load(&r->board->entries[rank]);

        for (unsigned i = n; i-- > 0;) {
            struct entry *e = &r->board->entry[rank][i];

            if (strcmp(e->key, key) != 0)
                continue;
            *value = malloc(e->len ? e->len : 1);
            if (!*value)
                return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
            memcpy(*value, e->value, e->len);
            *len = e->len;
            return 0;
        }
        nap();
    } while (mu_clock_s() < end);
    return mu_err_set(err, MUSTER_ERENDEZVOUS, "rank %d has not published '%s'", rank,
                      key);
}

static void world_close(struct mu_world *world)
{
    free(world->impl);
    mu_world_free(world);
}

static void world_abort(struct mu_world *world, int status, const char *why)
{
    fprintf(stderr, "muster: rank %d: %s\n", world->rank, why);
    _exit(status);
}

static struct mu_world *world_make(int rank, int n, struct board *board)
{
    char job[48], host[256] = "localhost";
    struct mu_world *w;
    struct rank_impl *impl = calloc(1, sizeof *impl);

    snprintf(job, sizeof job, "local.%d", (int)getppid());
    gethostname(host, sizeof host - 1);
    w = impl ? mu_world_new(rank, n, job, NULL) : NULL;
    if (!w) {
        free(impl);
        return NULL;
    }
    for (int r = 0; r < n; r++) {
        w->node_of[r] = 0;
        w->local_of[r] = r;
        w->host_of[r] = strdup(host);
        w->pid_of[r] = atomic_load(&board->pid[r]);
    }
    w->local_rank = rank;
    w->local_size = n;
    w->nnodes = 1;
    memset(w->token, 0x5a, sizeof w->token);
    *impl = (struct rank_impl){ w, board };
    w->exchange = (struct mu_exchange){ impl, publish, fence, fetch };
    w->close = world_close;
    w->abort = world_abort;
    w->impl = impl;
    return w;
}

int mu_forked_pid(const struct mu_world *world, int rank)
{
    const struct rank_impl *impl = world->impl;

    return atomic_load(&impl->board->pid[rank]);
}

/* The r-th of the devices that are visible here. */
static void narrow_to(int rank)
{
    const char *all = getenv("CUDA_VISIBLE_DEVICES");
    char list[1024], own[32], *rest = list, *one = own;

    snprintf(own, sizeof own, "%d", rank);
    if (all && mu_copy(list, sizeof list, all))
        for (int i = 0; i <= rank; i++)
            if (!(one = mu_parse_next(&rest, ',')))
                return; /* too few: the backend reports it */
    setenv("CUDA_VISIBLE_DEVICES", one, 1);
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
}

static int child(int rank, int n, bool narrow, struct board *board,
                 int (*body)(struct mu_world *, void *), void *arg)
{
    struct mu_world *world;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (narrow)
        narrow_to(rank);
    while (rank < n - 1 && atomic_load(&board->pid[n - 1]) == 0)
        nap();
    world = world_make(rank, n, board);
    return world ? body(world, arg) : MUSTER_EMEMORY;
}

/* Wait for all children; after the first failure the rest has `patience` seconds. The
 * status of a rank that reports an error counts more than that of a killed one.
 */
static int reap(int n, struct board *board, double patience)
{
    int left = n, first = 0, status;
    double end = 0;

    while (left > 0) {
        pid_t pid = waitpid(-1, &status, WNOHANG);

        if (pid > 0) {
            int rc = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);

            left--;
            for (int r = 0; r < n; r++)
                if (atomic_load(&board->pid[r]) == pid)
                    atomic_store(&board->pid[r], -1);
            if (rc != 0 && first == 0)
                end = mu_clock_s() + patience;
            if (rc != 0 && (first == 0 || (first > 128 && rc < 128)))
                first = rc;
        } else if (pid < 0 && errno != EINTR) {
            break;
        }
        for (int r = 0; first != 0 && mu_clock_s() > end && r < n; r++)
            if (atomic_load(&board->pid[r]) > 0)
                kill(atomic_load(&board->pid[r]), SIGKILL);
        if (pid <= 0)
            nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    }
    return first;
}

int mu_forked_run(int n, bool narrow, double patience,
                  int (*body)(struct mu_world *world, void *arg), void *arg)
{
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int rc;

    if (board == MAP_FAILED || n < 1 || n > MU_FORKED_MAX)
        return MUSTER_EUSAGE;
    fflush(NULL);
    for (int r = 0; r < n; r++) {
        pid_t pid = fork();

        if (pid == 0) {
            rc = child(r, n, narrow, board, body, arg);
            fflush(NULL);
            _exit(rc);
        }
        atomic_store(&board->pid[r], pid > 0 ? pid : -1);
    }
    rc = reap(n, board, patience);
    munmap(board, sizeof *board);
    return rc;
}
