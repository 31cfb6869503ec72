/* SPDX-License-Identifier: BSD-3-Clause */
/* muster_conf_resolve.c - which keys of the site file a node gets; locked options */
#include <stdio.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/core/options/muster_conf.h"
#include "spank/core/slurm/hostlist.h"

static bool applies(const struct mu_site_rule *rule, const char *partition,
                    const char *host)
{
    struct mu_hostlist hosts = { 0 };
    bool yes;

    if (rule->section == MU_SITE_DEFAULTS)
        return true;
    if (rule->section == MU_SITE_PARTITION)
        return partition && strcmp(rule->name, partition) == 0;
    if (!host || mu_hostlist_parse(rule->name, &hosts, NULL) < 0)
        return false;
    yes = mu_hostlist_find(&hosts, host) >= 0;
    mu_hostlist_clear(&hosts);
    return yes;
}

static void fill_text(char *dst, size_t len, const char *lower)
{
    if (!dst[0])
        mu_copy(dst, len, lower);
}

/* Fill the unset fields of *keys from a section of lower precedence. */
static void fill(struct mu_site_keys *keys, const struct mu_site_keys *lower)
{
    mu_opts_merge(&keys->opts, &lower->opts);
    if (!keys->enable)
        keys->enable = lower->enable;
    if (!keys->installed)
        keys->installed = lower->installed;
    if (!keys->restart)
        keys->restart = lower->restart;
    fill_text(keys->networks, sizeof keys->networks, lower->networks);
    fill_text(keys->exclude_hca, sizeof keys->exclude_hca, lower->exclude_hca);
    fill_text(keys->topology, sizeof keys->topology, lower->topology);
    fill_text(keys->devices, sizeof keys->devices, lower->devices);
    if (!keys->port_first) {
        keys->port_first = lower->port_first;
        keys->port_last = lower->port_last;
    }
    for (int i = 0; i < lower->nlocks && keys->nlocks < MU_SITE_LOCKS; i++)
        memcpy(keys->lock[keys->nlocks++], lower->lock[i], sizeof lower->lock[i]);
}

void mu_site_resolve(const struct mu_site *site, const char *partition,
                     const char *host, struct mu_site_keys *out)
{
    memset(out, 0, sizeof *out);
    for (int section = MU_SITE_NODE; section >= MU_SITE_DEFAULTS; section--)
        for (int i = site->nrules - 1; i >= 0; i--)
            if ((int)site->rule[i]->section == section &&
                applies(site->rule[i], partition, host))
                fill(out, &site->rule[i]->keys);
}

void mu_site_lock(const struct mu_site_keys *keys, struct mu_opts *opts, char *taken,
                  size_t len)
{
    size_t at = 0;

    taken[0] = '\0';
    for (int i = 0; i < keys->nlocks; i++)
        if (mu_opts_unset(opts, keys->lock[i]) && at + 20 < len)
            at += (size_t)snprintf(taken + at, len - at, "%s%s", at ? ", " : "",
                                   keys->lock[i]);
}
