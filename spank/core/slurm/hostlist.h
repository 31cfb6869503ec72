/* SPDX-License-Identifier: BSD-3-Clause */
/* hostlist.h - Slurm's compressed host names: "n[1-3,7],m-a[08-10]" */
#ifndef MU_HOSTLIST_H
#define MU_HOSTLIST_H

#include "runtime/base/err.h"

#ifndef MU_HOSTLIST_MAX       /* fuzzing has a lower one */
#define MU_HOSTLIST_MAX 65536 /* names; a longer list is an error */
#endif
#define MU_HOST_LEN 256

/* Owned; clear with mu_hostlist_clear. All zero is empty. */
struct mu_hostlist {
    int n;
    char **name; /* in the order of the text */
};

/* Leading zeros and dashes are kept. Several brackets in a name give all combinations,
 * with the last bracket changing fastest. *list is unchanged on failure.
 */
int mu_hostlist_parse(const char *text, struct mu_hostlist *list, struct mu_err *err);
void mu_hostlist_clear(struct mu_hostlist *list);

/* Append a name as it is. */
int mu_hostlist_add(struct mu_hostlist *list, const char *name, struct mu_err *err);

/* The names in their order, compressed: "n[1-3,7],login"; "" for none. Only numbers at
 * the end of a name are put together. The caller frees the text; NULL: out of memory.
 */
char *mu_hostlist_format(const struct mu_hostlist *list);

/* Position of a name, or -1. */
int mu_hostlist_find(const struct mu_hostlist *list, const char *name);

#endif
