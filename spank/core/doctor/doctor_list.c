/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_list.c - NCCL's lists of interfaces and devices */
#include "spank/core/doctor/doctor_list.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define AREA "network"

/* The value that NCCL uses, and its source in *from; NULL: none. */
const char *mu_doctor_nccl_value(const struct mu_facts *facts, const char *name,
                                 const char **from)
{
    const char *value = mu_facts_env(facts, name);
    const struct mu_conf_line *line =
        facts->nccl_conf && !value ? mu_conf_find(facts->nccl_conf, name) : NULL;

    *from = line ? line->file : "the environment";
    return line ? line->value : value;
}

/* Does NCCL's list select this name? "^" excludes the listed names. "=" compares whole
 * names, otherwise an item is a prefix. A port may follow a colon.
 */
bool mu_list_takes(const char *list, const char *name)
{
    bool all_but = list[0] == '^', found = false;
    bool whole = list[all_but] == '=';

    for (list += all_but + whole; *list && !found; list += strspn(list, ",")) {
        size_t item = strcspn(list, ","), len = strcspn(list, ":,");

        found = len > 0 && strncmp(list, name, len) == 0 && (!whole || !name[len]);
        list += item;
    }
    return found != all_but;
}

/* A name that the item also selects as a prefix, although it means another one: eth10
 * and the VLAN eth1.100 for eth1. "mlx5" and "ens1" for ens1f0 are meant as prefixes.
 */
static bool is_surplus(const char *item, size_t len, const char *name, bool exists)
{
    if (strncmp(item, name, len) != 0 || !name[len])
        return false;
    return exists || (isdigit((unsigned char)item[len - 1]) &&
                      (isdigit((unsigned char)name[len]) || name[len] == '.'));
}

/* NCCL reads ^ and = before the whole list only, and cuts no blanks off. */
static void check_items(const char *variable, const char *value, const char *from,
                        struct mu_findings *out)
{
    const char *item = value + (value[0] == '^');

    for (item += *item == '='; *item; item += strspn(item, ",")) {
        int len = (int)strcspn(item, ",");

        if (len > 0 && (strchr("^= \t", *item) || strchr(" \t", item[len - 1])))
            mu_findings_add(out, MU_WARNING, AREA,
                            "write ^ or = once, before the first name, and no blanks",
                            "%s=%s (%s): NCCL takes '%.*s' for a name, which no "
                            "device has",
                            variable, value, from, len, item);
        item += len;
    }
}

/* Names that a list selects beside those that it means; a '=' before the list makes
 * NCCL compare whole names.
 */
static void check_surplus(const char *variable, const char *value, const char *from,
                          const char *const *names, int n, struct mu_findings *out)
{
    bool all_but = value[0] == '^';
    char surplus[256] = "", todo[200];
    size_t at = 0;

    if (value[all_but] == '=')
        return;
    for (const char *item = value + all_but; *item; item += strspn(item, ",")) {
        size_t len = strcspn(item, ":,");
        bool exists = false;

        for (int i = 0; i < n; i++)
            exists |= strlen(names[i]) == len && strncmp(names[i], item, len) == 0;
        for (int i = 0; i < n && len > 0 && at < sizeof surplus; i++)
            if (is_surplus(item, len, names[i], exists))
                at += (size_t)snprintf(surplus + at, sizeof surplus - at, "%s%s",
                                       at ? ", " : "", names[i]);
        item += strcspn(item, ",");
    }
    if (!at)
        return;
    snprintf(todo, sizeof todo, "write '=' before the names: %s=%s=%.100s", variable,
             all_but ? "^" : "", value + all_but);
    mu_findings_add(out, MU_WARNING, AREA, todo,
                    "%s=%s (%s) also %s %s: NCCL compares beginnings of names",
                    variable, value, from, all_but ? "excludes" : "selects", surplus);
}

/* Report items of a list that NCCL reads in another way than they are meant. */
void mu_list_check(const char *variable, const char *value, const char *from,
                   const char *const *names, int n, struct mu_findings *out)
{
    check_items(variable, value, from, out);
    check_surplus(variable, value, from, names, n, out);
}
