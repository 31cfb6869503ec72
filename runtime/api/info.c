/* SPDX-License-Identifier: BSD-3-Clause */
/* info.c - what a program may ask about its world */
#include "runtime/api/impl.h"

int muster_rank(const struct muster *m)
{
    return m->comm.world->rank;
}

int muster_size(const struct muster *m)
{
    return m->comm.world->size;
}

int muster_local_rank(const struct muster *m)
{
    return m->comm.world->local_rank;
}

int muster_local_size(const struct muster *m)
{
    return m->comm.world->local_size;
}

int muster_node(const struct muster *m)
{
    return m->comm.world->node;
}

int muster_nodes(const struct muster *m)
{
    return m->comm.world->nnodes;
}

const char *muster_backend(const struct muster *m)
{
    return m->comm.ops->name;
}

const char *muster_transport(const struct muster *m)
{
    return m->comm.ops->transport(m->comm.backend);
}

const char *muster_host(const struct muster *m, int rank)
{
    char **host_of = m->host_of ? m->host_of : m->comm.world->host_of;

    return rank >= 0 && rank < m->comm.world->size ? host_of[rank] : NULL;
}

const char *muster_name(const struct muster *m)
{
    return m->group.root ? m->group.name : "";
}

int muster_world_rank(const struct muster *m, int rank)
{
    if (rank < 0 || rank >= m->comm.world->size)
        return -1;
    return m->group.root ? m->group.world_rank[rank] : rank;
}

int muster_device(const struct muster *m)
{
    return m->comm.ops->device(m->comm.backend);
}
