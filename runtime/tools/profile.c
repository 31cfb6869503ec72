/* SPDX-License-Identifier: BSD-3-Clause */
/* profile.c - reads ledger files */
#include "runtime/tools/profile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/parse.h"

/* ---- Files ----------------------------------------------------------------------- */

static int map_file(struct mu_profile_file *f, struct mu_err *err)
{
    int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || (!S_ISREG(st.st_mode) && (errno = EINVAL))) {
        mu_err_set(err, errno, "%s: the file cannot be read: %s", f->path,
                   strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    f->size = (size_t)st.st_size;
    f->image = f->size ? mmap(NULL, f->size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    close(fd);
    if (f->image == MAP_FAILED) {
        f->image = NULL;
        return mu_err_set(err, errno, "%s: the file cannot be mapped", f->path);
    }
    f->head = f->image;
    if (!f->image)
        return mu_err_set(err, EINVAL, "%s: the file is empty", f->path);
    return mu_ledger_check(f->image, f->size, f->path, err);
}

static void unmap_file(struct mu_profile_file *f)
{
    if (f->image)
        munmap(f->image, f->size);
    free(f->path);
}

/* The file joins the list, or its fault is printed. */
static int add_file(struct mu_profile *p, const char *path, FILE *complain)
{
    struct mu_profile_file f = { .path = strdup(path) }, *more;
    struct mu_err err = { 0 };

    more = realloc(p->files, (size_t)(p->nfiles + 1) * sizeof *more);
    if (more)
        p->files = more;
    if (!f.path || !more) {
        free(f.path);
        fputs("muster report: no memory\n", complain);
        return -1;
    }
    if (map_file(&f, &err) < 0) {
        fprintf(complain, "muster report: %s\n", err.text);
        unmap_file(&f);
        p->faults++;
        return 0;
    }
    p->files[p->nfiles++] = f;
    return 0;
}

static int is_ledger(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name), end = sizeof MU_LEDGER_SUFFIX - 1;

    return n > end && strcmp(entry->d_name + n - end, MU_LEDGER_SUFFIX) == 0;
}

/* A ledger's name begins with its job and step, "1234.0-". */
static int is_wanted(const struct mu_profile *p, const char *name)
{
    size_t n = p->job ? strlen(p->job) : 0;

    return !p->job || (strncmp(name, p->job, n) == 0 && name[n] == '.');
}

static int add_path(struct mu_profile *p, const char *path, FILE *complain)
{
    struct dirent **entry;
    char name[4096];
    int n = scandir(path, &entry, is_ledger, versionsort), rc = 0;

    if (n < 0)
        return add_file(p, path, complain);
    if (n == 0) {
        fprintf(complain, "muster report: %s: no file in this folder ends in %s\n",
                path, MU_LEDGER_SUFFIX);
        p->faults++;
    }
    for (int i = 0; i < n; i++) {
        if (is_wanted(p, entry[i]->d_name) && rc == 0 &&
            snprintf(name, sizeof name, "%s/%s", path, entry[i]->d_name) <
                (int)sizeof name)
            rc = add_file(p, name, complain);
        free(entry[i]);
    }
    free(entry);
    return rc;
}

/* ---- All ------------------------------------------------------------------------- */

int mu_profile_load(struct mu_profile *p, char **paths, int n, FILE *complain)
{
    return mu_profile_load_last(p, paths, n, NULL, 0, complain);
}

int mu_profile_load_last(struct mu_profile *p, char **paths, int n, const char *job,
                         uint64_t last, FILE *complain)
{
    *p = (struct mu_profile){ .last = last, .job = job };
    for (int i = 0; i < n; i++)
        if (add_path(p, paths[i], complain) < 0)
            return -1;
    if (p->nfiles == 0)
        return -1;
    if (mu_profile_join(p) < 0 || mu_profile_steps_find(p) < 0) {
        fputs("muster report: no memory\n", complain);
        return -1;
    }
    mu_findings_make(p);
    return 0;
}

void mu_profile_clear(struct mu_profile *p)
{
    for (int i = 0; i < p->nfiles; i++)
        unmap_file(&p->files[i]);
    free(p->files);
    free(p->records);
    free(p->comms);
    free(p->rows);
    free(p->parts);
    free(p->steps.call);
    free(p->steps.step);
    *p = (struct mu_profile){ 0 };
}
