/* SPDX-License-Identifier: BSD-3-Clause */
/* muster_conf.h - the site file muster.conf into structs, and its keys for one node */
#ifndef MU_MUSTER_CONF_H
#define MU_MUSTER_CONF_H

#include <stddef.h>

#include "runtime/base/err.h"
#include "spank/core/options/muster_option.h"

/* Where the site file is usual; there it may be missing. */
#define MU_SITE_FILE "/etc/slurm/muster.conf"
#define MU_SITE_LOCKS 24

/* For which steps Muster is on when the user does not say. */
enum mu_enable { MU_ENABLE_UNSET, MU_ENABLE_OFF, MU_ENABLE_GPU, MU_ENABLE_ALL };

/* The keys of one section. Strings are "" and numbers 0 where the key is not given. */
struct mu_site_keys {
    struct mu_opts opts;
    enum mu_enable enable;
    char networks[1024];    /* subnets, comma separated, in order of preference */
    char exclude_hca[1024]; /* names, comma separated */
    char topology[4096];    /* a recorded machine instead of the real one */
    char devices[256];      /* device file of GPU N is this text and N */
    int port_first, port_last;
    int nlocks;
    char lock[MU_SITE_LOCKS][16]; /* keys that users may not set */
};

enum mu_site_section { MU_SITE_DEFAULTS, MU_SITE_PARTITION, MU_SITE_NODE };

struct mu_site_rule {
    enum mu_site_section section;
    char *name; /* partition, or host list; NULL for defaults */
    struct mu_site_keys keys;
};

/* Owned; clear with mu_site_clear. All zero is a site file that says nothing. */
struct mu_site {
    int nrules;
    struct mu_site_rule **rule; /* in the order of the file */
};

/* Parse the text of a site file; `file` is its name for messages. Unknown sections and
 * keys, bad values and broken lines fail with "FILE:LINE: why". *site is untouched
 * then.
 */
int mu_site_parse(const char *text, const char *file, struct mu_site *site,
                  struct mu_err *err);
void mu_site_clear(struct mu_site *site);

/* What holds on node `host` in `partition` (either may be NULL): [node] beats
 * [partition] beats [defaults], a later section of one kind beats an earlier one, locks
 * add up. Unset fields stay unset.
 */
void mu_site_resolve(const struct mu_site *site, const char *partition,
                     const char *host, struct mu_site_keys *out);

/* Take back from a user's options what the site locked; the names of what was taken,
 * comma separated, go into `taken` ("" for none).
 */
void mu_site_lock(const struct mu_site_keys *keys, struct mu_opts *opts, char *taken,
                  size_t len);

#endif
