/* SPDX-License-Identifier: BSD-3-Clause */
/* shm_transport.c - the transport of one domain: sleep, detect absent peers, leave */
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/backend/host/cores.h"
#include "runtime/backend/host/shm.h"
#include "runtime/base/clock.h"

/* How long a rank looks before it sleeps: a wake-up takes about as long. */
#define SPIN_NS 30000
#define LOOKS 64 /* between two readings of the clock */

/* A hint for a core that polls memory: save power, leave time to the sibling. */
static inline void pause_core(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A peer that has left or aborted never enters a request that it has not entered yet.
 */
static void check_absent(struct mu_host_backend *b)
{
    struct mu_shm *shm = b->shm;

    for (int i = 0; i < shm->nlocal && !b->failure.status; i++) {
        struct mu_shm_mailbox *mailbox = mu_shm_mailbox_of(shm, i);
        uint32_t presence = atomic_load(&mailbox->presence);

        if (i == shm->me || presence == MU_PRESENT)
            continue;
        if (presence == MU_ABORTED)
            mu_engine_follow(b, shm->rank_of[i], &mailbox->failure);
        else if (b->head && !mu_shm_has_reached(shm, i, shm->want))
            mu_engine_lost(b, shm->rank_of[i], MU_DEATH_ENDED);
    }
}

static bool shm_arm(struct mu_host_backend *b, enum mu_sleep how)
{
    struct mu_shm *shm = b->shm;
    struct mu_shm_mailbox *mailbox = mu_shm_mailbox_of(shm, shm->me);

    atomic_store(&mailbox->want, shm->want);
    atomic_store(&mailbox->asleep, how);
    check_absent(b);
    if (!b->failure.status && !mu_shm_all_reached(shm, shm->want))
        return true;
    atomic_store(&mailbox->asleep, 0);
    return false;
}

/* Ranks that share cores would keep each other from running: these sleep at once. */
static bool each_has_a_core(const struct mu_shm *shm, enum mu_shm_moment moment)
{
    struct mu_cpuset taken = { 0 };

    for (int i = 0; i < shm->nlocal; i++)
        if (!mu_cores_take(&taken, &mu_shm_mailbox_of(shm, i)->cores[moment]))
            return false;
    return true;
}

bool mu_shm_message_spins(struct mu_shm *shm)
{
    if (atomic_load(&shm->first_entered))
        return atomic_load(&shm->spins);
    if (shm->all_opened)
        return shm->message_spins;
    for (int i = 0; i < shm->nlocal; i++)
        if (!atomic_load(&mu_shm_mailbox_of(shm, i)->opened))
            return false;
    shm->all_opened = true;
    shm->message_spins = each_has_a_core(shm, MU_AT_OPEN);
    return shm->message_spins;
}

static bool shm_spin(struct mu_host_backend *b)
{
    struct mu_shm *shm = b->shm;
    int64_t end = 0;

    if (!shm->first_entered) {
        if (!mu_shm_all_reached(shm, MU_SHM_WANT(MU_ENTERED, 1)))
            return false;
        shm->spins = each_has_a_core(shm, MU_AT_ENTRY);
        shm->first_entered = true; /* behind spins: a message may look now */
    }
    if (!shm->spins)
        return false;
    for (int64_t now = 0; now <= end; now = mu_clock_ns()) {
        for (int i = 0; i < LOOKS; i++) {
            if (mu_shm_all_reached(shm, shm->want))
                return true;
            pause_core();
        }
        if (end == 0) /* the others are mostly there by now */
            end = mu_clock_ns() + SPIN_NS;
    }
    return false;
}

static void shm_wait(struct mu_host_backend *b)
{
    syscall(SYS_futex, &mu_shm_mailbox_of(b->shm, b->shm->me)->asleep, FUTEX_WAIT,
            MU_SLEEP_FUTEX, NULL, NULL, 0);
}

static void shm_nudge(struct mu_host_backend *b)
{
    struct mu_shm_mailbox *mailbox = mu_shm_mailbox_of(b->shm, b->shm->me);

    /* Mostly the caller in join has ended its own request: it does not sleep. */
    if (atomic_load(&mailbox->asleep) &&
        atomic_exchange(&mailbox->asleep, 0) == MU_SLEEP_FUTEX)
        syscall(SYS_futex, &mailbox->asleep, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Event of a local peer's watch: its process has ended (without pidfds: its socket). */
static void shm_event(struct mu_host_backend *b, int index, uint32_t events)
{
    struct mu_shm *shm = b->shm;

    if (index < 0) {
        check_absent(b);
        return;
    }
    index -= MU_INDEX_LOCAL;
    epoll_ctl(b->epoll_fd, EPOLL_CTL_DEL, shm->watch[index], NULL);
    if (atomic_load(&mu_shm_mailbox_of(shm, index)->presence) == MU_PRESENT)
        mu_engine_lost(b, shm->rank_of[index], MU_DEATH_ENDED);
    else
        check_absent(b);
}

/* Writes "rank 3 (node b)" or "ranks 3, 5 and 6" of the ranks behind `want`; returns
 * how many.
 */
static int list_late(struct mu_host_backend *b, char *text, size_t len, int *first)
{
    struct mu_shm *shm = b->shm;
    int n = 0, total = 0;

    for (int i = 0; i < shm->nlocal; i++) {
        if (mu_shm_has_reached(shm, i, shm->want))
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

static void shm_late(struct mu_host_backend *b, const struct mu_host_request *rq,
                     struct mu_failure *failure)
{
    struct mu_shm *shm = b->shm;
    char who[256] = "";
    int n = list_late(b, who, sizeof who, &failure->rank);

    if (n == 0)
        snprintf(failure->text, sizeof failure->text,
                 "%s took longer than %g s on this rank", mu_host_request_text(rq),
                 b->env.timeout);
    else
        snprintf(failure->text, sizeof failure->text, "%s %s %s after %g s; %d wait%s",
                 who,
                 MU_SHM_WANT_COUNTER(shm->want) == MU_ENTERED
                     ? (n > 1 ? "have not entered" : "has not entered")
                     : "stopped inside",
                 mu_host_request_text(rq), b->env.timeout, shm->nlocal - n,
                 shm->nlocal - n == 1 ? "s" : "");
}

/* The doorbells also wake a peer that has no request, or whose caller sleeps in join.
 */
static void publish_presence(struct mu_shm *shm, enum mu_shm_presence presence)
{
    atomic_store(&mu_shm_mailbox_of(shm, shm->me)->presence, presence);
    for (int i = 0; i < shm->nlocal; i++)
        if (i != shm->me)
            mu_shm_ring_doorbell(shm, i);
}

static void shm_abort(struct mu_host_backend *b)
{
    struct mu_shm_mailbox *mailbox = mu_shm_mailbox_of(b->shm, b->shm->me);

    mailbox->failure = b->failure;
    publish_presence(b->shm, MU_ABORTED);
}

static void shm_close(struct mu_host_backend *b)
{
    if (b->shm && b->shm->base && !b->failure.status)
        publish_presence(b->shm, MU_LEFT);
    mu_shm_forget(b);
    mu_shm_free(b->shm);
    b->shm = NULL;
}

const struct mu_host_transport mu_transport_shm = {
    .name = "shared memory",
    .connect = mu_shm_open,
    .post = mu_shm_post,
    .progress = mu_shm_progress,
    .arm = shm_arm,
    .spin = shm_spin,
    .wait = shm_wait,
    .nudge = shm_nudge,
    .event = shm_event,
    .late = shm_late,
    .abort = shm_abort,
    .close = shm_close,
    .forget = mu_shm_forget,
};
