/* SPDX-License-Identifier: BSD-3-Clause */
/* flight.c - each rank's last collectives */
#include "runtime/core/flight.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "runtime/core/text.h"
#include "runtime/muster.h"

uint64_t mu_flight_enter(struct mu_flight *flight, const char *what, uint64_t bytes,
                         double now)
{
    uint64_t number = ++flight->entered;
    struct mu_flight_entry *e = &flight->ring[number % MU_FLIGHT_RING];

    *e = (struct mu_flight_entry){ .number = number, .bytes = bytes, .entered = now };
    mu_copy(e->what, sizeof e->what, what);
    return number;
}

void mu_flight_order(struct mu_flight *flight, uint64_t number, uint64_t ordered,
                     uint64_t order)
{
    struct mu_flight_entry *e = &flight->ring[number % MU_FLIGHT_RING];

    if (e->number != number)
        return;
    e->ordered = ordered;
    e->order = order;
}

void mu_flight_leave(struct mu_flight *flight, uint64_t number, double now)
{
    struct mu_flight_entry *e = &flight->ring[number % MU_FLIGHT_RING];

    if (e->number == number)
        e->left = now;
}

void mu_flight_cancel(struct mu_flight *flight, uint64_t number)
{
    if (number != flight->entered)
        return;
    flight->ring[number % MU_FLIGHT_RING].number = 0;
    flight->entered--;
}

const struct mu_flight_entry *mu_flight_find(const struct mu_flight *flight,
                                             uint64_t number)
{
    const struct mu_flight_entry *e = &flight->ring[number % MU_FLIGHT_RING];

    return number > 0 && e->number == number ? e : NULL;
}

/* "rank 3 (node b, GPU 0000:41:00.0)" */
size_t mu_flight_name(int rank, const struct mu_flight_names *names, char *text,
                      size_t len)
{
    const char *gpu = names->gpu_of ? names->gpu_of[rank] : NULL;
    size_t n = 0;

    if (gpu && gpu[0])
        mu_text_add(text, len, &n, "rank %d (node %s, GPU %s)", rank,
                    names->host_of[rank], gpu);
    else
        mu_text_add(text, len, &n, "rank %d (node %s)", rank, names->host_of[rank]);
    return n;
}

bool mu_flight_merge(struct mu_flight *all, const struct mu_flight *one)
{
    bool same = true;

    for (int i = 0; i < MU_FLIGHT_RING; i++) {
        const struct mu_flight_entry *e = &one->ring[i];

        if (e->number > all->ring[i].number)
            all->ring[i] = *e;
        else if (e->number == all->ring[i].number && e->number > 0)
            same &= strcmp(e->what, all->ring[i].what) == 0;
    }
    return same;
}

void mu_flight_line(const struct mu_flight *flight, int rank,
                    const struct mu_flight_names *names, char *text, size_t len)
{
    const struct mu_flight_entry *last;
    size_t n = mu_flight_name(rank, names, text, len);

    if (!flight) {
        mu_text_add(text, len, &n, ": no answer");
        return;
    }
    mu_text_add(text, len, &n, ": pid %d, ", flight->pid);
    last = mu_flight_find(flight, flight->entered);
    if (flight->waiting_since > 0)
        mu_text_add(text, len, &n, "waits %.1f s for %s",
                    flight->now - flight->waiting_since, flight->waiting_for);
    else
        mu_text_add(text, len, &n, "%s",
                    flight->doing[0] ? flight->doing : "not in a collective");
    if (last)
        mu_text_add(text, len, &n, "; entered %llu: %s, %llu bytes, %.1f s ago, %s",
                    (unsigned long long)last->number, last->what,
                    (unsigned long long)last->bytes, flight->now - last->entered,
                    last->left > 0 ? "done" : "not done");
    else
        mu_text_add(text, len, &n, "; no collective yet");
}
