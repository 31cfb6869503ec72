/* SPDX-License-Identifier: BSD-3-Clause */
/* world_single.c - a world of this process alone */
#include "runtime/boot/world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/random.h"
#include "runtime/boot/table.h"
#include "runtime/muster.h"

/* A backend may fetch its own record. */
static int publish(void *arg, const char *key, const void *value, size_t len,
                   struct mu_err *err)
{
    return mu_table_add(arg, 0, key, strlen(key), value, len, err);
}

static int fence(void *arg, double timeout, struct mu_err *err)
{
    return 0;
}

static int fetch(void *arg, int rank, const char *key, void **value, size_t *len,
                 double timeout, struct mu_err *err)
{
    return mu_table_fetch(arg, rank, key, value, len, err);
}

static void single_close(struct mu_world *world)
{
    mu_table_clear(world->impl);
    free(world->impl);
    mu_world_free(world);
}

int mu_world_single(struct mu_world **out, struct mu_err *err)
{
    char host[256] = "localhost";
    struct mu_world *w = mu_world_new(0, 1, "single", err);

    if (!w)
        return -1;
    gethostname(host, sizeof host - 1);
    w->impl = calloc(1, sizeof(struct mu_table));
    w->host_of[0] = strdup(host);
    if (!w->impl || !w->host_of[0]) {
        mu_err_set(err, MUSTER_EMEMORY, "out of memory for a world of one");
        goto fail;
    }
    if (mu_random(w->token, sizeof w->token) < 0) {
        mu_err_set(err, MUSTER_EIO, "getrandom failed: %s", strerror(errno));
        goto fail;
    }
    w->pid_of[0] = getpid();
    mu_world_number_nodes(w);
    w->exchange = (struct mu_exchange){ w->impl, publish, fence, fetch, NULL };
    w->close = single_close;
    *out = w;
    return 0;
fail:
    free(w->impl);
    mu_world_free(w);
    return -1;
}
