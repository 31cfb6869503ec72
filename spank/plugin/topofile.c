/* SPDX-License-Identifier: BSD-3-Clause */
/* topofile.c - an NCCL topology file for the tasks: read and checked by a child with no
 * rights but the user's, copied once per node to where every task reads the same bytes,
 * removed when the step ends.
 *
 *   topo=FILE   the user's file
 *   topo=auto   the site's topology= when it is an NCCL file and this is a virtual
 *               machine: there the PCI tree that NCCL reads is not the real one
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

/* What the child says before it sends the bytes. */
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

static bool write_all(int fd, const void *data, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = write(fd, (const char *)data + done, len - done);

        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

/* In the child: look at the user's file, whose path is `arg`. */
static int look(void *arg, int index, int fd)
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
    if (write_all(fd, &v, sizeof v) && v.len)
        write_all(fd, text, v.len);
    return 0;
}

/* What the child answers in time: its verdict and, into *data, the bytes. */
static bool answer(const struct mu_children *child, struct verdict *v, char **data)
{
    double deadline = mu_clock_s() + DEADLINE_S;

    if (mu_children_read(child, v, sizeof *v, deadline) != (ssize_t)sizeof *v)
        return false;
    if (v->len == 0)
        return true;
    *data = v->len <= FILE_MAX ? malloc(v->len) : NULL;
    return *data && mu_children_read(child, *data, v->len, deadline) == (ssize_t)v->len;
}

/* The checked bytes of a file of the user's; the caller frees *text. */
static int fetch(const char *path, char **text, size_t *len, struct mu_err *err)
{
    struct mu_children child;
    struct verdict v = { 0 };
    char *data = NULL;
    int rc = -1;

    if (mu_children_start(&child, 1, look, (char *)(uintptr_t)path, err) < 0)
        mu_err_context(err, "%s", path);
    else if (!answer(&child, &v, &data))
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

/* A folder of the user's for this step, and the file in it; the descriptor of the
 * folder is kept, so that removing cannot be led elsewhere.
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
        return mu_err_set(err, errno, "no folder in %s: %s", tmpdir, strerror(errno));
    }
    t->owner = geteuid();
    t->dirfd = open(t->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (t->dirfd >= 0)
        fd = openat(t->dirfd, FILE_NAME,
                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
    if (fd < 0 || !write_all(fd, text, len)) {
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

/* The file to give out, NULL for none; *reason says why. */
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
        "the site states the layout of this virtual machine, whose PCI tree hides it";
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
        mu_info(st,
                "%s is not given to NCCL: this platform brings a topology of its own",
                from);
        return false;
    }
    if (st->opts.mode == MU_MODE_DRY_RUN) {
        *file = from; /* shown, not copied */
        return true;
    }
    if (fetch(from, &text, &len, &err) < 0 ||
        place(st, request->tmpdir, text, len, &err) < 0) {
        /* The site's own file: users cannot mend it, so once for a job is enough. */
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

/* Called as root at the end of the step: with the user's id, through the descriptor. */
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
            slurm_error("muster: cannot go back to user %d", (int)before);
    }
    if (t->dirfd >= 0)
        close(t->dirfd);
    *t = (struct mu_topofile){ .dirfd = -1 };
}
