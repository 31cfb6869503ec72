/* SPDX-License-Identifier: BSD-3-Clause */
/* table.c - what ranks have published */
#include "runtime/boot/table.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/muster.h"

struct mu_table_entry {
    struct mu_table_entry *next;
    int rank;
    char key[MU_TABLE_KEY];
    size_t len;
    char value[];
};

int mu_table_add(struct mu_table *t, int rank, const char *key, size_t key_len,
                 const void *value, size_t len, struct mu_err *err)
{
    struct mu_table_entry *e;

    if (key_len >= sizeof e->key)
        return mu_err_set(err, MUSTER_EINTERNAL, "the key %.*s is too long",
                          MU_TABLE_KEY, key);
    e = calloc(1, sizeof *e + len + 1);
    if (!e)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %.*s", (int)key_len,
                          key);
    e->rank = rank;
    memcpy(e->key, key, key_len);
    e->len = len;
    memcpy(e->value, value, len);
    e->next = t->first; /* the newest of a key is found first */
    t->first = e;
    return 0;
}

int mu_table_fetch(const struct mu_table *t, int rank, const char *key, void **value,
                   size_t *len, struct mu_err *err)
{
    const struct mu_table_entry *e = t->first;
    char *copy;

    while (e && (e->rank != rank || strcmp(e->key, key) != 0))
        e = e->next;
    if (!e)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "rank %d published no %s", rank,
                          key);
    copy = malloc(e->len + 1);
    if (!copy)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %s", key);
    memcpy(copy, e->value, e->len);
    *value = copy;
    *len = e->len;
    return 0;
}

void mu_table_clear(struct mu_table *t)
{
    while (t->first) {
        struct mu_table_entry *e = t->first;

        t->first = e->next;
        free(e);
    }
}
