/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/core/node_addr.h"

#include <string.h>
#include <strings.h>

#include "runtime/base/parse.h"
#include "spank/core/hostlist.h"

#define VALUE_MAX 8192
#define BLANKS " \t\r\n"

void mu_slurm_conf_join(char *text)
{
    for (char *at = text; (at = strchr(at, '\\')); at++)
        if (at[1] == '\n')
            at[0] = at[1] = ' ';
}

/* The value of `key` among the line's KEY=VALUE words; false: it has none. */
static bool word_of(const char *line, const char *key, char *out, size_t len)
{
    size_t n = strlen(key);

    for (const char *at = line + strspn(line, BLANKS); *at && *at != '#';) {
        size_t end = strcspn(at, BLANKS);

        if (strncasecmp(at, key, n) == 0 && at[n] == '=') {
            if (end - n - 1 >= len)
                return false;
            memcpy(out, at + n + 1, end - n - 1);
            out[end - n - 1] = '\0';
            return true;
        }
        at += end;
        at += strspn(at, BLANKS);
    }
    return false;
}

void mu_node_addrs_of_line(const char *line, struct mu_node_addr *list, int n)
{
    struct mu_hostlist names = { 0 }, addrs = { 0 };
    char value[VALUE_MAX];

    line += strspn(line, BLANKS);
    if (strncasecmp(line, "NodeName=", 9) != 0 ||
        !word_of(line, "NodeName", value, sizeof value) ||
        mu_hostlist_parse(value, &names, NULL) < 0)
        return;
    if ((word_of(line, "NodeAddr", value, sizeof value) ||
         word_of(line, "NodeHostname", value, sizeof value)) &&
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

bool mu_slurm_include_of_line(const char *line, char *out, size_t len)
{
    size_t n;

    line += strspn(line, BLANKS);
    if (strncasecmp(line, "Include", 7) != 0 || !strchr(BLANKS, line[7]) || !line[7])
        return false;
    line += 7;
    line += strspn(line, BLANKS);
    n = strcspn(line, BLANKS "#");
    if (n == 0 || n >= len)
        return false;
    memcpy(out, line, n);
    out[n] = '\0';
    return true;
}

/* The address behind "host:" at *at, which is moved behind it. */
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
        const char *behind = at + name;
        char addr[sizeof list->addr];

        if (*behind++ == ':' && alias_addr(&behind, addr, sizeof addr))
            for (int k = 0; k < n; k++)
                if (strlen(list[k].host) == name &&
                    strncmp(list[k].host, at, name) == 0)
                    mu_copy(list[k].addr, sizeof list[k].addr, addr);
        at = strchr(at + name, ',');
        at = at ? at + 1 : NULL;
    }
}
