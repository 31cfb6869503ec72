/* SPDX-License-Identifier: BSD-3-Clause */
/* address.c - where an endpoint listens, and which addresses are this host's own */
#include "runtime/endpoint/address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/base/iface.h"
#include "runtime/base/random.h"
#include "runtime/core/text.h"

#define MAGIC 0x4d754534u
#define NAME "muster-" /* before the id, in an abstract name */

/* ---- The addresses of this host ------------------------------------------------- */

enum { TUNNEL = 2, BRIDGE, LOOPBACK };

/* 0: best. Loopback is last: two nodes may share one kernel. -1: no use. */
static int worth(const struct ifaddrs *i)
{
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP))
        return -1;
    if (i->ifa_addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)i->ifa_addr;

        /* Link-local addresses need a scope that means nothing elsewhere. */
        if (IN6_IS_ADDR_LINKLOCAL(&a->sin6_addr))
            return -1;
    } else if (i->ifa_addr->sa_family != AF_INET) {
        return -1;
    }
    if (i->ifa_flags & IFF_LOOPBACK)
        return LOOPBACK;
    switch (mu_iface_reach(i->ifa_name)) {
    case MU_IFACE_BRIDGE:
        return BRIDGE;
    case MU_IFACE_TUNNEL:
        return TUNNEL;
    default:
        return i->ifa_addr->sa_family == AF_INET ? 0 : 1;
    }
}

void mu_address_hosts(const char *first, char *out, size_t len)
{
    struct ifaddrs *all = NULL;
    size_t n = 0;

    out[0] = '\0';
    if (first)
        mu_text_add(out, len, &n, "%s", first);
    if (getifaddrs(&all) < 0)
        return;
    for (int rank = 0; rank <= LOOPBACK; rank++) {
        /* Other hosts reach their own bridge there: only without any other address. */
        if (rank == BRIDGE && n > 0)
            continue;
        for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
            char text[INET6_ADDRSTRLEN] = "";

            if (worth(i) != rank)
                continue;
            if (getnameinfo(i->ifa_addr,
                            i->ifa_addr->sa_family == AF_INET
                                ? sizeof(struct sockaddr_in)
                                : sizeof(struct sockaddr_in6),
                            text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0 &&
                n + strlen(text) + 2 < len)
                mu_text_add(out, len, &n, "%s%s", n ? "," : "", text);
        }
    }
    freeifaddrs(all);
}

static void name_machine(char machine[MU_ADDRESS_MACHINE])
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    char boot[40] = "?";
    struct stat st = { 0 };

    if (f) {
        if (!fgets(boot, sizeof boot, f))
            boot[0] = '\0';
        fclose(f);
    }
    boot[strcspn(boot, "\n")] = '\0';
    stat("/proc/self/ns/net", &st);
    snprintf(machine, MU_ADDRESS_MACHINE, "%s %llu", boot,
             (unsigned long long)st.st_ino);
}

/* IPv6, or IPv4 inside it. */
static struct in6_addr as_six(const struct sockaddr *at)
{
    struct in6_addr six = { .s6_addr = { [10] = 0xff, [11] = 0xff } };

    if (at->sa_family == AF_INET6)
        return ((const struct sockaddr_in6 *)at)->sin6_addr;
    memcpy(&six.s6_addr[12], &((const struct sockaddr_in *)at)->sin_addr, 4);
    return six;
}

bool mu_address_is_own(const struct sockaddr *at)
{
    struct in6_addr six = as_six(at);
    struct ifaddrs *all = NULL;
    bool own = IN6_IS_ADDR_LOOPBACK(&six) || IN6_IS_ADDR_UNSPECIFIED(&six) ||
               (IN6_IS_ADDR_V4MAPPED(&six) &&
                (six.s6_addr[12] == 127 || six.s6_addr[12] == 0));

    if (own || getifaddrs(&all) < 0)
        return own;
    for (const struct ifaddrs *i = all; i && !own; i = i->ifa_next)
        if (i->ifa_addr &&
            (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6)) {
            struct in6_addr mine = as_six(i->ifa_addr);

            own = memcmp(&mine, &six, sizeof six) == 0;
        }
    freeifaddrs(all);
    return own;
}

/* ---- The record ----------------------------------------------------------------- */

bool mu_address_fill(struct mu_address *a, const char *first)
{
    *a = (struct mu_address){ .magic = MAGIC };
    name_machine(a->machine);
    mu_address_hosts(first, a->hosts, sizeof a->hosts);
    return mu_random(a->id, sizeof a->id) == 0;
}

void mu_address_of_id(struct mu_address *a, const uint8_t id[MU_ADDRESS_ID], bool here)
{
    *a = (struct mu_address){ .magic = MAGIC };
    memcpy(a->id, id, sizeof a->id);
    if (here)
        name_machine(a->machine);
}

bool mu_address_read(struct mu_address *a, const void *record, size_t len)
{
    if (len != sizeof *a || memcmp(record, &(uint32_t){ MAGIC }, sizeof a->magic) != 0)
        return false;
    memcpy(a, record, sizeof *a);
    a->machine[sizeof a->machine - 1] = '\0';
    a->hosts[sizeof a->hosts - 1] = '\0';
    return true;
}

bool mu_address_same_machine(const struct mu_address *a, const struct mu_address *b)
{
    return strcmp(a->machine, b->machine) == 0;
}

bool mu_address_next(FILE *names, struct mu_address *a)
{
    char line[512];

    while (fgets(line, sizeof line, names)) {
        const char *name = strstr(line, " @" NAME);
        uint8_t id[MU_ADDRESS_ID];

        name = name ? name + strlen(" @" NAME) : "";
        if (strlen(name) >= 2 * sizeof id &&
            sodium_hex2bin(id, sizeof id, name, 2 * sizeof id, NULL, NULL, NULL) == 0 &&
            memcmp(id, a->id, MU_ADDRESS_ALIKE) == 0) {
            memcpy(a->id, id, sizeof id);
            return true;
        }
    }
    return false;
}

/* An abstract name leaves no file behind, however the process ends. */
socklen_t mu_address_local(const struct mu_address *a, struct sockaddr_un *out)
{
    char name[sizeof NAME + 2 * MU_ADDRESS_ID];
    size_t n = 0;

    mu_text_add(name, sizeof name, &n, NAME);
    for (size_t i = 0; i < sizeof a->id; i++)
        mu_text_add(name, sizeof name, &n, "%02x", a->id[i]);
    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    memcpy(out->sun_path + 1, name, n);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}
