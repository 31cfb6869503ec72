/* SPDX-License-Identifier: BSD-3-Clause */
/* settings.c - loads the site file and merges the options of a step */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "spank/hw/io/sysfile.h"
#include "spank/plugin/plugin.h"

#define SITE_FILE_MAX (256 * 1024)

int mu_site_read(const struct mu_state *st, struct mu_site *site, struct mu_err *err)
{
    struct mu_err why = { 0 };
    char *text;
    int rc;

    if (st->arguments.code)
        return mu_err_set(err, st->arguments.code, "%s", st->arguments.text);
    if (mu_owned_text(st->conf, SITE_FILE_MAX, &text, &why) < 0)
        return why.code == ENOENT && !st->conf_needed
                   ? 0
                   : mu_err_set(err, why.code, "%s", why.text);
    rc = mu_site_parse(text, st->conf, site, err);
    free(text);
    return rc;
}

int mu_site_load(const struct mu_state *st, const char *partition, const char *host,
                 struct mu_site_keys *keys, struct mu_err *err)
{
    struct mu_site site = { 0 };

    memset(keys, 0, sizeof *keys);
    if (mu_site_read(st, &site, err) < 0)
        return -1;
    mu_site_resolve(&site, partition, host, keys);
    mu_site_clear(&site);
    return 0;
}

int mu_settle(const struct mu_state *st, const struct mu_site_keys *site,
              struct mu_opts *opts, char *taken, size_t len, struct mu_err *err)
{
    struct mu_opts defaults;

    memset(opts, 0, sizeof *opts);
    taken[0] = '\0';
    if (st->option_given && st->option_too_long)
        return mu_err_set(err, E2BIG, "--muster takes at most %d characters",
                          MU_OPTION_TEXT - 1);
    if (st->option_given && mu_opts_parse(st->option, opts, err) < 0)
        return -1;
    /* A --muster of Muster's own does not turn it on where the site has it off. */
    if (st->step.request.own_option)
        opts->mode = MU_MODE_UNSET;
    mu_site_lock(site, opts, taken, len);
    mu_opts_merge(opts, &site->opts);
    mu_opts_defaults(&defaults);
    mu_opts_merge(opts, &defaults);
    return 0;
}
