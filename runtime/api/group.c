/* SPDX-License-Identifier: BSD-3-Clause */
/* group.c - muster_split: some ranks of a world, or of a group, become a group
 *
 * A group is a struct muster like the world: its own control connections and backend,
 * over the endpoints of the world, so that its collectives have an order and deadlines
 * of their own. All ranks of the parent take part until all groups are open.
 */
#include "runtime/api/impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

/* What each rank gives. */
struct ticket {
    int32_t colour, key, status;
    int32_t splits; /* calls of muster_split that this rank has counted */
    char name[MU_GROUP_NAME];
};

/* The result of opening its group, of each rank. */
struct outcome {
    int32_t status;
    char text[256];
};

struct member {
    int key, rank;
};

static int by_key(const void *a, const void *b)
{
    const struct member *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->rank - y->rank;
}

static struct ticket ticket_of(const struct mu_gathered *all, int rank)
{
    struct ticket t;

    memcpy(&t, all->at[rank], sizeof t);
    return t;
}

/* Newcomers, and ranks whose call a death has ended, have counted fewer. */
static int most_splits(const struct muster *parent, const struct mu_gathered *all)
{
    int most = 0;

    for (int r = 0; r < parent->comm.world->size; r++)
        if (ticket_of(all, r).splits > most)
            most = ticket_of(all, r).splits;
    return most;
}

/* The ranks of this rank's colour, in the order of the group. *ranks: caller frees. */
static int list_members(struct muster *parent, const struct mu_gathered *all,
                        const struct ticket *mine, int **ranks, int *n,
                        struct mu_err *err)
{
    int size = parent->comm.world->size;
    struct member *m = calloc((size_t)size, sizeof *m);

    *ranks = calloc((size_t)size, sizeof **ranks);
    if (!m || !*ranks) {
        free(m);
        return mu_err_set(err, MUSTER_EMEMORY, "muster_split: out of memory");
    }
    *n = 0;
    for (int r = 0; r < size; r++) {
        struct ticket t = ticket_of(all, r);

        if (t.colour == mine->colour)
            m[(*n)++] = (struct member){ t.key, r };
    }
    qsort(m, (size_t)*n, sizeof *m, by_key);
    for (int i = 0; i < *n; i++)
        (*ranks)[i] = m[i].rank;
    free(m);
    return 0;
}

/* All ranks decide alike, except the rank that was refused itself. */
static int check_tickets(struct muster *parent, const struct mu_gathered *all)
{
    const struct mu_world *w = parent->comm.world;

    for (int r = 0; r < w->size; r++) {
        struct ticket t = ticket_of(all, r), other;

        if (t.status != MUSTER_OK)
            return mu_fail(parent, MUSTER_ECONTRACT,
                           "muster_split: the arguments of rank %d (node %s) are "
                           "invalid",
                           r, w->host_of[r]);
        for (int q = 0; q < r; q++) {
            other = ticket_of(all, q);
            if (t.colour >= 0 && other.colour == t.colour &&
                strcmp(other.name, t.name) != 0)
                return mu_fail(parent, MUSTER_ECONTRACT,
                               "muster_split: the group of colour %d is '%s' on rank "
                               "%d (node %s), but '%s' on rank %d (node %s)",
                               t.colour, other.name, q, w->host_of[q], t.name, r,
                               w->host_of[r]);
        }
    }
    return MUSTER_OK;
}

static struct mu_recover *root_of(struct muster *m)
{
    return m->group.root ? m->group.root : &m->recover;
}

/* A group without connections. */
static struct muster *group_new(struct muster *parent, const struct ticket *t,
                                const int *ranks, int n, struct mu_err *err)
{
    const struct mu_comm *from = &parent->comm;
    uint64_t words[3] = { from->world->generation, (uint64_t)parent->splits,
                          (uint64_t)t->colour };
    struct muster *m = calloc(1, sizeof *m);
    struct mu_world *world = NULL;

    if (!m || mu_world_group(from->world, ranks, n, mu_hash(0, words, sizeof words),
                             &world, err) < 0) {
        free(m);
        if (!m)
            mu_err_set(err, MUSTER_EMEMORY, "muster_split: out of memory");
        return NULL;
    }
    world->endpoint = NULL; /* its log stays that of the world */
    mu_comm_init(&m->comm, &from->config, from->version, world);
    world->endpoint = from->world->endpoint;
    m->comm.config.elastic = 0;
    m->comm.config.grow[0] = '\0';
    m->comm.ops = n == 1 && from->ops->host_memory ? &mu_backend_one_rank : from->ops;
    m->comm.ledger = from->ledger;
    mu_recover_init(&m->recover, &m->comm);
    m->comm.top = from->top ? from->top : &parent->comm;
    m->comm.top->has_groups = true;
    m->comm.name = m->group.name;
    m->parent = parent;
    m->group.root = root_of(parent);
    memcpy(m->group.name, t->name, sizeof m->group.name);
    m->recover.group = &m->group;
    m->comm.gpus = strdup(from->gpus);
    m->group.world_rank = calloc((size_t)n, sizeof *m->group.world_rank);
    m->host_of = calloc((size_t)n, sizeof *m->host_of);
    for (int r = 0; m->group.world_rank && m->host_of && r < n; r++) {
        m->group.world_rank[r] = muster_world_rank(parent, ranks[r]);
        m->host_of[r] = strdup(muster_host(parent, ranks[r]));
    }
    if (m->comm.gpus && m->group.world_rank && m->host_of && m->host_of[n - 1])
        return m;
    mu_err_set(err, MUSTER_EMEMORY, "muster_split: out of memory");
    mu_release(m);
    return NULL;
}

static int open_group(struct muster *m, struct mu_err *err)
{
    if (mu_open_control(&m->comm, m->comm.config.init_timeout, err) == 0 &&
        mu_agree_on_world(&m->comm, err) == 0 && mu_open_backend(&m->comm, err) == 0)
        return 0;
    if (m->comm.control) /* ends the wait of the others */
        mu_comm_announce(&m->comm, m->comm.world->rank, err);
    return -1;
}

/* The group is of no use: a rank could not open its own. */
static void discard(struct muster *m)
{
    atomic_store(&m->comm.closing, true);
    if (m->comm.backend) {
        m->comm.ops->abort(m->comm.backend, MUSTER_ERENDEZVOUS, "muster_split failed");
        m->comm.ops->close(m->comm.backend);
    }
    if (m->comm.control)
        mu_control_discard(m->comm.control);
    mu_release(m);
}

/* [collective in parent] Is every group open? */
static int agree(struct muster *parent, const struct mu_err *own, struct mu_err *err)
{
    const struct mu_world *w = parent->comm.world;
    struct outcome mine = { .status = own->code };
    struct mu_gathered all;
    int rc = 0;

    mu_copy(mine.text, sizeof mine.text, own->text);
    if (mu_gather(&parent->comm, "muster_split", &mine, sizeof mine, &all, err) < 0)
        return -1;
    for (int r = 0; rc == 0 && r < w->size; r++) {
        struct outcome o;

        memcpy(&o, all.at[r], sizeof o);
        if (o.status != MUSTER_OK)
            rc = mu_err_set(err, o.status, "muster_split: rank %d (node %s): %s", r,
                            w->host_of[r], o.text);
    }
    mu_gathered_clear(&all);
    return rc;
}

static int split(struct muster *parent, const struct ticket *t,
                 const struct mu_gathered *all, struct muster **out, struct mu_err *err)
{
    struct mu_err own = { 0 };
    struct muster *m = NULL;
    int *ranks = NULL, n = 0;

    parent->splits = 1 + most_splits(parent, all);
    if (t->colour >= 0 && list_members(parent, all, t, &ranks, &n, &own) == 0) {
        m = group_new(parent, t, ranks, n, &own);
        if (m)
            open_group(m, &own);
    }
    free(ranks);
    if (agree(parent, &own, err) < 0) {
        if (m)
            discard(m);
        return -1;
    }
    parent->groups += m != NULL;
    *out = m;
    return 0;
}

static int check_arguments(struct muster *parent, int colour, const char *name,
                           struct muster **out, struct ticket *t)
{
    if (!out)
        return mu_fail(parent, MUSTER_EUSAGE,
                       "muster_split needs a place for its result");
    *out = NULL;
    if (colour >= 0 && name && strlen(name) >= sizeof t->name)
        return mu_fail(parent, MUSTER_EUSAGE,
                       "muster_split: the name '%.20s...' has %zu characters, use at "
                       "most %zu",
                       name, strlen(name), sizeof t->name - 1);
    if (colour >= 0 && name)
        snprintf(t->name, sizeof t->name, "%s", name);
    else if (colour >= 0)
        snprintf(t->name, sizeof t->name, "%d", colour);
    return MUSTER_OK;
}

int muster_split(struct muster *parent, int colour, int key, const char *name,
                 struct muster **out)
{
    struct ticket t = { .colour = colour, .key = key, .splits = parent->splits };
    struct mu_err err = { 0 };
    struct mu_gathered all;
    int rc;

    t.status = check_arguments(parent, colour, name, out, &t);
    if (mu_gather(&parent->comm, "muster_split", &t, sizeof t, &all, &err) < 0)
        return mu_fail_err(parent, &err);
    rc = t.status != MUSTER_OK ? t.status : check_tickets(parent, &all);
    if (rc == MUSTER_OK && split(parent, &t, &all, out, &err) < 0)
        rc = mu_fail_err(parent, &err);
    mu_gathered_clear(&all);
    return rc;
}
