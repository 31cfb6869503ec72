/* SPDX-License-Identifier: BSD-3-Clause */
/* grow.c - newcomers: the file by which they find rank 0; whether some wait there */
#include "runtime/recover/recover.h"

#include <string.h>

#include "runtime/boot/join_file.h"

static bool is_due(const struct mu_recover *recover)
{
    const struct mu_comm *comm = recover->comm;

    return comm->config.grow[0] && comm->world->rank == 0 && !recover->published;
}

int mu_grow_publish(struct mu_recover *recover, struct mu_err *err)
{
    struct mu_comm *comm = recover->comm;

    if (!is_due(recover))
        return 0;
    if (mu_join_file_write(comm->config.grow, comm->world, err) < 0)
        return -1;
    recover->published = true;
    return 0;
}

void mu_grow_follow(struct mu_recover *recover)
{
    struct mu_comm *comm = recover->comm;
    struct mu_err err = { 0 };

    if (is_due(recover) && mu_grow_publish(recover, &err) < 0)
        mu_log(&comm->log, MU_LOG_WARN, "%s: no process can join this job", err.text);
}

void mu_grow_end(struct mu_recover *recover)
{
    struct mu_comm *comm = recover->comm;

    if (recover->published)
        mu_join_file_remove(comm->config.grow, comm->world);
    recover->published = false;
}

int mu_grow(struct mu_recover *recover, int *joined, struct mu_err *err)
{
    struct mu_comm *comm = recover->comm;
    struct mu_gathered all = { 0 };
    int32_t waiting = 0;

    *joined = 0;
    if (comm->world->rank == 0)
        waiting = mu_survive_waiting(recover->survive);
    if (mu_gather(comm, "muster_grow", &waiting, sizeof waiting, &all, err) < 0) {
        mu_verdict_await(recover, err);
        if (!mu_elastic_wanted(recover))
            return -1;
        return mu_elastic_grow(recover, false, joined, err);
    }
    memcpy(&waiting, all.at[0], sizeof waiting);
    mu_gathered_clear(&all);
    return waiting > 0 ? mu_elastic_grow(recover, true, joined, err) : 0;
}
