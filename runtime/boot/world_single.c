/* SPDX-License-Identifier: BSD-3-Clause */
/* world_single.c - a world of this process alone */
#include "runtime/boot/world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/random.h"
#include "runtime/boot/published.h"
#include "runtime/muster.h"

/* The all-gather of one. */
static int gather(void *arg, const void *mine, size_t len, void *all, double timeout,
                  struct mu_err *err)
{
    memcpy(all, mine, len);
    return 0;
}

static void single_close(struct mu_world *world)
{
    mu_published_clear(world->impl);
    free(world->impl);
    mu_world_free(world);
}

int mu_world_single(struct mu_world **out, struct mu_err *err)
{
    char host[256] = "localhost";
    struct mu_published *p;
    struct mu_world *w = mu_world_new(0, 1, "single", err);

    if (!w)
        return -1;
    gethostname(host, sizeof host - 1);
    w->impl = p = calloc(1, sizeof *p);
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
    *p = (struct mu_published){ .size = 1, .gather = gather };
    w->exchange = mu_published_exchange(p);
    w->close = single_close;
    *out = w;
    return 0;
fail:
    free(w->impl);
    mu_world_free(w);
    return -1;
}
