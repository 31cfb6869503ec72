/* SPDX-License-Identifier: BSD-3-Clause */
/* shm.c - the segment's layout, counters, waking sleepers
 *
 * A sleeper says in its desk which counter it waits for and how far; the one whose step
 * makes that true for the last rank wakes it: one wake per wait, however many ranks.
 * Everything here is sequentially consistent: the sleeper publishes, then looks at the
 * counters once more; the other steps, then looks for sleepers. One of them sees the
 * other.
 */
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/backend/host/shm.h"

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

bool mu_shm_all_reached(const struct mu_shm *shm, uint64_t want)
{
    for (int i = 0; i < shm->nlocal; i++)
        if (atomic_load(&mu_shm_desk(shm, i)->counter[MU_SHM_WANT_COUNTER(want)]) <
            MU_SHM_WANT_VALUE(want))
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
        if (MU_SHM_WANT_COUNTER(want) == counter && mu_shm_all_reached(shm, want))
            mu_shm_wake(shm, i);
    }
}

bool mu_shm_reached(struct mu_shm *shm, enum mu_counter counter, uint64_t value)
{
    shm->want = MU_SHM_WANT(counter, value);
    return mu_shm_all_reached(shm, shm->want);
}

void mu_shm_ring(struct mu_shm *shm, int local)
{
    uint64_t one = 1;

    if (write(shm->bell[local], &one, sizeof one) < 0) {
        /* Full: it has been rung. */
    }
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
