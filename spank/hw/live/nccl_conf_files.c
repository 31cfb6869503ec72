/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/hw/live/nccl_conf_files.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/clock.h"
#include "spank/hw/io/child.h"
#include "spank/hw/io/sysfile.h"

#define DEADLINE_S 2

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

/* In the child: sends the lines of the user's file, whose path is `arg`. */
static int send_lines(void *arg, int index, int fd)
{
    struct mu_conf conf = { 0 };
    int rc = add_file(arg, &conf, NULL);

    for (int i = 0; i < conf.n; i++)
        if (!mu_child_write(fd, &conf.line[i], sizeof conf.line[i]))
            return 1;
    return rc < 0;
}

/* The user may replace the file, or keep it on a file system that does not answer. So a
 * child opens and parses it, and only lines of NCCL's variables are received.
 */
static int add_users_file(const char *path, struct mu_conf *conf, struct mu_err *err)
{
    double deadline = mu_clock_s() + DEADLINE_S;
    struct mu_children child;
    struct mu_conf_line line;
    ssize_t got = -1;
    int rc, status;

    rc = mu_children_start(&child, 1, send_lines, (char *)(uintptr_t)path, err);
    while (rc == 0 && (got = mu_children_read(&child, &line, sizeof line, deadline)) ==
                          (ssize_t)sizeof line)
        rc = mu_conf_add_line(conf, &line, err);
    status = mu_children_end(&child, rc < 0 || got < 0 ? 0 : deadline);
    if (rc == 0 && got < 0)
        return mu_err_set(err, ETIMEDOUT, "%.400s was not read within %d s", path,
                          DEADLINE_S);
    if (rc == 0 && status != 0)
        return mu_err_set(err, E2BIG, "%.400s: more than %d variables", path,
                          MU_CONF_LINES_MAX);
    return rc;
}

int mu_conf_load_live(const char *conf_file, const char *home, const char *etc,
                      struct mu_conf *conf, struct mu_err *err)
{
    bool named = conf_file && conf_file[0];
    char path[4096];
    int rc = 0;

    if (named)
        snprintf(path, sizeof path, "%s", conf_file);
    else
        snprintf(path, sizeof path, "%s/.nccl.conf", home ? home : "");
    if (named || home)
        rc = add_users_file(path, conf, err);
    return add_file(etc, conf, rc < 0 ? NULL : err) < 0 ? -1 : rc;
}
