/* SPDX-License-Identifier: BSD-3-Clause */
/* settings.c - small files, the site file, and the options that hold for a step */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spank/hw/io/sysfile.h"
#include "spank/plugin/plugin.h"

#define SITE_FILE_MAX (256 * 1024)

static char *read_all(int fd, size_t max)
{
    char *text = malloc(max + 1);
    size_t at = 0;
    ssize_t n;

    if (!text)
        return NULL;
    while (at < max && (n = read(fd, text + at, max - at)) > 0)
        at += (size_t)n;
    text[at] = '\0';
    return text;
}

int mu_read_small(const char *path, size_t max, char **text, struct mu_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return mu_err_set(err, errno, "%s: %s", path, strerror(errno));
    *text = read_all(fd, max);
    close(fd);
    return *text ? 0 : mu_err_set(err, ENOMEM, "%s: out of memory", path);
}

int mu_site_load(const struct mu_state *st, const char *partition, const char *host,
                 struct mu_site_keys *keys, struct mu_err *err)
{
    struct mu_site site = { 0 };
    struct mu_err why = { 0 };
    struct stat file;
    char *text = NULL;
    int rc = -1, fd;

    memset(keys, 0, sizeof *keys);
    fd = mu_owned_open(st->conf, &file, &why);
    if (fd < 0 && why.code == ENOENT && !st->conf_needed)
        return 0;
    if (fd < 0)
        return mu_err_set(err, why.code, "%s", why.text);
    if (file.st_size > SITE_FILE_MAX) {
        mu_err_set(err, EFBIG, "%s: larger than %d bytes", st->conf, SITE_FILE_MAX);
        goto out;
    }
    text = read_all(fd, SITE_FILE_MAX);
    if (!text) {
        mu_err_set(err, ENOMEM, "%s: out of memory", st->conf);
        goto out;
    }
    if (mu_site_parse(text, st->conf, &site, err) < 0)
        goto out;
    mu_site_resolve(&site, partition, host, keys);
    rc = 0;
out:
    mu_site_clear(&site);
    free(text);
    close(fd);
    return rc;
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
    mu_site_lock(site, opts, taken, len);
    mu_opts_merge(opts, &site->opts);
    mu_opts_defaults(&defaults);
    mu_opts_merge(opts, &defaults);
    return 0;
}
