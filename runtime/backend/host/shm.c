/* SPDX-License-Identifier: BSD-3-Clause */
/* shm.c - the segment's layout, counters, waking sleepers
 *
 * A sleeper writes to its mailbox which counter it waits for and which value. The last
 * rank to reach that value wakes it: one wake per wait for any number of ranks.
 *
 * Everything here is sequentially consistent: the sleeper publishes, then reads the
 * counters again; the other rank counts up, then reads `asleep`. One of the two sees
 * the other's store.
 */
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/backend/host/shm.h"
#include "runtime/endpoint/bell.h"

struct mu_shm_mailbox *mu_shm_mailbox_of(const struct mu_shm *shm, int local)
{
    return (struct mu_shm_mailbox *)(void *)shm->base + local;
}

struct mu_shm_entry *mu_shm_entry_of(const struct mu_shm *shm, int local, uint64_t seq)
{
    return &mu_shm_mailbox_of(shm, local)->entry[seq % MU_SHM_DEPTH];
}

static size_t slots_at(int nlocal)
{
    size_t page = 4096, len = (size_t)nlocal * sizeof(struct mu_shm_mailbox);

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

bool mu_shm_has_reached(const struct mu_shm *shm, int local, uint64_t want)
{
    enum mu_shm_counter counter = MU_SHM_WANT_COUNTER(want);
    uint64_t value = MU_SHM_WANT_VALUE(want);

    /* A later request that has the place of an entry has a larger count. */
    return atomic_load(counter == MU_ENTERED
                           ? &mu_shm_entry_of(shm, local, value - 1)->entered
                           : &mu_shm_mailbox_of(shm, local)->counter[counter]) >= value;
}

bool mu_shm_all_reached(const struct mu_shm *shm, uint64_t want)
{
    for (int i = 0; i < shm->nlocal; i++)
        if (!mu_shm_has_reached(shm, i, want))
            return false;
    return true;
}

void mu_shm_wake(struct mu_shm *shm, int local)
{
    struct mu_shm_mailbox *mailbox = mu_shm_mailbox_of(shm, local);
    if (!atomic_load(&mailbox->asleep))
        return;
    switch (atomic_exchange(&mailbox->asleep, 0)) {
    case MU_SLEEP_DOORBELL:
        mu_shm_ring_doorbell(shm, local);
        break;
    case MU_SLEEP_FUTEX:
        syscall(SYS_futex, &mailbox->asleep, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        break;
    }
}

static void wake_waiting(struct mu_shm *shm, enum mu_shm_counter counter)
{
    for (int i = 0; i < shm->nlocal; i++) {
        struct mu_shm_mailbox *mailbox = mu_shm_mailbox_of(shm, i);
        uint64_t want;

        if (i == shm->me || !atomic_load(&mailbox->asleep))
            continue;
        want = atomic_load(&mailbox->want);
        if (MU_SHM_WANT_COUNTER(want) == counter && mu_shm_all_reached(shm, want))
            mu_shm_wake(shm, i);
    }
}

void mu_shm_advance(struct mu_shm *shm, enum mu_shm_counter counter, uint64_t by)
{
    atomic_fetch_add(&mu_shm_mailbox_of(shm, shm->me)->counter[counter], by);
    wake_waiting(shm, counter);
}

void mu_shm_enter(struct mu_shm *shm, uint64_t seq)
{
    atomic_store(&mu_shm_entry_of(shm, shm->me, seq)->entered, seq + 1);
    wake_waiting(shm, MU_ENTERED);
}

bool mu_shm_reached(struct mu_shm *shm, enum mu_shm_counter counter, uint64_t value)
{
    shm->want = MU_SHM_WANT(counter, value);
    return mu_shm_all_reached(shm, shm->want);
}

void mu_shm_ring_doorbell(struct mu_shm *shm, int local)
{
    mu_bell_ring(shm->doorbell[local]);
}

void mu_shm_forget(struct mu_host_backend *b)
{
    struct mu_shm *shm = b->shm;

    if (!shm)
        return;
    for (int i = 0; i < shm->nlocal; i++) {
        if (i != shm->me && shm->doorbell[i] >= 0)
            close(shm->doorbell[i]);
        if (shm->watch[i] >= 0)
            close(shm->watch[i]);
        shm->doorbell[i] = shm->watch[i] = -1;
    }
    if (shm->fd >= 0)
        close(shm->fd);
    shm->fd = -1;
}
