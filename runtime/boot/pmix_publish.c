/* SPDX-License-Identifier: BSD-3-Clause */
/* pmix_publish.c - publish a value over PMIx, get one; which ranks share our server's
 * node
 */
#include "runtime/boot/world_pmix.h"

#include <stdio.h>

#include "runtime/base/parse.h"
#include "runtime/muster.h"

void mu_pmix_key(const struct pmix *p, const char *key, char name[MU_PMIX_KEY])
{
    snprintf(name, MU_PMIX_KEY, "%s.%d", key, p->number);
}

int mu_pmix_publish(void *arg, const char *key, const void *value, size_t len,
                    struct mu_err *err)
{
    struct pmix *p = arg;
    char name[MU_PMIX_KEY];
    pmix_value_t v;
    pmix_status_t rc;

    mu_pmix_key(p, key, name);
    mu_copy(p->last_key, sizeof p->last_key, key);
    PMIX_VALUE_CONSTRUCT(&v);
    v.type = PMIX_BYTE_OBJECT;
    v.data.bo.bytes = (char *)(uintptr_t)value; /* PMIx_Put copies */
    v.data.bo.size = len;
    rc = PMIx_Put(PMIX_GLOBAL, name, &v);
    if (rc == PMIX_SUCCESS)
        rc = PMIx_Commit();
    if (rc != PMIX_SUCCESS)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "PMIx_Put of %s failed: %s", key,
                          PMIx_Error_string(rc));
    return 0;
}

bool mu_pmix_local_ranks(const struct mu_world *w, bool *local)
{
    const struct pmix *p = w->impl;
    pmix_proc_t all = p->self;
    pmix_value_t *value = NULL;
    char *rest, *item;
    long rank;

    all.rank = PMIX_RANK_WILDCARD;
    if (PMIx_Get(&all, PMIX_LOCAL_PEERS, NULL, 0, &value) != PMIX_SUCCESS || !value)
        return false;
    rest = value->type == PMIX_STRING ? value->data.string : NULL;
    while ((item = mu_parse_next(&rest, ',')))
        if (mu_parse_int("", item, 0, w->size - 1, &rank, NULL) == 0)
            local[rank] = true;
    PMIX_VALUE_RELEASE(value);
    return true;
}

int mu_pmix_start_get(const struct pmix *p, int rank, const char *key, double timeout,
                      struct mu_call **out)
{
    int seconds = timeout < 1 ? 1 : (int)timeout;
    struct mu_call *c = *out = mu_call_new();
    bool yes = true;

    if (!c)
        return PMIX_ERR_NOMEM;
    c->proc = p->self;
    c->proc.rank = (pmix_rank_t)rank;
    PMIX_INFO_LOAD(&c->info[0], PMIX_TIMEOUT, &seconds, PMIX_INT);
    /* Our own server has it all after a fence that collects. Without this word it would
     * ask Slurm for a rank that died, and Slurm then cancels the step (same node) or
     * retries for 30 s and does not even act on PMIx_Abort meanwhile (other node).
     */
    PMIX_INFO_LOAD(&c->info[1], PMIX_IMMEDIATE, &yes, PMIX_BOOL);
    mu_pmix_key(p, key, c->key);
    return PMIx_Get_nb(&c->proc, c->key, c->info, 2, mu_on_get, c);
}

void mu_pmix_host_of(const struct pmix *p, int rank, char *host, size_t len)
{
    pmix_proc_t proc = p->self;
    pmix_value_t *value = NULL;
    pmix_info_t info;
    bool yes = true;

    host[0] = '\0';
    proc.rank = (pmix_rank_t)rank;
    PMIX_INFO_LOAD(&info, PMIX_OPTIONAL, &yes, PMIX_BOOL);
    if (PMIx_Get(&proc, PMIX_HOSTNAME, &info, 1, &value) != PMIX_SUCCESS || !value)
        return;
    if (value->type == PMIX_STRING && value->data.string)
        mu_copy(host, len, value->data.string);
    PMIX_VALUE_RELEASE(value);
}
