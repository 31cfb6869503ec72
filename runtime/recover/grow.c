/* SPDX-License-Identifier: BSD-3-Clause */
/* grow.c - the file by which newcomers find rank 0 */
#include "runtime/recover/recover.h"

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
