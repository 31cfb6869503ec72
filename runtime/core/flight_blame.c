/* SPDX-License-Identifier: BSD-3-Clause */
/* flight_blame.c - which rank is guilty of a stall, from the records of all */
#include "runtime/core/flight.h"

#include <stdio.h>
#include <string.h>

#include "runtime/core/text.h"
#include "runtime/muster.h"

/* Ranks that do not answer: the one nearest to the root is guilty. Ranks behind it may
 * be healthy, but cannot be reached.
 */
static int blame_silent(const struct mu_flight *const *records, int size,
                        const struct mu_flight_names *names, char *text, size_t len)
{
    int guilty = -1, first = 0, behind = 0;
    size_t n;

    for (int r = 0; r < size; r++) {
        int parent = names->parent_of ? names->parent_of[r] : -1;

        if (records[r])
            continue;
        if (parent >= 0 && !records[parent]) {
            behind++;
            continue;
        }
        if (guilty < 0)
            guilty = r;
        first++;
    }
    if (guilty < 0)
        return -1;
    n = mu_flight_name(guilty, names, text, len);
    if (first > 1)
        mu_text_add(text, len, &n, " and %d more %s not answer", first - 1,
                    first == 2 ? "does" : "do");
    else
        mu_text_add(text, len, &n, " does not answer (stopped, or its node hangs)");
    if (behind > 0)
        mu_text_add(text, len, &n, "; %d rank%s behind it cannot report", behind,
                    mu_plural(behind));
    for (int r = 0; r < size; r++)
        if (records[r] && records[r]->waiting_for[0]) {
            mu_text_add(text, len, &n, "; rank %d (node %s) waits for %s", r,
                        names->host_of[r], records[r]->waiting_for);
            break;
        }
    return guilty;
}

/* Name of collective `number`, from a rank that entered it. */
static const char *name_of(const struct mu_flight *const *records, int size,
                           uint64_t number)
{
    for (int r = 0; r < size; r++) {
        const struct mu_flight_entry *e =
            records[r] ? mu_flight_find(records[r], number) : NULL;

        if (e)
            return e->what;
    }
    return "the next collective";
}

/* What the guilty rank does meanwhile. */
static void add_state(const struct mu_flight *record, int guilty, char *text,
                      size_t len, size_t *n)
{
    if (record->elsewhere[0])
        mu_text_add(text, len, n, "; it waits for %s", record->elsewhere);
    else if (record->doing[0])
        mu_text_add(text, len, n, " (rank %d is %s)", guilty, record->doing);
}

/* A rank waits for a message: the rank at the end of the chain is guilty. */
static int blame_partner(const struct mu_flight *const *records, int size,
                         const struct mu_flight_names *names, char *text, size_t len)
{
    int waits = 0, guilty;
    size_t n;

    while (waits < size && !records[waits]->partner)
        waits++;
    if (waits == size)
        return -1;
    for (int steps = 0; steps < size; steps++) {
        int next = records[waits]->partner - 1;

        if (!records[next]->partner)
            break;
        waits = next;
    }
    guilty = records[waits]->partner - 1;
    n = mu_flight_name(guilty, names, text, len);
    if (records[guilty]->partner) {
        mu_text_add(text, len, &n,
                    " waits for %s, and rank %d (node %s) for %s: ranks that exchange "
                    "call muster_sendrecv",
                    records[guilty]->waiting_for, waits, names->host_of[waits],
                    records[waits]->waiting_for);
        return guilty;
    }
    mu_text_add(text, len, &n,
                " has not made its call to the %s, where rank %d (node %s) waits",
                records[waits]->waiting_for, waits, names->host_of[waits]);
    if (records[guilty]->waiting_for[0])
        mu_text_add(text, len, &n, "; it waits for %s", records[guilty]->waiting_for);
    else
        add_state(records[guilty], guilty, text, len, &n);
    return guilty;
}

/* Some ranks entered fewer collectives: the one that entered fewest is guilty. */
static int blame_behind(const struct mu_flight *const *records, int size,
                        const struct mu_flight_names *names, char *text, size_t len)
{
    uint64_t least = UINT64_MAX, most = 0;
    int guilty = -1, behind = 0, waiting = 0;
    size_t n;

    for (int r = 0; r < size; r++) {
        if (records[r]->entered < least) {
            least = records[r]->entered;
            guilty = r;
        }
        if (records[r]->entered > most)
            most = records[r]->entered;
    }
    if (least == most)
        return -1;
    for (int r = 0; r < size; r++) {
        behind += records[r]->entered == least;
        waiting += records[r]->entered > least;
    }
    n = mu_flight_name(guilty, names, text, len);
    if (behind > 1)
        mu_text_add(text, len, &n, " and %d more %s", behind - 1,
                    behind == 2 ? "has" : "have");
    else
        mu_text_add(text, len, &n, " has");
    mu_text_add(text, len, &n, " not entered %s; %d other%s %s",
                name_of(records, size, least + 1), waiting, mu_plural(waiting),
                waiting == 1 ? "waits" : "wait");
    add_state(records[guilty], guilty, text, len, &n);
    return guilty;
}

/* ---- Ranks in different collectives --------------------------------------------- */

/* The first collective in place n of the order, NULL: not started, or too old. */
static const struct mu_flight_entry *find_ordered(const struct mu_flight *flight,
                                                  uint64_t n)
{
    const struct mu_flight_entry *first = NULL;

    for (int i = 0; flight && i < MU_FLIGHT_RING; i++) {
        const struct mu_flight_entry *e = &flight->ring[i];

        if (e->number > 0 && e->ordered == n && (!first || e->number < first->number))
            first = e;
    }
    return first;
}

static const struct mu_flight_entry *entry_of(const struct mu_flight *flight,
                                              uint64_t number, bool by_order)
{
    return by_order ? find_ordered(flight, number) : mu_flight_find(flight, number);
}

static bool is_same(const struct mu_flight_entry *a, const struct mu_flight_entry *b,
                    bool by_order)
{
    return by_order ? a->order == b->order : strcmp(a->what, b->what) == 0;
}

static uint64_t last_ordered(const struct mu_flight *flight)
{
    uint64_t last = 0;

    for (int i = 0; i < MU_FLIGHT_RING; i++)
        if (flight->ring[i].ordered > last)
            last = flight->ring[i].ordered;
    return last;
}

static bool differs_at(const struct mu_flight *const *records, int size, uint64_t n)
{
    const struct mu_flight_entry *one = NULL;

    for (int r = 0; r < size; r++) {
        const struct mu_flight_entry *e = find_ordered(records[r], n);

        if (e && one && e->order != one->order)
            return true;
        one = one ? one : e;
    }
    return false;
}

uint64_t mu_flight_disorder(const struct mu_flight *const *records, int size)
{
    uint64_t least = UINT64_MAX, first = 0;

    for (int r = 0; r < size; r++)
        if (records[r] && last_ordered(records[r]) < least)
            least = last_ordered(records[r]);
    /* A hash holds the whole order: behind a difference, all places differ. */
    for (uint64_t n = least; n > 0 && least - n < MU_FLIGHT_RING; n--)
        if (differs_at(records, size, n))
            first = n;
    return first;
}

/* The lowest rank whose entry is not that of most ranks, -1: none. Of two sides of one
 * size, that of the lowest rank counts as the majority.
 */
static int minority(const struct mu_flight *const *records, int size, uint64_t number,
                    bool by_order, int *most, const struct mu_flight_entry *side[2])
{
    const struct mu_flight_entry *a, *b;

    *most = 0;
    for (int r = 0; r < size; r++) {
        int same = 0;

        a = entry_of(records[r], number, by_order);
        for (int s = 0; a && s < size; s++) {
            b = entry_of(records[s], number, by_order);
            same += b && is_same(a, b, by_order);
        }
        if (same > *most) {
            *most = same;
            side[1] = a;
        }
    }
    for (int r = 0; *most > 0 && r < size; r++) {
        side[0] = entry_of(records[r], number, by_order);
        if (side[0] && !is_same(side[0], side[1], by_order))
            return r;
    }
    return -1;
}

static int name_sides(int guilty, const char *its, int most, const char *common,
                      const struct mu_flight_names *names, char *text, size_t len)
{
    size_t n = mu_flight_name(guilty, names, text, len);

    mu_text_add(text, len, &n, " is in %s while %d other%s %s in %s", its, most,
                mu_plural(most), most == 1 ? "is" : "are", common);
    return guilty;
}

/* All have entered the same number under different names: the minority is guilty. */
static int blame_other(const struct mu_flight *const *records, int size,
                       const struct mu_flight_names *names, char *text, size_t len)
{
    const struct mu_flight_entry *side[2] = { NULL, NULL };
    uint64_t number = records[0]->entered;
    int most, guilty = minority(records, size, number, false, &most, side);

    if (guilty < 0)
        return -1;
    return name_sides(guilty, side[0]->what, most, side[1]->what, names, text, len);
}

/* One place of the order has two collectives: the minority is guilty. */
static int blame_order(const struct mu_flight *const *records, int size,
                       const struct mu_flight_names *names, char *text, size_t len)
{
    uint64_t place = mu_flight_disorder(records, size);
    const struct mu_flight_entry *side[2] = { NULL, NULL };
    int most, guilty;
    size_t n;

    if (place == 0)
        return -1;
    guilty = minority(records, size, place, true, &most, side);
    if (guilty < 0)
        return -1;
    n = mu_flight_name(guilty, names, text, len);
    mu_text_add(text, len, &n,
                " started collectives in a different order than %d other%s", most,
                mu_plural(most));
    if (strcmp(side[0]->what, side[1]->what) != 0)
        mu_text_add(text, len, &n, ": %s in place of %s", side[0]->what, side[1]->what);
    return guilty;
}

static bool has_open(const struct mu_flight *flight, const char *what)
{
    for (int i = 0; i < MU_FLIGHT_RING; i++) {
        const struct mu_flight_entry *e = &flight->ring[i];

        if (e->number > 0 && e->left <= 0 && strcmp(e->what, what) == 0)
            return true;
    }
    return false;
}

/* Some waits are not of collectives, such as that for absent gradients. */
static bool waits_in_collective(const struct mu_flight *flight)
{
    return flight && flight->waiting_since > 0 && has_open(flight, flight->waiting_for);
}

bool mu_flight_apart(const struct mu_flight *a, const struct mu_flight *b)
{
    return waits_in_collective(a) && waits_in_collective(b) &&
           !has_open(a, b->waiting_for) && !has_open(b, a->waiting_for);
}

/* Ranks that wait for each other in different collectives: the minority is guilty. */
static int blame_apart(const struct mu_flight *const *records, int size,
                       const struct mu_flight_names *names, char *text, size_t len)
{
    int most = 0, common = -1;

    for (int r = 0; r < size; r++) {
        int same = 0;

        for (int s = 0; waits_in_collective(records[r]) && s < size; s++)
            same += waits_in_collective(records[s]) &&
                    strcmp(records[s]->waiting_for, records[r]->waiting_for) == 0;
        if (same > most) {
            most = same;
            common = r;
        }
    }
    for (int r = 0; common >= 0 && r < size; r++)
        if (mu_flight_apart(records[r], records[common]))
            return name_sides(r, records[r]->waiting_for, most,
                              records[common]->waiting_for, names, text, len);
    return -1;
}

int mu_flight_verdict(const struct mu_flight *const *records, int size,
                      const struct mu_flight_names *names, int *status, char *text,
                      size_t len)
{
    static const struct {
        int (*blame)(const struct mu_flight *const *records, int size,
                     const struct mu_flight_names *names, char *text, size_t len);
        bool contract;
    } reasons[] = {
        { blame_order, true },    { blame_silent, false }, { blame_apart, true },
        { blame_partner, false }, { blame_behind, false }, { blame_other, false },
    };
    int guilty = -1;

    for (size_t i = 0; guilty < 0 && i < sizeof reasons / sizeof reasons[0]; i++) {
        guilty = reasons[i].blame(records, size, names, text, len);
        if (guilty >= 0 && reasons[i].contract)
            *status = MUSTER_ECONTRACT;
    }
    if (guilty < 0)
        snprintf(text, len,
                 "all %d ranks are in %s and none makes progress: check the network",
                 size, name_of(records, size, records[0]->entered));
    return guilty;
}
