/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/hw/live/nccl_conf_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "spank/hw/io/sysfile.h"

static int add_file(const char *path, struct mu_conf *conf, struct mu_err *err)
{
    char *text = malloc(MU_CONF_TEXT_MAX);
    long len;
    int rc = 0;

    if (!text)
        return mu_err_set(err, ENOMEM, "%s: out of memory", path);
    len = mu_sysfile_read("", text, MU_CONF_TEXT_MAX, "%s", path);
    if (len >= 0)
        rc = mu_conf_add(conf, path, text, (size_t)len, err);
    free(text);
    return rc;
}

int mu_conf_load_live(const char *conf_file, const char *home, const char *etc,
                      struct mu_conf *conf, struct mu_err *err)
{
    char path[4096];

    if (conf_file && conf_file[0])
        snprintf(path, sizeof path, "%s", conf_file);
    else
        snprintf(path, sizeof path, "%s/.nccl.conf", home ? home : "");
    if (((conf_file && conf_file[0]) || home) && add_file(path, conf, err) < 0)
        return -1;
    return add_file(etc, conf, err);
}
