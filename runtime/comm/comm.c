/* SPDX-License-Identifier: BSD-3-Clause */
/* comm.c - the state of a group; a failure is announced to all its ranks */
#include "runtime/comm/comm.h"

#include <dlfcn.h>
#include <stdlib.h>

#define FOREIGN_LINES 10 /* warnings of dropped connections, of all ranks together */

/* Each rank has its share of the lines, and in a large world the first ranks have one.
 */
static int share_of_lines(const struct mu_world *world)
{
    if (world->size > FOREIGN_LINES)
        return world->rank < FOREIGN_LINES;
    return FOREIGN_LINES / world->size +
           (world->rank == 0 ? FOREIGN_LINES % world->size : 0);
}

void mu_comm_init(struct mu_comm *comm, const struct mu_config *config,
                  const char *version, struct mu_world *world)
{
    *comm = (struct mu_comm){ .version = version,
                              .config = *config,
                              .log = { .level = config->log },
                              .world = world,
                              .name = "" };
    pthread_mutex_init(&comm->flight_lock, NULL);
    pthread_mutex_init(&comm->swap_lock, NULL);
    if (world->endpoint)
        mu_endpoint_set_log(world->endpoint, &comm->log, share_of_lines(world));
}

void mu_comm_clear(struct mu_comm *comm)
{
    for (int r = 0; comm->gpu_of && comm->gpu_of[r]; r++)
        free(comm->gpu_of[r]);
    free(comm->gpu_of);
    mu_world_close(comm->world);
    mu_published_clear(&comm->exchange.published);
    if (comm->module)
        dlclose(comm->module);
    pthread_mutex_destroy(&comm->flight_lock);
    pthread_mutex_destroy(&comm->swap_lock);
    free(comm->gpus);
}

struct mu_flight_names mu_comm_names(const struct mu_comm *comm, const int *parent_of)
{
    return (struct mu_flight_names){
        .host_of = (const char *const *)comm->world->host_of,
        .gpu_of = (const char *const *)comm->gpu_of,
        .parent_of = parent_of,
    };
}

/* True when the error concerns this call alone. After any other error the group is
 * unusable, and that may have ended with one of these two codes.
 */
static bool is_local(struct mu_comm *comm, int status)
{
    struct mu_err known;

    return (status == MUSTER_EUSAGE || status == MUSTER_EMEMORY) &&
           !(comm->backend && comm->ops->broken && comm->ops->broken(comm->backend)) &&
           !mu_control_failed(comm->control, &known);
}

void mu_comm_announce(struct mu_comm *comm, int rank, const struct mu_err *err)
{
    struct mu_err known;

    /* Either the backend or the control connections may notice first. */
    if (!comm->announced && !mu_control_failed(comm->control, &known))
        mu_control_fail(comm->control, err->code, rank, err->text);
    comm->announced = true;
}

int mu_comm_fail(struct mu_comm *comm, const struct mu_err *err)
{
    if (!comm->control || atomic_load(&comm->closing) || is_local(comm, err->code) ||
        err->code == MUSTER_ESHRUNK)
        return -1;
    comm->failed = true;
    mu_comm_announce(comm, -1, err);
    return -1;
}

int mu_comm_refuse(struct mu_comm *comm, const struct mu_err *err)
{
    return comm->config.return_failure ? -1 : mu_comm_fail(comm, err);
}
