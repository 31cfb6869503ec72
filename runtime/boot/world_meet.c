/* SPDX-License-Identifier: BSD-3-Clause */
/* world_meet.c - the ranks' records, over any exchange: where each rank runs, where its
 * endpoint listens, and the job's token
 */
#include "runtime/boot/world.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "runtime/muster.h"

#define RECORD_KEY "muster.rank"

/* What each rank publishes. */
struct rank_record {
    struct mu_address address; /* first: its magic covers the whole record */
    int32_t pid;
    char host[128], node_key[160];
    uint8_t token[MU_TOKEN_LEN]; /* rank 0's counts; zero where all have it */
};

int mu_world_listen(struct mu_world *w, const char *master_addr, struct mu_err *err)
{
    if (w->size == 1)
        return 0;
    return mu_endpoint_open(w->rank == 0 ? master_addr : NULL, &w->endpoint, err);
}

static int publish(struct mu_world *w, struct mu_err *err)
{
    struct rank_record mine = { .address = *mu_endpoint_address(w->endpoint),
                                .pid = getpid() };

    mu_copy(mine.host, sizeof mine.host, w->host);
    mu_copy(mine.node_key, sizeof mine.node_key, w->node_key);
    if (!w->has_token)
        memcpy(mine.token, w->token, sizeof mine.token);
    return w->exchange.publish(w->exchange.arg, RECORD_KEY, &mine, sizeof mine, err);
}

static int read_record(struct mu_world *w, int rank, struct rank_record *record,
                       struct mu_err *err)
{
    const struct mu_exchange *x = &w->exchange;
    void *value;
    size_t len;
    bool valid;

    if (x->fetch(x->arg, rank, RECORD_KEY, &value, &len, 5, err) < 0) {
        const char *host = w->host_of[rank] ? w->host_of[rank] : "";

        w->view = (struct mu_view){ .sight = MU_SAW_EARLY_DEATH, .place = w->rank };
        return mu_death_err(MU_DEATH_EARLY,
                            &(struct mu_rank_name){ .rank = rank, .host = host }, err);
    }
    valid = len == sizeof *record &&
            mu_address_read(&w->address[rank], value, sizeof w->address[rank]);
    if (valid)
        memcpy(record, value, sizeof *record);
    free(value);
    if (!valid)
        return mu_err_set(err, MUSTER_ECONTRACT,
                          "rank %d (node %s) runs another release of libmuster than "
                          "rank %d (node %s)",
                          rank, w->host_of[rank] ? w->host_of[rank] : "not known",
                          w->rank, w->host);
    record->host[sizeof record->host - 1] = '\0';
    record->node_key[sizeof record->node_key - 1] = '\0';
    return 0;
}

void mu_world_trust(struct mu_world *w, const uint8_t token[MU_TOKEN_LEN])
{
    memmove(w->token, token, sizeof w->token);
    for (int s = MU_SERVICE_CONTROL; s < MU_NSERVICES; s++)
        mu_endpoint_set_secret(w->endpoint, (enum mu_service)s, token);
}

static int set_rank(struct mu_world *w, int rank, int pid, const char *host,
                    struct mu_err *err)
{
    w->pid_of[rank] = pid;
    free(w->host_of[rank]);
    w->host_of[rank] = strdup(host);
    return w->host_of[rank]
               ? 0
               : mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", w->size);
}

static int read_records(struct mu_world *w, struct rank_record *records,
                        struct mu_err *err)
{
    for (int r = 0; r < w->size; r++) {
        int same = r - 1;

        if (read_record(w, r, &records[r], err) < 0)
            return -1;
        if (r == 0)
            mu_world_trust(w, w->has_token ? w->token : records[0].token);
        while (same >= 0 && strcmp(records[same].node_key, records[r].node_key) != 0)
            same--;
        w->node_of[r] = same >= 0 ? w->node_of[same] : r;
        if (set_rank(w, r, records[r].pid, records[r].host, err) < 0)
            return -1;
    }
    mu_world_number_nodes(w);
    return 0;
}

int mu_world_exchange(struct mu_world *w, double timeout, struct mu_err *err)
{
    struct rank_record *records;
    int rc;

    if (w->size == 1) {
        mu_world_number_nodes(w);
        return set_rank(w, 0, getpid(), w->host, err);
    }
    if (publish(w, err) < 0 || w->exchange.fence(w->exchange.arg, timeout, err) < 0)
        return -1;
    records = calloc((size_t)w->size, sizeof *records);
    if (!records)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", w->size);
    rc = read_records(w, records, err);
    free(records);
    return rc;
}
