/* SPDX-License-Identifier: BSD-3-Clause */
/* topofile.c - an NCCL topology file for the tasks: a child with only the user's rights
 * reads and checks it. It is copied once per node, so that all tasks read the same
 * bytes, and removed when the step ends.
 *
 *   topo=FILE   the user's file
 *   topo=auto   the site's topology= if it is an NCCL file and this is a virtual
 *               machine, where NCCL reads a PCI tree that is not the real one
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "spank/hw/io/child.h"
#include "spank/hw/load/locality.h"
#include "spank/hw/machine/machine.h"
#include "spank/hw/machine/sysfs.h"
#include "spank/plugin/plugin.h"

#define FILE_MAX (1 << 20)
#define FILE_NAME "nccl-topology.xml"
#define DEADLINE_S 2

/* What the child sends before the bytes of the file. */
struct verdict {
    int error; /* errno of reading, 0 read */
    bool parsable;
    int errors;
    char first[400]; /* the first error, with its line */
    size_t len;
};

static void keep_first(void *arg, const struct mu_nccl_finding *finding)
{
    struct verdict *v = arg;

    if (finding->level == MU_NCCL_ERROR && !v->first[0])
        snprintf(v->first, sizeof v->first, "line %d: %s", finding->line,
                 finding->text);
}

/* In the child: reads, checks and sends the user's file, whose path is `arg`. */
static int read_and_check(void *arg, int index, int fd)
{
    const char *path = arg;
    struct mu_nccl_verdict checked;
    struct verdict v = { 0 };
    struct mu_err err = { 0 };
    char *text = NULL;

    if (mu_read_file(path, &text, &v.len, &err) < 0) {
        v.error = err.code ? err.code : EIO;
        mu_copy(v.first, sizeof v.first, err.text);
    } else if (v.len > FILE_MAX) {
        v.len = 0;
        mu_copy(v.first, sizeof v.first, "it is larger than 1 MiB");
    } else {
        mu_nccl_check(text, v.len, NULL, false, keep_first, &v, &checked);
        v.parsable = checked.parsable;
        v.errors = checked.errors;
    }
    if (mu_child_write(fd, &v, sizeof v) && v.len)
        mu_child_write(fd, text, v.len);
    return 0;
}

/* Receives the child's verdict and, into *data, the bytes, within DEADLINE_S. */
static bool receive(const struct mu_children *child, struct verdict *v, char **data)
{
    double deadline = mu_clock_s() + DEADLINE_S;

    if (mu_children_read(child, v, sizeof *v, deadline) != (ssize_t)sizeof *v)
        return false;
    if (v->len == 0)
        return true;
    *data = v->len <= FILE_MAX ? malloc(v->len) : NULL;
    return *data && mu_children_read(child, *data, v->len, deadline) == (ssize_t)v->len;
}

/* Reads and checks a file of the user; the caller frees *text. */
static int fetch(const char *path, char **text, size_t *len, struct mu_err *err)
{
    struct mu_children child;
    struct verdict v = { 0 };
    char *data = NULL;
    int rc = -1;

    if (mu_children_start(&child, 1, read_and_check, (char *)(uintptr_t)path, err) < 0)
        mu_err_context(err, "%s", path);
    else if (!receive(&child, &v, &data))
        mu_err_set(err, ETIMEDOUT, "%s was not read within %d s", path, DEADLINE_S);
    else if (v.error)
        mu_err_set(err, v.error, "%s", v.first);
    else if (!v.parsable || v.errors)
        mu_err_set(err, EINVAL, "%s fails the check (muster topo --check): %s", path,
                   v.first);
    else
        rc = 0;
    mu_children_end(&child, 0);
    if (rc == 0) {
        *text = data;
        *len = v.len;
    } else {
        free(data);
    }
    return rc;
}

/* Makes a folder for this step, owned by the user, and writes the file there. The open
 * descriptor of the folder protects the removal from a replaced path.
 */
static int place(struct mu_state *st, const char *tmpdir, const char *text, size_t len,
                 struct mu_err *err)
{
    struct mu_topofile *t = &st->topofile;
    int fd = -1;

    snprintf(t->dir, sizeof t->dir, "%.900s/muster.%u.%u.XXXXXX", tmpdir, st->step.job,
             st->step.step);
    if (!mkdtemp(t->dir)) {
        t->dir[0] = '\0';
        return mu_err_set(err, errno, "cannot make a folder in %s: %s", tmpdir,
                          strerror(errno));
    }
    t->owner = geteuid();
    t->dirfd = open(t->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (t->dirfd >= 0)
        fd = openat(t->dirfd, FILE_NAME,
                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
    if (fd < 0 || !mu_child_write(fd, text, len)) {
        mu_err_set(err, errno, "%s/%s: %s", t->dir, FILE_NAME, strerror(errno));
        if (fd >= 0)
            close(fd);
        mu_topofile_remove(st);
        return -1;
    }
    close(fd);
    snprintf(t->path, sizeof t->path, "%s/%s", t->dir, FILE_NAME);
    return 0;
}

/* The file for the tasks and the reason for it; NULL: none. */
static const char *choose(const struct mu_state *st, const char **reason)
{
    const char *ext = strrchr(st->site.topology, '.');

    *reason = NULL;
    if (st->opts.topo == MU_TOPO_FILE) {
        *reason = "topo= names it";
        return st->opts.topo_file;
    }
    if (st->opts.topo != MU_TOPO_AUTO || !ext || strcmp(ext, ".xml") != 0 ||
        st->simulated || strcmp(st->node.source, "nccl xml") != 0 ||
        !mu_sysfs_virtual(""))
        return NULL;
    *reason =
        "the site's topology= describes this virtual machine, its PCI tree does not";
    return st->site.topology;
}

bool mu_topofile_prepare(void *arg, const char *platform, const char **file,
                         const char **reason)
{
    struct mu_topofile_request *request = arg;
    struct mu_state *st = request->st;
    struct mu_err err = { 0 };
    char *text = NULL;
    size_t len = 0;
    const char *from = choose(st, reason);

    if (!from)
        return false;
    if (strncmp(platform, "aws-", 4) == 0 || access(MU_TOPOLOGYD_FILE, F_OK) == 0) {
        mu_info(st, "%s is not passed to NCCL: this platform provides another topology",
                from);
        return false;
    }
    if (st->opts.mode == MU_MODE_DRY_RUN) {
        *file = from; /* printed, not copied */
        return true;
    }
    if (fetch(from, &text, &len, &err) < 0 ||
        place(st, request->tmpdir, text, len, &err) < 0) {
        /* Warn once per job about the site's file: only an administrator can fix it. */
        if (st->opts.topo == MU_TOPO_FILE || st->step.step == 0 ||
            st->opts.verbose == MU_FLAG_YES)
            mu_warn(st, "NCCL_TOPO_FILE is not set: %s", err.text);
        free(text);
        return false;
    }
    free(text);
    *file = st->topofile.path;
    return true;
}

/* Root calls this at the end of the step; it removes as the user, by descriptor. */
void mu_topofile_remove(struct mu_state *st)
{
    struct mu_topofile *t = &st->topofile;
    uid_t before = geteuid();

    if (!t->dir[0])
        return;
    if (seteuid(t->owner) == 0) {
        if (t->dirfd >= 0)
            unlinkat(t->dirfd, FILE_NAME, 0);
        rmdir(t->dir);
        if (seteuid(before) < 0)
            slurm_error("muster: cannot switch back to user %d", (int)before);
    }
    if (t->dirfd >= 0)
        close(t->dirfd);
    *t = (struct mu_topofile){ .dirfd = -1 };
}
