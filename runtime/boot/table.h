/* SPDX-License-Identifier: BSD-3-Clause */
/* table.h - what ranks have published: of an exchange that keeps it in this process */
#ifndef MU_TABLE_H
#define MU_TABLE_H

#include <stddef.h>

#include "runtime/base/err.h"

#define MU_TABLE_KEY 64

struct mu_table {
    struct mu_table_entry *first;
};

/* The key has key_len bytes and no zero; key and value are copied. */
int mu_table_add(struct mu_table *t, int rank, const char *key, size_t key_len,
                 const void *value, size_t len, struct mu_err *err);
/* The newest of that key. Caller frees *value. */
int mu_table_fetch(const struct mu_table *t, int rank, const char *key, void **value,
                   size_t *len, struct mu_err *err);
void mu_table_clear(struct mu_table *t);

#endif
