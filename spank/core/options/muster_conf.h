/* SPDX-License-Identifier: BSD-3-Clause */
/* muster_conf.h - parses the site file muster.conf; resolves its keys for one node */
#ifndef MU_MUSTER_CONF_H
#define MU_MUSTER_CONF_H

#include <stddef.h>

#include "runtime/base/err.h"
#include "spank/core/options/muster_option.h"

/* The default path of the site file. At this path the file may be missing. */
#define MU_SITE_FILE "/etc/slurm/muster.conf"
#define MU_SITE_LOCKS 24

/* The steps for which Muster is on when the user gives no --muster. */
enum mu_enable { MU_ENABLE_UNSET, MU_ENABLE_OFF, MU_ENABLE_GPU, MU_ENABLE_ALL };

/* The keys of one section. Strings are "" and numbers 0 where the key is not given. */
struct mu_site_keys {
    struct mu_opts opts;
    enum mu_enable enable;
    enum mu_flag installed; /* NO: these nodes lack the plugin, srun leaves all alone */
    char networks[1024];    /* subnets, comma separated, in order of preference */
    char exclude_hca[1024]; /* names, comma separated */
    char topology[4096];    /* topology file that replaces the real machine */
    char devices[256];      /* prefix: GPU N has the device file PREFIXN */
    int port_first, port_last;
    enum mu_flag restart; /* may srun be started anew? (options/restart.h) */
    int nlocks;
    char lock[MU_SITE_LOCKS][16]; /* keys that users may not set */
};

enum mu_site_section { MU_SITE_DEFAULTS, MU_SITE_PARTITION, MU_SITE_NODE };

struct mu_site_rule {
    enum mu_site_section section;
    char *name; /* partition, or host list; NULL for defaults */
    struct mu_site_keys keys;
};

/* Owned; clear with mu_site_clear. All zero is an empty site file. */
struct mu_site {
    int nrules;
    struct mu_site_rule **rule; /* in the order of the file */
};

/* Parse the text of a site file; messages name it `file`. Unknown sections and keys,
 * bad values and broken lines fail with "FILE:LINE: why" and leave *site unchanged.
 */
int mu_site_parse(const char *text, const char *file, struct mu_site *site,
                  struct mu_err *err);
void mu_site_clear(struct mu_site *site);

/* The keys for node `host` in `partition` (either may be NULL): [node] overrides
 * [partition], [partition] overrides [defaults], a later section of one kind overrides
 * an earlier one. Locks of all sections apply. Unset fields stay unset.
 */
void mu_site_resolve(const struct mu_site *site, const char *partition,
                     const char *host, struct mu_site_keys *out);

/* Unset the user's options that the site locked. `taken` gets their names, separated by
 * commas ("" for none).
 */
void mu_site_lock(const struct mu_site_keys *keys, struct mu_opts *opts, char *taken,
                  size_t len);

#endif
