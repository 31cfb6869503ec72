/* SPDX-License-Identifier: BSD-3-Clause */
/* node_addr.c - finds the addresses of nodes in Slurm's texts */
#include "spank/core/slurm/node_addr.h"

#include <string.h>

#include "runtime/base/parse.h"
#include "spank/core/slurm/hostlist.h"
#include "spank/core/slurm/conf_lines.h"

#define VALUE_MAX 8192

void mu_node_addrs_of_line(const char *line, struct mu_node_addr *list, int n)
{
    struct mu_hostlist names = { 0 }, addrs = { 0 };
    char value[VALUE_MAX];

    if (!mu_slurm_value(line, "NodeName", value, sizeof value) ||
        mu_hostlist_parse(value, &names, NULL) < 0)
        return;
    if ((mu_slurm_value(line, "NodeAddr", value, sizeof value) ||
         mu_slurm_value(line, "NodeHostname", value, sizeof value)) &&
        mu_hostlist_parse(value, &addrs, NULL) == 0 && addrs.n > 0)
        for (int k = 0; k < n; k++) {
            int i = list[k].addr[0] ? -1 : mu_hostlist_find(&names, list[k].host);

            if (addrs.n == 1 && i > 0)
                i = 0; /* several slurmd of one machine share its address */
            if (i >= 0 && i < addrs.n)
                mu_copy(list[k].addr, sizeof list[k].addr, addrs.name[i]);
        }
    mu_hostlist_clear(&names);
    mu_hostlist_clear(&addrs);
}

/* Read the address after "host:" at *at and advance *at past it. */
static bool alias_addr(const char **at, char *out, size_t len)
{
    bool brackets = **at == '[';
    const char *begin = *at + brackets;
    size_t n = strcspn(begin, brackets ? "]" : ":,");

    *at = begin + n;
    if (n == 0 || n >= len)
        return false;
    memcpy(out, begin, n);
    out[n] = '\0';
    return true;
}

void mu_node_addrs_of_aliases(const char *aliases, struct mu_node_addr *list, int n)
{
    for (const char *at = aliases; at && *at;) {
        size_t name = strcspn(at, ":,");
        const char *after = at + name;
        char addr[sizeof list->addr];

        if (*after++ == ':' && alias_addr(&after, addr, sizeof addr))
            for (int k = 0; k < n; k++)
                if (strlen(list[k].host) == name &&
                    strncmp(list[k].host, at, name) == 0)
                    mu_copy(list[k].addr, sizeof list[k].addr, addr);
        at = strchr(at + name, ',');
        at = at ? at + 1 : NULL;
    }
}
