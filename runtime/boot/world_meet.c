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

static int publish(struct mu_world *w, const char *host, const char *node_key,
                   struct mu_err *err)
{
    struct rank_record mine = { .address = *mu_endpoint_address(w->endpoint),
                                .pid = getpid() };

    mu_copy(mine.host, sizeof mine.host, host);
    mu_copy(mine.node_key, sizeof mine.node_key, node_key);
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

    if (x->fetch(x->arg, rank, RECORD_KEY, &value, &len, 5, err) < 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "rank %d ended before all ranks had met", rank);
    valid = len == sizeof *record &&
            mu_address_read(&w->address[rank], value, sizeof w->address[rank]);
    if (valid)
        memcpy(record, value, sizeof *record);
    free(value);
    if (!valid)
        return mu_err_set(err, MUSTER_ECONTRACT,
                          "rank %d runs another release of libmuster than rank %d",
                          rank, w->rank);
    record->host[sizeof record->host - 1] = '\0';
    record->node_key[sizeof record->node_key - 1] = '\0';
    return 0;
}

/* From here on the endpoint can judge callers. */
static void trust(struct mu_world *w, const uint8_t token[MU_TOKEN_LEN])
{
    memmove(w->token, token, sizeof w->token);
    for (int s = MU_SERVICE_CONTROL; s < MU_NSERVICES; s++)
        mu_endpoint_set_secret(w->endpoint, (enum mu_service)s, token);
}

static int read_records(struct mu_world *w, struct rank_record *records,
                        struct mu_err *err)
{
    const char **key = calloc((size_t)w->size, sizeof *key);
    int rc = -1;

    if (!key)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", w->size);
    for (int r = 0; r < w->size; r++) {
        if (read_record(w, r, &records[r], err) < 0)
            goto out;
        if (r == 0)
            trust(w, w->has_token ? w->token : records[0].token);
        key[r] = records[r].node_key;
        w->pid_of[r] = records[r].pid;
        free(w->host_of[r]);
        w->host_of[r] = strdup(records[r].host);
        if (!w->host_of[r]) {
            mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", w->size);
            goto out;
        }
    }
    mu_world_number_nodes(w, key);
    rc = 0;
out:
    free(key);
    return rc;
}

static int meet_alone(struct mu_world *w, const char *host, const char *node_key,
                      struct mu_err *err)
{
    w->pid_of[0] = getpid();
    free(w->host_of[0]);
    w->host_of[0] = strdup(host);
    if (!w->host_of[0])
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for a world of one");
    mu_world_number_nodes(w, &node_key);
    return 0;
}

int mu_world_exchange(struct mu_world *w, const char *host, const char *node_key,
                      double timeout, struct mu_err *err)
{
    struct rank_record *records;
    int rc;

    if (w->size == 1)
        return meet_alone(w, host, node_key, err);
    if (publish(w, host, node_key, err) < 0 ||
        w->exchange.fence(w->exchange.arg, timeout, err) < 0)
        return -1;
    records = calloc((size_t)w->size, sizeof *records);
    if (!records)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", w->size);
    rc = read_records(w, records, err);
    free(records);
    return rc;
}
