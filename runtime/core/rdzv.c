/* SPDX-License-Identifier: BSD-3-Clause */
/* rdzv.c - rank, size and rank 0's port, from the variables that torchrun names
 *
 * MASTER_PORT itself belongs to PyTorch: the agent of torchrun, or rank 0's process
 * group, serves its TCPStore there while libmuster runs in the same program.
 */
#include "runtime/core/rdzv.h"

#include <limits.h>

#include "runtime/base/parse.h"
#include "runtime/muster.h"

#define LAST_PORT 65535

static int number(const char *name, const char *text, long min, long max, long *out,
                  struct mu_err *err)
{
    if (mu_parse_int(name, text, min, max, out, err) == 0)
        return 0;
    if (err)
        err->code = MUSTER_ERENDEZVOUS;
    return -1;
}

static int read_port(const struct mu_launch *l, struct mu_rdzv *r, struct mu_err *err)
{
    long port;

    r->port_set = l->muster_port ? "MUSTER_PORT" : "MASTER_PORT + 1";
    if (l->muster_port) {
        if (number("MUSTER_PORT", l->muster_port, 1, LAST_PORT, &port, err) < 0)
            return -1;
    } else {
        if (number("MASTER_PORT", l->master_port, 1, LAST_PORT, &port, err) < 0)
            return -1;
        if (++port > LAST_PORT)
            return mu_err_set(err, MUSTER_ERENDEZVOUS,
                              "MASTER_PORT=%s leaves no port above it for libmuster: "
                              "set MUSTER_PORT to the same free port in all ranks",
                              l->master_port);
    }
    r->port = (unsigned)port;
    return 0;
}

int mu_rdzv_read(const struct mu_launch *l, struct mu_rdzv *out, struct mu_err *err)
{
    struct mu_rdzv r = { .addr = l->master_addr, .node = l->node_rank };
    long rank, size, local = 0, local_rank = -1;

    if (!l->rank || !l->world_size || !l->master_addr || !l->master_port)
        return 1;
    if (number("WORLD_SIZE", l->world_size, 1, INT_MAX, &size, err) < 0 ||
        number("RANK", l->rank, 0, INT_MAX, &rank, err) < 0)
        return -1;
    if (rank >= size)
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "RANK=%ld but WORLD_SIZE=%ld: ranks are 0 to WORLD_SIZE - 1",
                          rank, size);
    if (size == 1)
        return 1;
    if (l->local_world_size &&
        number("LOCAL_WORLD_SIZE", l->local_world_size, 1, size, &local, err) < 0)
        return -1;
    if (l->local_rank &&
        number("LOCAL_RANK", l->local_rank, 0, size - 1, &local_rank, err) < 0)
        return -1;
    if (read_port(l, &r, err) < 0)
        return -1;
    r.rank = (int)rank;
    r.size = (int)size;
    r.local_rank = (int)local_rank;
    r.local_size = (int)local;
    r.node = r.node ? r.node : l->group_rank ? l->group_rank : "";
    *out = r;
    return 0;
}
