/* SPDX-License-Identifier: BSD-3-Clause */
/* world_rdzv.c - a world of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
 *
 * Rank 0 opens a second endpoint, whose address the others compute from the variables:
 *
 *   with a secret   a TCP port; the secret is the job's token
 *   without one     an AF_UNIX name, where the kernel proves the user; the token is
 *                   rank 0's random one, and all ranks are on this host
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/base/peercred.h"
#include "runtime/base/random.h"
#include "runtime/boot/published.h"
#include "runtime/boot/secret.h"
#include "runtime/boot/star.h"
#include "runtime/boot/world.h"
#include "runtime/core/rdzv.h"
#include "runtime/core/text.h"
#include "runtime/endpoint/net.h"
#include "runtime/muster.h"

#define RESOLVE_AGAIN_MS 500
#define ANOTHER_SECONDS 2.0 /* a name not served so long is another user's */

struct rendezvous {
    struct mu_published published;
    struct mu_star star;
    struct mu_endpoint *endpoint; /* of rank 0, until all have called */
    struct mu_address at;
    bool tcp;
    uint8_t secret[MU_TOKEN_LEN]; /* zero without one */
    char addr[256], port_set[32];
    unsigned port;
    int local_rank, local_size; /* -1 and 0: unset */
};

/* ---- MASTER_ADDR ---------------------------------------------------------------- */

/* Numeric, so that a call resolves no name. False: `own` and hosts are unchanged. */
static bool resolve(const char *name, char *hosts, size_t len, bool *own, int *why)
{
    struct addrinfo want = { .ai_socktype = SOCK_STREAM }, *found = NULL;
    size_t n = 0;

    *why = getaddrinfo(name, NULL, &want, &found);
    if (*why != 0)
        return false;
    for (const struct addrinfo *a = found; a; a = a->ai_next) {
        char text[INET6_ADDRSTRLEN + 32];

        *own = *own || mu_address_is_own(a->ai_addr);
        if (getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, NULL, 0,
                        NI_NUMERICHOST) == 0 &&
            n + strlen(text) + 2 < len)
            mu_text_add(hosts, len, &n, "%s%s", n ? "," : "", text);
    }
    freeaddrinfo(found);
    return true;
}

/* The name of a pod gets its address some seconds after the pod has started. */
static int resolve_in_time(struct mu_world *w, double timeout, bool *own,
                           struct mu_err *err)
{
    struct rendezvous *z = w->impl;
    double until = mu_clock_s() + timeout / 4;
    int why;

    while (!resolve(z->addr, z->at.hosts, sizeof z->at.hosts, own, &why)) {
        if (mu_clock_s() >= until)
            return mu_err_set(err, MUSTER_ERENDEZVOUS,
                              "rank %d (node %s) cannot resolve MASTER_ADDR=%s: %s",
                              w->rank, w->host, z->addr,
                              why == EAI_SYSTEM ? strerror(errno) : gai_strerror(why));
        poll(NULL, 0, RESOLVE_AGAIN_MS);
    }
    return 0;
}

/* ---- Meet ----------------------------------------------------------------------- */

static int several_hosts(const struct mu_world *w, struct mu_err *err)
{
    return mu_err_set(err, MUSTER_ERENDEZVOUS,
                      "rank %d (node %s): the ranks are on several hosts, which need a "
                      "token: set MUSTER_TOKEN_FILE on each to a file with the same 32 "
                      "random bytes, of mode 0600",
                      w->rank, w->host);
}

static void one_host(char *hint, size_t len)
{
    snprintf(hint, len,
             ": without MUSTER_TOKEN_FILE all ranks must be processes of user id %u on "
             "this host",
             (unsigned)geteuid());
}

static int await_others(struct mu_world *w, bool own, double timeout,
                        struct mu_err *err)
{
    struct rendezvous *z = w->impl;
    char hint[512];

    if (!z->tcp)
        one_host(hint, sizeof hint);
    else
        snprintf(hint, sizeof hint, " at port %u (%s) of rank 0 (node %s)%s%s%s",
                 z->port, z->port_set, w->host,
                 own ? "" : "; MASTER_ADDR=", own ? "" : z->addr,
                 own ? "" : " is no address of this host");
    if (mu_star_accept(&z->star, z->endpoint, timeout, hint, err) < 0)
        return -1;
    mu_endpoint_close(z->endpoint);
    z->endpoint = NULL;
    return 0;
}

static int call_rank_0(struct mu_world *w, bool own, double timeout, struct mu_err *err)
{
    struct rendezvous *z = w->impl;
    char where[512], hint[256] = "";

    if (!z->tcp && !own)
        return several_hosts(w, err);
    snprintf(where, sizeof where, "MASTER_ADDR=%s port %u (%s)", z->addr, z->port,
             z->port_set);
    if (!z->tcp)
        one_host(hint, sizeof hint);
    return mu_star_call(&z->star, mu_endpoint_address(w->endpoint), &z->at, z->tcp,
                        z->secret, timeout, z->addr, where, hint, err);
}

static int check_local(const struct mu_world *w, struct mu_err *err)
{
    const struct rendezvous *z = w->impl;

    if (z->local_size != w->local_size || z->local_rank < 0 ||
        z->local_rank == w->local_rank)
        return 0;
    return mu_err_set(
        err, MUSTER_ECONTRACT,
        "rank %d (node %s) has LOCAL_RANK=%d, but is number %d of its node "
        "in the order of RANK: give both numbers in one order",
        w->rank, w->host, z->local_rank, w->local_rank);
}

static int rdzv_meet(struct mu_world *w, double timeout, struct mu_err *err)
{
    struct rendezvous *z = w->impl;
    double until = mu_clock_s() + timeout, left;
    bool own = false;

    z->star.patience = timeout;
    if (resolve_in_time(w, timeout, &own, err) < 0)
        return -1;
    left = until - mu_clock_s();
    if ((w->rank == 0 ? await_others(w, own, left, err)
                      : call_rank_0(w, own, left, err)) < 0)
        return -1;
    /* Rank 0 reports who is missing, and may have begun to wait later. */
    left = w->rank > 0 ? timeout : until - mu_clock_s();
    if (mu_world_exchange(w, left > 1 ? left : 1, err) < 0)
        return -1;
    return check_local(w, err);
}

static bool rdzv_lost(void *arg, struct mu_err *err)
{
    const struct mu_published *p = arg;

    return mu_star_lost(p->arg, err);
}

/* ---- Open and close ------------------------------------------------------------- */

static void rdzv_leave(struct mu_world *w)
{
    struct rendezvous *z = w->impl;

    mu_star_close(&z->star);
}

static void rdzv_close(struct mu_world *w)
{
    struct rendezvous *z = w->impl;

    mu_star_close(&z->star);
    mu_published_clear(&z->published);
    mu_endpoint_close(z->endpoint);
    free(z);
    mu_world_free(w);
}

/* The user's own rank 0 listens at once after it has taken a name. */
static bool another_holds(const struct mu_address *address)
{
    double until = mu_clock_s() + ANOTHER_SECONDS;
    struct sockaddr_un at;
    socklen_t len = mu_address_local(address, &at);
    bool connected = false, ours = false;

    while (!connected && mu_clock_s() < until) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        connected = fd >= 0 && connect(fd, (struct sockaddr *)&at, len) == 0;
        ours = connected && mu_peercred_of(fd).uid == geteuid();
        mu_net_drop(&fd);
        if (!connected)
            mu_pause(0.01);
    }
    return !ours;
}

/* Any user can hold the name that the others compute; they look for this one too. */
static int take_another_name(struct mu_world *w, struct mu_err *err)
{
    struct rendezvous *z = w->impl;

    if (mu_random(z->at.id + MU_ADDRESS_ALIKE, MU_ADDRESS_ID - MU_ADDRESS_ALIKE) < 0)
        return -1;
    return mu_endpoint_open_at(&z->at, false, &z->endpoint, err);
}

static int listen_at_port(struct mu_world *w, struct mu_err *err)
{
    struct rendezvous *z = w->impl;

    if (mu_endpoint_open_at(&z->at, z->tcp, &z->endpoint, err) < 0 &&
        (z->tcp || !another_holds(&z->at) || take_another_name(w, err) < 0))
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "rank 0 (node %s) cannot take port %u (%s): another process "
                          "has RANK=0, or another program has the port; MUSTER_PORT in "
                          "all ranks names a free one",
                          w->host, z->port, z->port_set);
    mu_endpoint_set_secret(z->endpoint, MU_SERVICE_RENDEZVOUS, z->secret);
    return 0;
}

/* Callers on other hosts and of other users compute the same. */
static void set_address(struct mu_world *w)
{
    struct rendezvous *z = w->impl;
    const struct {
        char name[6];
        uint16_t port;
        uint32_t user, turn;
    } id = { .name = { 'm', 'u', 's', 't', 'e', 'r' },
             .port = (uint16_t)z->port,
             .user = z->tcp ? 0 : geteuid() };

    _Static_assert(sizeof id == MU_ADDRESS_ID, "an id of an endpoint");
    _Static_assert(offsetof(__typeof__(id), turn) == MU_ADDRESS_ALIKE, "ids alike");
    mu_address_of_id(&z->at, (const uint8_t *)&id, !z->tcp);
    z->at.port = z->port;
}

static int fill_world(struct mu_world *w, const struct mu_launch *launch,
                      const struct mu_rdzv *r, struct mu_err *err)
{
    struct rendezvous *z = w->impl;
    int have = mu_secret_read(launch, z->secret, err);

    if (have < 0)
        return -1;
    z->tcp = have == 0;
    if (!z->tcp && r->local_size && r->local_size < r->size)
        return several_hosts(w, err);
    w->has_token = z->tcp;
    memcpy(w->token, z->secret, sizeof w->token);
    if (!z->tcp && mu_random(w->token, sizeof w->token) < 0)
        return mu_err_set(err, MUSTER_EIO, "getrandom failed: %s", strerror(errno));
    set_address(w);
    if (mu_star_open(&z->star, w->rank, w->size, w->host, err) < 0 ||
        mu_world_listen(w, launch->master_addr, err) < 0)
        return -1;
    snprintf(w->node_key, sizeof w->node_key, "%.50s %.80s %.20s",
             mu_endpoint_address(w->endpoint)->machine, w->host, r->node);
    return w->rank == 0 ? listen_at_port(w, err) : 0;
}

int mu_world_rdzv(const struct mu_launch *launch, struct mu_world **out,
                  struct mu_err *err)
{
    struct rendezvous *z;
    struct mu_world *w;
    struct mu_rdzv r;
    char port[32];
    int rc = mu_rdzv_read(launch, &r, err);

    if (rc != 0)
        return rc;
    snprintf(port, sizeof port, "port.%u", r.port);
    w = mu_world_launched(launch, r.rank, r.size, port, sizeof *z, err);
    if (!w)
        return -1;
    z = w->impl;
    z->port = r.port;
    z->local_rank = r.local_rank;
    z->local_size = r.local_size;
    mu_copy(z->port_set, sizeof z->port_set, r.port_set);
    mu_copy(z->addr, sizeof z->addr, r.addr);
    z->published = (struct mu_published){
        .rank = r.rank,
        .size = r.size,
        .gather = mu_star_gather,
        .arg = &z->star,
        .host_of = w->host_of,
    };
    w->exchange = mu_published_exchange(&z->published);
    w->exchange.lost = rdzv_lost;
    w->meet = rdzv_meet;
    w->leave = rdzv_leave;
    w->close = rdzv_close;
    if (fill_world(w, launch, &r, err) < 0) {
        rdzv_close(w);
        return -1;
    }
    *out = w;
    return 0;
}
