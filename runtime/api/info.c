/* SPDX-License-Identifier: BSD-3-Clause */
/* info.c - what a program may ask about its world */
#include "runtime/api/impl.h"

int muster_rank(const struct muster *m)
{
    return m->world->rank;
}

int muster_size(const struct muster *m)
{
    return m->world->size;
}

int muster_local_rank(const struct muster *m)
{
    return m->world->local_rank;
}

int muster_local_size(const struct muster *m)
{
    return m->world->local_size;
}

int muster_node(const struct muster *m)
{
    return m->world->node;
}

int muster_nodes(const struct muster *m)
{
    return m->world->nnodes;
}

const char *muster_backend(const struct muster *m)
{
    return m->ops->name;
}

const char *muster_transport(const struct muster *m)
{
    return m->ops->transport(m->backend);
}

const char *muster_host(const struct muster *m, int rank)
{
    return rank >= 0 && rank < m->world->size ? m->world->host_of[rank] : NULL;
}

int muster_device(const struct muster *m)
{
    return m->ops->device(m->backend);
}
