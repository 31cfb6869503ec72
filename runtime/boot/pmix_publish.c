/* SPDX-License-Identifier: BSD-3-Clause */
/* pmix_publish.c - publish a value over PMIx; which ranks share our server's node */
#include "runtime/boot/world_pmix.h"

#include "runtime/base/parse.h"
#include "runtime/muster.h"

int mu_pmix_publish(void *arg, const char *key, const void *value, size_t len,
                    struct mu_err *err)
{
    struct pmix *p = arg;
    pmix_value_t v;
    pmix_status_t rc;

    mu_copy(p->last_key, sizeof p->last_key, key);
    PMIX_VALUE_CONSTRUCT(&v);
    v.type = PMIX_BYTE_OBJECT;
    v.data.bo.bytes = (char *)(uintptr_t)value; /* PMIx_Put copies */
    v.data.bo.size = len;
    rc = PMIx_Put(PMIX_GLOBAL, key, &v);
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
