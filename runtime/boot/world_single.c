/* SPDX-License-Identifier: BSD-3-Clause */
/* world_single.c - a world of this process alone */
#include "runtime/boot/world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/random.h"
#include "runtime/muster.h"

#define MAX_KEYS 64

/* What was published, for a backend that fetches its own record. */
struct single {
    struct entry {
        char *key;
        void *value;
        size_t len;
    } entry[MAX_KEYS];
    int n;
};

static int publish(void *arg, const char *key, const void *value, size_t len,
                   struct mu_err *err)
{
    struct single *s = arg;
    struct entry e = { strdup(key), malloc(len + 1), len };

    if (!e.key || !e.value || s->n == MAX_KEYS) {
        free(e.key);
        free(e.value);
        return mu_err_set(err, MUSTER_EMEMORY, "no room to publish %s", key);
    }
    memcpy(e.value, value, len);
    s->entry[s->n++] = e;
    return 0;
}

static int fence(void *arg, double timeout, struct mu_err *err)
{
    return 0;
}

static int fetch(void *arg, int rank, const char *key, void **value, size_t *len,
                 double timeout, struct mu_err *err)
{
    const struct single *s = arg;

    for (int i = s->n - 1; rank == 0 && i >= 0; i--)
        if (strcmp(s->entry[i].key, key) == 0) {
            void *copy = malloc(s->entry[i].len + 1);

            if (!copy)
                return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %s", key);
            memcpy(copy, s->entry[i].value, s->entry[i].len);
            *value = copy;
            *len = s->entry[i].len;
            return 0;
        }
    return mu_err_set(err, MUSTER_ERENDEZVOUS, "rank %d has not published %s", rank,
                      key);
}

static void single_close(struct mu_world *world)
{
    struct single *s = world->impl;

    for (int i = 0; i < s->n; i++) {
        free(s->entry[i].key);
        free(s->entry[i].value);
    }
    free(s);
    mu_world_free(world);
}

static void single_abort(struct mu_world *world, int status, const char *why)
{
    _exit(status);
}

int mu_world_single(struct mu_world **out, struct mu_err *err)
{
    const char *key = "";
    char host[256] = "localhost";
    struct mu_world *w = mu_world_new(0, 1, "single", err);

    if (!w)
        return -1;
    gethostname(host, sizeof host - 1);
    w->impl = calloc(1, sizeof(struct single));
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
    mu_world_number_nodes(w, &key);
    w->exchange = (struct mu_exchange){ w->impl, publish, fence, fetch };
    w->close = single_close;
    w->abort = single_abort;
    *out = w;
    return 0;
fail:
    free(w->impl);
    mu_world_free(w);
    return -1;
}
