/* SPDX-License-Identifier: BSD-3-Clause */
/* fork_ranks.c - ranks forked on this node, with an exchange in shared memory */
#include "runtime/tools/fork_ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/random.h"
#include "runtime/muster.h"

#define KEY_LEN 64
#define VALUE_LEN 2048
#define ENTRIES 256  /* keys of each rank */
#define NO_STATUS 99 /* of a rank that was not let start, or not reaped */

/* The epoch of a rank is 1 plus the number of fences that it has entered. All ranks
 * that publish or fetch are in one epoch.
 */
struct value {
    unsigned epoch; /* in which it was published; 0: none */
    size_t len;
    unsigned char bytes[VALUE_LEN];
};

/* A value that others may read in this epoch is not written in it: publish writes the
 * other one.
 */
struct entry {
    char key[KEY_LEN];
    struct value value[2];
    _Atomic unsigned newest; /* index of value */
};

struct row {
    _Atomic unsigned epoch, entries;
    struct entry entry[ENTRIES];
};

struct mu_fork_board {
    uint8_t token[MU_TOKEN_LEN];
    pid_t pid[MU_FORK_MAX];
    _Atomic int64_t results[MU_FORK_RESULTS];
    struct row row[]; /* by rank */
};

static void nap(long us)
{
    nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL);
}

/* ---- The exchange ---- */

static struct entry *find(struct row *row, const char *key)
{
    unsigned n = atomic_load(&row->entries);

    for (unsigned i = 0; i < n; i++)
        if (strcmp(row->entry[i].key, key) == 0)
            return &row->entry[i];
    return NULL;
}

static int publish(void *arg, const char *key, const void *value, size_t len,
                   struct mu_err *err)
{
    struct mu_fork_rank *self = arg;
    struct row *row = &self->board->row[self->rank];
    unsigned epoch = atomic_load(&row->epoch), n = atomic_load(&row->entries), at;
    struct entry *e = find(row, key);
    bool new = !e;

    if ((new &&n == ENTRIES) || len > VALUE_LEN || strlen(key) >= KEY_LEN)
        return mu_err_set(err, MUSTER_EINTERNAL, "no room for %zu bytes of '%s'", len,
                          key);
    if (new) {
        e = &row->entry[n];
        snprintf(e->key, sizeof e->key, "%s", key);
    }
    at = atomic_load(&e->newest);
    if (e->value[at].epoch != epoch)
        at = !at;
    e->value[at].epoch = epoch;
    e->value[at].len = len;
    memcpy(e->value[at].bytes, value, len);
    atomic_store(&e->newest, at);
    if (new)
        atomic_store(&row->entries, n + 1);
    return 0;
}

static int fence(void *arg, double timeout, struct mu_err *err)
{
    struct mu_fork_rank *self = arg;
    struct row *row = self->board->row;
    double end = mu_clock_s() + timeout;
    unsigned mine = atomic_fetch_add(&row[self->rank].epoch, 1) + 1;

    for (int r = 0; r < self->size; r++)
        while (atomic_load(&row[r].epoch) < mine) {
            if (mu_clock_s() > end)
                return mu_err_set(err, MUSTER_ERENDEZVOUS,
                                  "rank %d did not arrive within %g s", r, timeout);
            nap(100);
        }
    return 0;
}

static int fetch(void *arg, int rank, const char *key, void **value, size_t *len,
                 double timeout, struct mu_err *err)
{
    struct mu_fork_rank *self = arg;
    struct row *row = self->board->row;
    unsigned epoch = atomic_load(&row[self->rank].epoch), at;
    struct entry *e = find(&row[rank], key);
    const struct value *v = NULL;

    if (e) {
        at = atomic_load(&e->newest);
        v = &e->value[e->value[at].epoch < epoch ? at : !at];
    }
    if (!v || v->epoch == 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "rank %d published no '%s' before the last fence", rank, key);
    *value = malloc(v->len ? v->len : 1);
    if (!*value)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    memcpy(*value, v->bytes, v->len);
    *len = v->len;
    return 0;
}

/* ---- The processes ---- */

void *mu_fork_shared(size_t bytes)
{
    void *p =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

static bool is_started(const struct mu_fork_spec *spec, int rank)
{
    return !(spec->skip >> rank & 1);
}

/* gate: a pipe from which each rank reads one byte. It ends early where the parent died
 * or could not fork all ranks.
 */
static _Noreturn void run_rank(struct mu_fork_rank *self, const int *gate,
                               int (*body)(struct mu_fork_rank *, void *), void *arg)
{
    char go;
    int rc;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(gate[1]);
    if (read(gate[0], &go, 1) != 1)
        _exit(NO_STATUS);
    close(gate[0]);
    self->exchange = (struct mu_exchange){ self, publish, fence, fetch, NULL };
    rc = body(self, arg);
    fflush(NULL);
    _exit(rc);
}

/* Returns 0, or errno. Ranks that were forked end in either case. */
static int start(const struct mu_fork_spec *spec, struct mu_fork_board *board,
                 int (*body)(struct mu_fork_rank *, void *), void *arg)
{
    int gate[2], failed = 0;

    if (pipe2(gate, O_CLOEXEC) < 0)
        return errno;
    fflush(NULL);
    for (int r = 0; r < spec->size && !failed; r++) {
        struct mu_fork_rank self = { .rank = r,
                                     .size = spec->size,
                                     .pid = board->pid,
                                     .token = board->token,
                                     .results = board->results,
                                     .board = board };
        pid_t pid;

        if (!is_started(spec, r))
            continue;
        pid = fork();
        if (pid == 0)
            run_rank(&self, gate, body, arg);
        if (pid < 0)
            failed = errno;
        else
            board->pid[r] = pid;
    }
    for (int r = 0; r < spec->size && !failed; r++)
        if (write(gate[1], "", 1) != 1)
            failed = errno;
    close(gate[0]);
    close(gate[1]);
    return failed;
}

static int exit_status(int raw)
{
    return WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
}

/* pid[r] becomes 0 when rank r has ended. */
static void reap(const struct mu_fork_spec *spec, pid_t *pid, double begin,
                 struct mu_fork_end *end)
{
    double until = spec->limit > 0 ? begin + spec->limit : HUGE_VAL;
    bool late = false;
    int left;

    do {
        double now = mu_clock_s();
        bool kill_now = !late && now > until;

        left = 0;
        late = late || kill_now;
        for (int r = 0; r < spec->size; r++) {
            int raw;
            pid_t ended;

            if (pid[r] == 0)
                continue;
            ended = waitpid(pid[r], &raw, WNOHANG);
            if (ended == 0) {
                left++;
                if (kill_now && kill(pid[r], SIGKILL) == 0)
                    end->killed++;
                continue;
            }
            pid[r] = 0;
            end->status[r] = ended > 0 ? exit_status(raw) : NO_STATUS;
            end->seconds[r] = now - begin;
            if (end->status[r] != 0 && spec->patience > 0)
                until = fmin(until, now + spec->patience);
        }
        if (left > 0)
            nap(2000);
    } while (left > 0);
}

static bool counts_more(const struct mu_fork_end *end, int a, int b)
{
    bool a_killed = end->status[a] > 128, b_killed = end->status[b] > 128;

    return a_killed != b_killed ? b_killed : end->seconds[a] < end->seconds[b];
}

static int first_failure(const struct mu_fork_end *end, int n)
{
    int first = -1;

    for (int r = 0; r < n; r++)
        if (end->status[r] != 0 && (first < 0 || counts_more(end, r, first)))
            first = r;
    return first < 0 ? 0 : end->status[first];
}

int mu_fork_ranks(const struct mu_fork_spec *spec,
                  int (*body)(struct mu_fork_rank *self, void *arg), void *arg,
                  struct mu_fork_end *end)
{
    size_t bytes =
        sizeof(struct mu_fork_board) + (size_t)spec->size * sizeof(struct row);
    struct mu_fork_end own = { 0 };
    struct mu_fork_board *board;
    pid_t pid[MU_FORK_MAX];
    double begin = mu_clock_s();
    int failed;

    if (spec->size < 1 || spec->size > MU_FORK_MAX) {
        errno = EINVAL;
        return -1;
    }
    board = mu_fork_shared(bytes);
    if (!board)
        return -1;
    for (int r = 0; r < spec->size; r++)
        atomic_store(&board->row[r].epoch, 1);
    failed = mu_random(board->token, sizeof board->token) < 0
                 ? errno
                 : start(spec, board, body, arg);
    memcpy(pid, board->pid, sizeof pid);
    reap(spec, pid, begin, &own);
    for (int i = 0; i < MU_FORK_RESULTS; i++)
        own.results[i] = atomic_load(&board->results[i]);
    munmap(board, bytes);
    if (failed) {
        errno = failed;
        return -1;
    }
    if (end)
        *end = own;
    return first_failure(&own, spec->size);
}
