/* SPDX-License-Identifier: BSD-3-Clause */
/* shm.c - counters, sleeping and waking, absent peers; the shared-memory transport
 *
 * A sleeper says in its desk which counter it waits for and how far; the one whose step
 * makes that true for the last rank wakes it: one wake per wait, however many ranks.
 * Everything here is sequentially consistent: the sleeper publishes, then looks at the
 * counters once more; the other steps, then looks for sleepers. One of them sees the
 * other.
 */
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/backend/host/meet.h"
#include "runtime/backend/host/shm.h"

#define WANT(counter, value) ((uint64_t)(counter) << 56 | (value))
#define WANT_COUNTER(want) ((want) >> 56)
#define WANT_VALUE(want) ((want) & (UINT64_MAX >> 8))

struct mu_desk *mu_shm_desk(const struct mu_shm *shm, int local)
{
    return (struct mu_desk *)(void *)shm->base + local;
}

static size_t slots_at(int nlocal)
{
    size_t page = 4096, len = (size_t)nlocal * sizeof(struct mu_desk);

    return (len + page - 1) / page * page;
}

size_t mu_shm_slot_offset(const struct mu_shm *shm, int local, uint64_t round)
{
    size_t slot = (size_t)local * MU_SHM_NSLOTS + round % MU_SHM_NSLOTS;

    return slots_at(shm->nlocal) + slot * MU_SHM_SLOT;
}

char *mu_shm_slot(const struct mu_shm *shm, int local, uint64_t round)
{
    return shm->base + mu_shm_slot_offset(shm, local, round);
}

size_t mu_shm_length(int nlocal)
{
    return slots_at(nlocal) + (size_t)nlocal * MU_SHM_NSLOTS * MU_SHM_SLOT;
}

static bool all_reached(const struct mu_shm *shm, uint64_t want)
{
    for (int i = 0; i < shm->nlocal; i++)
        if (atomic_load(&mu_shm_desk(shm, i)->counter[WANT_COUNTER(want)]) <
            WANT_VALUE(want))
            return false;
    return true;
}

void mu_shm_wake(struct mu_shm *shm, int local)
{
    struct mu_desk *desk = mu_shm_desk(shm, local);
    if (!atomic_load(&desk->asleep))
        return;
    switch (atomic_exchange(&desk->asleep, 0)) {
    case MU_SLEEP_BELL:
        mu_shm_ring(shm, local);
        break;
    case MU_SLEEP_FUTEX:
        syscall(SYS_futex, &desk->asleep, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        break;
    }
}

void mu_shm_advance(struct mu_shm *shm, enum mu_counter counter, uint64_t by)
{
    atomic_fetch_add(&mu_shm_desk(shm, shm->me)->counter[counter], by);
    for (int i = 0; i < shm->nlocal; i++) {
        struct mu_desk *desk = mu_shm_desk(shm, i);
        uint64_t want;

        if (i == shm->me || !atomic_load(&desk->asleep))
            continue;
        want = atomic_load(&desk->want);
        if (WANT_COUNTER(want) == counter && all_reached(shm, want))
            mu_shm_wake(shm, i);
    }
}

bool mu_shm_reached(struct mu_shm *shm, enum mu_counter counter, uint64_t value)
{
    shm->want = WANT(counter, value);
    return all_reached(shm, shm->want);
}

/* A peer that has left or aborted and is behind what we wait for will never come. */
static void check_absent(struct mu_backend *b)
{
    struct mu_shm *shm = b->shm;
    char who[128];

    for (int i = 0; i < shm->nlocal && !b->failure.status; i++) {
        struct mu_desk *desk = mu_shm_desk(shm, i);
        uint32_t presence = atomic_load(&desk->presence);

        if (i == shm->me || presence == MU_PRESENT)
            continue;
        mu_rank_text(b, shm->rank_of[i], who, sizeof who);
        if (presence == MU_ABORTED)
            mu_engine_fail(b, desk->failure.status, desk->failure.rank, true, "%s%s%s",
                           desk->failure.rank == shm->rank_of[i] ? who : "",
                           desk->failure.rank == shm->rank_of[i] ? " gave up: " : "",
                           desk->failure.text);
        else if (b->head && atomic_load(&desk->counter[WANT_COUNTER(shm->want)]) <
                                WANT_VALUE(shm->want))
            mu_engine_fail(
                b, MUSTER_EPEER, shm->rank_of[i], true,
                "%s has closed its communicator; this rank waits for it in %s", who,
                mu_request_text(b->head));
    }
}

static bool shm_arm(struct mu_backend *b, enum mu_sleep how)
{
    struct mu_shm *shm = b->shm;
    struct mu_desk *desk = mu_shm_desk(shm, shm->me);

    atomic_store(&desk->want, shm->want);
    atomic_store(&desk->asleep, how);
    check_absent(b);
    if (!b->failure.status && !all_reached(shm, shm->want))
        return true;
    atomic_store(&desk->asleep, 0);
    return false;
}

static void shm_wait(struct mu_backend *b)
{
    syscall(SYS_futex, &mu_shm_desk(b->shm, b->shm->me)->asleep, FUTEX_WAIT,
            MU_SLEEP_FUTEX, NULL, NULL, 0);
}

static void shm_nudge(struct mu_backend *b)
{
    struct mu_desk *desk = mu_shm_desk(b->shm, b->shm->me);

    atomic_store(&desk->asleep, 0);
    syscall(SYS_futex, &desk->asleep, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The watch of a local peer: its process has ended (or its socket, without pidfds). */
static void shm_event(struct mu_backend *b, int index, uint32_t events)
{
    struct mu_shm *shm = b->shm;
    char who[128];

    if (index < 0) {
        check_absent(b);
        return;
    }
    index -= MU_INDEX_LOCAL;
    epoll_ctl(b->epoll_fd, EPOLL_CTL_DEL, shm->watch[index], NULL);
    if (atomic_load(&mu_shm_desk(shm, index)->presence) == MU_PRESENT)
        mu_engine_fail(b, MUSTER_EPEER, shm->rank_of[index], true, "%s died%s%s",
                       mu_rank_text(b, shm->rank_of[index], who, sizeof who),
                       b->head ? "; this rank waits for it in " : "",
                       b->head ? mu_request_text(b->head) : "");
    else
        check_absent(b);
}

/* "rank 3 (node b)" or "ranks 3, 5 and 6" of those behind `want`; returns how many. */
static int list_late(struct mu_backend *b, char *text, size_t len, int *first)
{
    struct mu_shm *shm = b->shm;
    int n = 0, total = 0;

    for (int i = 0; i < shm->nlocal; i++) {
        if (atomic_load(&mu_shm_desk(shm, i)->counter[WANT_COUNTER(shm->want)]) >=
            WANT_VALUE(shm->want))
            continue;
        if (total++ == 0) {
            *first = shm->rank_of[i];
            mu_rank_text(b, *first, text, len);
        } else if (n < 8) {
            size_t used = strlen(text);

            snprintf(text + used, len - used, ", rank %d", shm->rank_of[i]);
        }
        n++;
    }
    return total;
}

static void shm_late(struct mu_backend *b, const struct mu_request *rq,
                     struct mu_failure *failure)
{
    struct mu_shm *shm = b->shm;
    char who[256] = "";
    int n = list_late(b, who, sizeof who, &failure->rank);

    if (n == 0)
        snprintf(failure->text, sizeof failure->text,
                 "%s took longer than %g s on this rank", mu_request_text(rq),
                 b->env.timeout);
    else
        snprintf(failure->text, sizeof failure->text, "%s %s %s after %g s; %d wait%s",
                 who,
                 WANT_COUNTER(shm->want) == MU_ENTERED
                     ? (n > 1 ? "have not entered" : "has not entered")
                     : "stopped inside",
                 mu_request_text(rq), b->env.timeout, shm->nlocal - n,
                 shm->nlocal - n == 1 ? "s" : "");
}

void mu_shm_ring(struct mu_shm *shm, int local)
{
    uint64_t one = 1;

    if (write(shm->bell[local], &one, sizeof one) < 0) {
        /* Full: it has been rung. */
    }
}

/* The thread of a peer that has nothing started, or whose caller sleeps in join, looks
 * up too.
 */
static void say_presence(struct mu_shm *shm, enum mu_presence presence)
{
    atomic_store(&mu_shm_desk(shm, shm->me)->presence, presence);
    for (int i = 0; i < shm->nlocal; i++)
        if (i != shm->me)
            mu_shm_ring(shm, i);
}

static void shm_abort(struct mu_backend *b)
{
    struct mu_desk *desk = mu_shm_desk(b->shm, b->shm->me);

    desk->failure = b->failure;
    say_presence(b->shm, MU_ABORTED);
}

void mu_shm_forget(struct mu_backend *b)
{
    struct mu_shm *shm = b->shm;

    if (!shm)
        return;
    for (int i = 0; i < shm->nlocal; i++) {
        if (i != shm->me && shm->bell[i] >= 0)
            close(shm->bell[i]);
        if (shm->watch[i] >= 0)
            close(shm->watch[i]);
        shm->bell[i] = shm->watch[i] = -1;
    }
    if (shm->fd >= 0)
        close(shm->fd);
    shm->fd = -1;
}

static void shm_close(struct mu_backend *b)
{
    if (b->shm && b->shm->base && !b->failure.status)
        say_presence(b->shm, MU_LEFT);
    mu_shm_forget(b);
    mu_shm_free(b->shm);
    b->shm = NULL;
}

const struct mu_transport mu_transport_shm = {
    .name = "shared memory",
    .connect = mu_shm_open,
    .post = mu_shm_post,
    .progress = mu_shm_progress,
    .arm = shm_arm,
    .wait = shm_wait,
    .nudge = shm_nudge,
    .event = shm_event,
    .late = shm_late,
    .abort = shm_abort,
    .close = shm_close,
    .forget = mu_shm_forget,
};
