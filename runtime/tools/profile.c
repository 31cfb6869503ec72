/* SPDX-License-Identifier: BSD-3-Clause */
/* profile.c - reads ledger files */
#include "runtime/tools/profile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
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
static int add_file(struct mu_profile *p, const char *path, bool found, FILE *complain)
{
    struct mu_profile_file f = { .path = strdup(path), .found = found }, *more;
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

    return !p->job || (strncmp(name, p->job, n) == 0 &&
                       (name[n] == '-' || (name[n] == '.' && !strchr(p->job, '.'))));
}

static int add_path(struct mu_profile *p, const char *path, FILE *complain)
{
    struct dirent **entry;
    char name[4096];
    int n = scandir(path, &entry, is_ledger, versionsort), wanted = 0, rc = 0;

    if (n < 0)
        return add_file(p, path, false, complain);
    if (n == 0) {
        fprintf(complain, "muster report: %s: no file in this folder ends in %s\n",
                path, MU_LEDGER_SUFFIX);
        p->faults++;
    }
    for (int i = 0; i < n; i++) {
        if (is_wanted(p, entry[i]->d_name) && ++wanted && rc == 0 &&
            snprintf(name, sizeof name, "%s/%s", path, entry[i]->d_name) <
                (int)sizeof name)
            rc = add_file(p, name, true, complain);
        free(entry[i]);
    }
    free(entry);
    if (n > 0 && wanted == 0) {
        fprintf(complain, "muster report: %s: no ledger in this folder is of job %s\n",
                path, p->job);
        p->faults++;
    }
    return rc;
}

/* ---- Jobs ------------------------------------------------------------------------ */

/* The first file of the same job among those that folders have. */
static bool is_first_of_job(const struct mu_profile *p, int file)
{
    for (int i = 0; i < file; i++)
        if (p->files[i].found &&
            strcmp(p->files[i].head->job, p->files[file].head->job) == 0)
            return false;
    return p->files[file].found;
}

/* A folder often has the ledgers of earlier jobs too. The job that began last stays,
 * and so does a file that was named.
 */
static void keep_last_job(struct mu_profile *p, FILE *complain)
{
    int jobs = 0, last = -1, kept = 0;
    const char *other = "";
    char job[sizeof p->files->head->job];

    for (int i = 0; i < p->nfiles; i++) {
        jobs += is_first_of_job(p, i);
        if (p->files[i].found && (last < 0 || p->files[i].head->opened_real >
                                                  p->files[last].head->opened_real))
            last = i;
    }
    if (jobs < 2)
        return;
    mu_copy(job, sizeof job, p->files[last].head->job);
    for (int i = 0; i < p->nfiles; i++)
        if (p->files[i].found && strcmp(p->files[i].head->job, job) != 0 && !*other)
            other = p->files[i].head->job;
    fprintf(complain,
            "muster report: ledgers of %d jobs are here, %s%s began last: ", jobs,
            *job ? "and job " : "and the one without a number", job);
    fprintf(complain, "only it is shown; --job %s shows another\n", other);
    for (int i = 0; i < p->nfiles; i++) {
        if (p->files[i].found && strcmp(p->files[i].head->job, job) != 0)
            unmap_file(&p->files[i]);
        else
            p->files[kept++] = p->files[i];
    }
    p->nfiles = kept;
}

/* ---- All ------------------------------------------------------------------------- */

int mu_profile_load(struct mu_profile *p, char **paths, int n, const char *job,
                    FILE *complain)
{
    return mu_profile_load_last(p, paths, n, job, 0, complain);
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
    keep_last_job(p, complain);
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
