/* SPDX-License-Identifier: BSD-3-Clause */
/* forked.c - a world of ranks forked on this node, without Slurm or PMIx */
#include "runtime/tools/forked.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "runtime/muster.h"

#define MEET_SECONDS 60.0

struct child {
    bool narrow;
    int (*body)(struct mu_world *world, void *arg);
    void *arg;
};

static void world_abort(struct mu_world *world, int status, const char *why)
{
    fprintf(stderr, "muster: rank %d: %s\n", world->rank, why);
    _exit(status);
}

struct mu_world *mu_forked_world(struct mu_fork_rank *self, const char *const *host)
{
    const char *all_here[MU_FORK_MAX];
    char job[48], here[256] = "localhost";
    struct mu_world *w;

    snprintf(job, sizeof job, "local.%d", (int)getppid());
    w = mu_world_new(self->rank, self->size, job, NULL);
    if (!w)
        return NULL;
    gethostname(here, sizeof here - 1);
    for (int r = 0; r < self->size; r++)
        all_here[r] = here;
    host = host ? host : all_here;
    for (int r = 0; r < self->size; r++) {
        w->host_of[r] = strdup(host[r]);
        w->pid_of[r] = self->pid[r];
    }
    memcpy(w->token, self->token, sizeof w->token);
    w->exchange = self->exchange;
    mu_copy(w->host, sizeof w->host, host[self->rank]);
    mu_copy(w->node_key, sizeof w->node_key, host[self->rank]);
    w->meet = mu_world_exchange;
    w->close = mu_world_free;
    w->abort = world_abort;
    if (mu_world_listen(w, NULL, NULL) < 0) {
        mu_world_free(w);
        return NULL;
    }
    return w;
}

void mu_forked_narrow(int rank)
{
    const char *all = getenv("CUDA_VISIBLE_DEVICES");
    char list[1024], own[32], *rest = list, *one = own;

    snprintf(own, sizeof own, "%d", rank);
    if (all && mu_copy(list, sizeof list, all))
        for (int i = 0; i <= rank; i++)
            if (!(one = mu_parse_next(&rest, ',')))
                return; /* too few: the backend reports it */
    setenv("CUDA_VISIBLE_DEVICES", one, 1);
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
}

static int run_child(struct mu_fork_rank *self, void *arg)
{
    const struct child *child = arg;
    struct mu_err err = { 0 };
    struct mu_world *world;

    if (child->narrow)
        mu_forked_narrow(self->rank);
    world = mu_forked_world(self, NULL);
    if (!world)
        return MUSTER_EMEMORY;
    if (mu_world_meet(world, MEET_SECONDS, &err) < 0)
        mu_world_abort(world, err.code, err.text);
    return child->body(world, child->arg);
}

int mu_forked_run(int n, bool narrow, double patience,
                  int (*body)(struct mu_world *world, void *arg), void *arg)
{
    struct mu_fork_spec spec = { .size = n, .patience = patience };
    struct child child = { narrow, body, arg };
    int status = mu_fork_ranks(&spec, run_child, &child, NULL);

    if (status < 0) {
        fprintf(stderr, "muster: %d ranks cannot be forked: %s\n", n, strerror(errno));
        return MUSTER_EUSAGE;
    }
    return status;
}
