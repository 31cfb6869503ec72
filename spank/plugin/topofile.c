/* SPDX-License-Identifier: BSD-3-Clause */
/* topofile.c - an NCCL topology file for the tasks: a child with only the user's rights
 * reads and checks it. Another copies it once per node, so that all tasks read the same
 * bytes, and a third removes it when the step ends. A task with a /tmp of its own
 * (Slurm's job_container/tmpfs, a container) gets a copy there, which goes with that
 * /tmp.
 *
 *   topo=FILE   the user's file
 *   topo=auto   the site's topology= if it is an NCCL file and this is a virtual
 *               machine, where NCCL reads a PCI tree that is not the real one
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
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
    int parsable, errors;
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
    v->first[sizeof v->first - 1] = '\0';
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

/* What the child that makes the copy sends. */
struct copied {
    int error; /* errno, 0: the copy is there */
    char dir[1024];
};

/* In the child: makes a folder of the user, whose template is dir, and writes the file
 * there.
 */
static int make_copy(void *arg, int index, int out)
{
    const struct mu_topofile *t = arg;
    struct copied c = { 0 };
    char path[1100];
    int fd = -1;

    mu_copy(c.dir, sizeof c.dir, t->dir);
    if (!mkdtemp(c.dir))
        c.error = errno;
    snprintf(path, sizeof path, "%s/" FILE_NAME, c.dir);
    if (!c.error &&
        ((fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0444)) < 0 ||
         !mu_child_write(fd, t->text, t->len))) {
        c.error = errno ? errno : EIO;
        unlink(path);
        rmdir(c.dir);
    }
    return mu_child_write(out, &c, sizeof c) ? 0 : 1;
}

/* The ids with which mu_topofile_remove works: those of the user, for now effective. */
static bool keep_ids(struct mu_topofile *t)
{
    int n = getgroups(0, NULL);

    t->uid = geteuid();
    t->gid = getegid();
    free(t->groups);
    t->groups = n < 0 ? NULL : malloc(((size_t)n + 1) * sizeof *t->groups);
    t->ngroups = t->groups ? getgroups(n, t->groups) : -1;
    return t->ngroups >= 0;
}

/* Returns 0 or an errno. */
static int copy_in_child(struct mu_topofile *t, struct copied *c)
{
    struct mu_err err = { 0 };

    if (mu_child_ask(make_copy, t, c, sizeof *c, DEADLINE_S, &err) < 0)
        return err.code;
    c->dir[sizeof c->dir - 1] = '\0';
    return c->error;
}

/* Copies the file into a folder of this step in tmpdir, which the user chose: it may be
 * on a file system that does not answer.
 */
static int place_in(struct mu_state *st, const char *tmpdir, struct mu_err *err)
{
    struct mu_topofile *t = &st->topofile;
    struct copied c;
    int error;

    snprintf(t->dir, sizeof t->dir, "%.900s/muster.%u.%u.XXXXXX", tmpdir, st->step.job,
             st->step.step);
    error = keep_ids(t) ? copy_in_child(t, &c) : ENOMEM;
    if (error) {
        t->dir[0] = '\0';
        return mu_err_set(err, error, "cannot make a folder in %s: %s", tmpdir,
                          strerror(error));
    }
    mu_copy(t->dir, sizeof t->dir, c.dir);
    snprintf(t->path, sizeof t->path, "%s/" FILE_NAME, t->dir);
    return 0;
}

/* A TMPDIR that only the tasks have is no place for the step's copy. */
static int place(struct mu_state *st, const char *tmpdir, struct mu_err *err)
{
    return place_in(st, tmpdir, err) == 0 || place_in(st, "/tmp", NULL) == 0 ? 0 : -1;
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
    bool dry_run = st->opts.mode == MU_MODE_DRY_RUN;
    struct mu_err err = { 0 };
    const char *from = choose(st, reason);

    if (!from)
        return false;
    if (strncmp(platform, "aws-", 4) == 0 || access(MU_TOPOLOGYD_FILE, F_OK) == 0) {
        mu_info(st, "%s is not passed to NCCL: this platform provides another topology",
                from);
        return false;
    }
    if (fetch(from, &st->topofile.text, &st->topofile.len, &err) < 0 ||
        (!dry_run && place(st, request->tmpdir, &err) < 0)) {
        /* Warn once per job about the site's file: only an administrator can fix it. */
        if (st->opts.topo == MU_TOPO_FILE || st->step.step == 0 ||
            st->opts.verbose == MU_FLAG_YES)
            mu_warn(st, "NCCL_TOPO_FILE is not set: %s", err.text);
        return false;
    }
    *file = dry_run ? from : st->topofile.path;
    return true;
}

/* In the child of root: with nothing but the user's rights, as the copy was made. */
static int remove_copy(void *arg, int index, int fd)
{
    const struct mu_topofile *t = arg;

    if (geteuid() == 0 && (setgroups((size_t)t->ngroups, t->groups) < 0 ||
                           setresgid(t->gid, t->gid, t->gid) < 0 ||
                           setresuid(t->uid, t->uid, t->uid) < 0))
        return 1;
    unlink(t->path);
    return rmdir(t->dir) < 0;
}

void mu_topofile_remove(struct mu_state *st)
{
    struct mu_topofile *t = &st->topofile;
    struct mu_children child;

    if (t->dir[0] && mu_children_start(&child, 1, remove_copy, t, NULL) == 0)
        mu_children_end(&child, mu_clock_s() + DEADLINE_S);
    free(t->groups);
    free(t->text);
    *t = (struct mu_topofile){ 0 };
}

/* The value of NCCL_TOPO_FILE in the settings; NULL: Muster does not set it. */
static struct mu_setting *own_setting(struct mu_settings *settings)
{
    for (int i = 0; i < settings->n; i++)
        if (strcmp(settings->item[i].name, "NCCL_TOPO_FILE") == 0 &&
            settings->item[i].winner == MU_WINNER_MUSTER)
            return &settings->item[i];
    return NULL;
}

static void drop(struct mu_settings *settings, struct mu_setting *setting)
{
    size_t behind = (size_t)(&settings->item[settings->n] - setting) - 1;

    memmove(setting, setting + 1, behind * sizeof *setting);
    settings->n--;
}

void mu_topofile_settle(struct mu_state *st, spank_t sp, int task)
{
    struct mu_setting *setting = own_setting(&st->network.settings);
    char buf[900], gone[1100];
    const char *tmpdir = mu_folder_of(sp, buf, sizeof buf);
    struct mu_err err = { 0 };

    if (!st->have_network || !setting || !st->topofile.dir[0] ||
        access(st->topofile.path, R_OK) == 0)
        return;
    mu_copy(gone, sizeof gone, st->topofile.path);
    /* The step's own copy stays for its end. */
    st->topofile.dir[0] = '\0';
    /* Only in a folder that goes with the task: elsewhere the copy would stay. That is
     * TMPDIR, or /tmp where the task's is another than the step's.
     */
    if (place_in(st, tmpdir, &err) < 0 &&
        (strncmp(gone, "/tmp/muster.", 12) != 0 || place_in(st, "/tmp", NULL) < 0)) {
        drop(&st->network.settings, setting);
        if (task == 0)
            mu_warn(st,
                    "NCCL_TOPO_FILE is not set: the tasks do not see %s, and %s; give "
                    "topo= a file system that tasks share with the node",
                    gone, err.text);
        return;
    }
    mu_copy(setting->value, sizeof setting->value, st->topofile.path);
    if (task == 0 && st->opts.verbose == MU_FLAG_YES)
        mu_info(st, "NCCL_TOPO_FILE=%s: the tasks do not see %s", st->topofile.path,
                gone);
}
