/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/core/network/port.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Words at a time: a user's text may have many ranges. */
static void add_range(struct mu_port_set *set, int first, int last)
{
    int port = first < 0 ? 0 : first;

    while (port <= last && port < MU_PORTS) {
        bool whole = port % 64 == 0 && last - port >= 63;

        set->word[port / 64] |= whole ? UINT64_MAX : UINT64_C(1) << port % 64;
        port += whole ? 64 : 1;
    }
}

bool mu_port_set_has(const struct mu_port_set *set, int port)
{
    return port >= 0 && port < MU_PORTS && set->word[port / 64] >> port % 64 & 1;
}

int mu_port_set_parse(const char *text, struct mu_port_set *set, struct mu_err *err)
{
    struct mu_port_set out = { { 0 } };
    const char *at = text + strspn(text, " \t\n");

    while (*at) {
        char *end;
        long first = strtol(at, &end, 10), last = first;

        if (end != at && *end == '-') {
            at = end + 1;
            last = strtol(at, &end, 10);
        }
        if (end == at || first < 0 || last < first || last >= MU_PORTS ||
            (*end != ',' && *end != '\n' && *end))
            return mu_err_set(err, EINVAL, "'%.64s' is not a list of ports", text);
        add_range(&out, (int)first, (int)last);
        at = end + (*end == ',');
        at += strspn(at, " \t\n");
    }
    *set = out;
    return 0;
}

bool mu_port_range(int eph_first, int eph_last, int *first, int *last)
{
    enum { ROOM = 12768, LEAST = 1024, PRIVILEGED = 1024 };
    int low = eph_first - ROOM;

    if (low < PRIVILEGED)
        low = PRIVILEGED;
    if (eph_first - low >= LEAST) {
        *first = low;
        *last = eph_first - 1;
        return true;
    }
    if (65535 - eph_last >= LEAST) {
        *first = eph_last + 1;
        *last = 65535;
        return true;
    }
    return false;
}

/* A step gets a pair of ports, so that its two uses never get the same port. */
static int pairs_of(int first, int last)
{
    return (last - first + 1) / 2;
}

static bool usable(const struct mu_port_set *skip, int port)
{
    return !skip || (!mu_port_set_has(skip, port) && !mu_port_set_has(skip, port + 1));
}

static bool any_left(const struct mu_port_set *skip, int first, int last)
{
    for (int pair = 0; pair < pairs_of(first, last); pair++)
        if (usable(skip, first + 2 * pair))
            return true;
    return false;
}

void mu_port_skip(int first, int last, int eph_first, int eph_last,
                  const struct mu_port_set *reserved, struct mu_port_set *skip)
{
    *skip = (struct mu_port_set){ { 0 } };
    for (int port = first; port <= last; port++)
        if ((port >= eph_first && port <= eph_last) || mu_port_set_has(reserved, port))
            add_range(skip, port, port);
    if (any_left(skip, first, last))
        return;
    /* The kernel never uses a reserved port for an outgoing connection. If the whole
     * range is reserved, the administrator reserved it for Muster. */
    for (int port = first; port <= last; port++)
        if (mu_port_set_has(reserved, port))
            skip->word[port / 64] &= ~(UINT64_C(1) << port % 64);
    if (!any_left(skip, first, last))
        *skip = (struct mu_port_set){ { 0 } };
}

/* The finaliser of splitmix64: every input bit changes every output bit, so that job
 * ids 1000 or 10000 apart get different ports.
 */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

int mu_port_hash(uint32_t job, uint32_t step, uint32_t seed, unsigned salt, int first,
                 int last, const struct mu_port_set *skip)
{
    enum { TRIES = 32 };
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t h = mix(mix(((uint64_t)job << 32 | step) + golden) ^ seed);
    int pairs = pairs_of(first, last), pair = 0;

    if (pairs == 0)
        return first;
    for (int i = 0; i < TRIES; i++, h = mix(h + golden)) {
        pair = (int)(h % (uint64_t)pairs);
        if (usable(skip, first + 2 * pair))
            break;
    }
    for (int i = 0; i < pairs && !usable(skip, first + 2 * pair); i++)
        pair = (pair + 1) % pairs;
    return first + 2 * pair + (int)(salt & 1);
}
