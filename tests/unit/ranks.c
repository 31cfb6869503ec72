/* SPDX-License-Identifier: BSD-3-Clause */
/* ranks.c - a test body in forked ranks that can open a backend */
#include "tests/unit/ranks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct call {
    const struct ranks_world *world;
    ranks_body *body;
    void *arg;
};

void ranks_complain(const struct ranks_self *self, const char *file, int line,
                    const char *cond, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(stderr, "# rank %d: %s:%d: %s: %s\n", self->rank, file, line, cond, text);
}

static int count_nodes(const struct ranks_world *w)
{
    int max = 0;

    for (int r = 0; w->node_of && r < w->n; r++)
        if (w->node_of[r] > max)
            max = w->node_of[r];
    return max + 1;
}

static void fill_env(struct ranks_self *self, const struct ranks_world *w,
                     const uint8_t *token)
{
    static int nodes[MU_FORK_MAX];
    static char names[MU_FORK_MAX][16];
    static const char *hosts[MU_FORK_MAX];
    struct mu_backend_env *e = &self->env;

    for (int r = 0; r < w->n; r++) {
        nodes[r] = w->node_of ? w->node_of[r] : 0;
        snprintf(names[r], sizeof names[r], "n%d", nodes[r]);
        hosts[r] = names[r];
    }
    e->rank = self->rank;
    e->size = w->n;
    for (int r = 0; r < w->n; r++) {
        e->local_size += nodes[r] == nodes[self->rank];
        e->local_rank += nodes[r] == nodes[self->rank] && r < self->rank;
    }
    e->node = nodes[self->rank];
    e->nnodes = count_nodes(w);
    e->node_of = nodes;
    e->host_of = hosts;
    e->job = "1.0";
    e->gpus = "";
    memcpy(e->token, token, sizeof e->token);
    e->force_tcp = w->force_tcp;
    e->timeout = w->timeout > 0 ? w->timeout : 20;
    e->init_timeout = w->init_timeout > 0 ? w->init_timeout : 20;
    e->link_timeout = w->link_timeout;
}

/* Each rank publishes its address and reads those of all ranks. */
int ranks_meet(struct ranks_self *self, const char *first)
{
    static struct mu_address at[MU_FORK_MAX];
    struct mu_backend_env *e = &self->env;
    const struct mu_exchange *x = &e->exchange;
    void *value;
    size_t len;

    mu_endpoint_close(e->endpoint);
    e->endpoint = NULL;
    if (mu_endpoint_open(first, &e->endpoint, NULL) < 0 ||
        x->publish(x->arg, "address", mu_endpoint_address(e->endpoint), sizeof *at,
                   NULL) < 0 ||
        x->fence(x->arg, 20, NULL) < 0)
        return -1;
    mu_endpoint_set_log(e->endpoint, e->log, 10);
    for (int s = MU_SERVICE_CONTROL; s < MU_NSERVICES; s++)
        mu_endpoint_set_secret(e->endpoint, (enum mu_service)s, e->token);
    for (int r = 0; r < self->size; r++) {
        if (x->fetch(x->arg, r, "address", &value, &len, 10, NULL) < 0)
            return -1;
        if (!mu_address_read(&at[r], value, len))
            return -1;
        free(value);
    }
    e->address = at;
    return 0;
}

static int run_rank(struct mu_fork_rank *rank, void *arg)
{
    const struct call *call = arg;
    struct ranks_self self = { .rank = rank->rank,
                               .size = rank->size,
                               .pids = rank->pid,
                               .results = rank->results };
    int status;

    fill_env(&self, call->world, rank->token);
    self.env.exchange = rank->exchange;
    if (ranks_meet(&self, NULL) < 0)
        _exit(98);
    status = call->body(&self, call->arg);
    mu_endpoint_close(self.env.endpoint);
    /* Not a return, which skips the sanitizers' checks at exit. */
    exit(status);
}

int ranks_run(const struct ranks_world *w, ranks_body *body, void *arg, int *status)
{
    struct mu_fork_spec spec = { .size = w->n, .limit = w->limit > 0 ? w->limit : 60 };
    struct call call = { w, body, arg };
    struct mu_fork_end end;
    int bad = 0;

    if (mu_fork_ranks(&spec, run_rank, &call, &end) < 0) {
        perror("# the ranks cannot be forked");
        return w->n;
    }
    if (end.killed > 0)
        fprintf(stderr, "# %d ranks did not end within %g s\n", end.killed, spec.limit);
    for (int r = 0; r < w->n; r++) {
        bad += end.status[r] != 0;
        if (status)
            status[r] = end.status[r];
    }
    if (w->results)
        memcpy(w->results, end.results, sizeof end.results);
    return bad;
}
