/* SPDX-License-Identifier: BSD-3-Clause */
/* profile.c - reads ledger files */
#include "runtime/tools/profile.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/array.h"
#include "runtime/base/fresh.h"
#include "runtime/base/parse.h"
#include "runtime/tools/samples.h"

/* ---- Files ----------------------------------------------------------------------- */

#define PART 65536

/* Bytes from..to of the file, to their place in the image. Zeros are left out: a hole,
 * or records that were never written, takes no memory.
 */
static bool read_part(int fd, void *image, size_t from, size_t to)
{
    char part[PART];

    while (from < to) {
        ssize_t n = pread(fd, part, to - from < PART ? to - from : PART, (off_t)from);

        if (n == 0)
            errno = EIO; /* the file has been truncated */
        if (n <= 0)
            return false;
        if (part[0] || memcmp(part, part + 1, (size_t)n - 1) != 0)
            memcpy((char *)image + from, part, (size_t)n);
        from += (size_t)n;
    }
    return true;
}

/* The communicators and the last calls; 0: all that the rings have, also of buckets. */
static bool read_records(int fd, const struct mu_ledger_head *head, void *image,
                         uint64_t last)
{
    const uint64_t calls = head->calls, records = head->records;
    uint64_t n = calls < records ? calls : records;

    if (last > 0 && last < n)
        n = last;
    if (!read_part(fd, image, sizeof *head, mu_ledger_call_at(0)))
        return false;
    for (uint64_t at = calls - n, part; at < calls; at += part) {
        uint64_t slot = at % records;

        part = records - slot < calls - at ? records - slot : calls - at;
        if (!read_part(fd, image, mu_ledger_call_at(slot),
                       mu_ledger_call_at(slot + part)))
            return false;
    }
    return last > 0 || !head->buckets_at ||
           read_part(fd, image, head->buckets_at, mu_ledger_image_size(head));
}

/* Where only some calls have times of the GPU, these are moved to the host's clock: so
 * that one kernel begins with its launch, and none before.
 */
static void place_clock(void *image, uint64_t records)
{
    struct mu_ledger_call *call = mu_ledger_calls(image);
    int64_t ahead = INT64_MAX;
    bool mixed = false;

    for (uint64_t i = 0; i < records; i++) {
        int64_t by = (int64_t)(call[i].gpu_begin - call[i].begin);

        mixed = mixed || (call[i].number && call[i].untimed);
        if (call[i].number && call[i].gpu_begin && by < ahead)
            ahead = by;
    }
    for (uint64_t i = 0; mixed && i < records; i++) {
        if (!call[i].gpu_begin)
            continue;
        call[i].gpu_begin -= (uint64_t)ahead;
        call[i].gpu_end -= call[i].gpu_end ? (uint64_t)ahead : 0;
    }
}

/* The file is copied: another user may own it, change it while it is read, and shorten
 * it, which is a SIGBUS for who has mapped it. The rest of the image stays zero.
 */
static int read_open(int fd, struct mu_profile_file *f, uint64_t last,
                     struct mu_err *err)
{
    struct mu_ledger_head head = { 0 };
    struct stat st;
    ssize_t n;

    if (fstat(fd, &st) < 0 || (n = pread(fd, &head, sizeof head, 0)) < 0)
        return mu_err_set(err, errno, "%s: the file cannot be read: %s", f->path,
                          strerror(errno));
    if (n == 0)
        return mu_err_set(err, EINVAL, "%s: the file is empty", f->path);
    if (mu_ledger_check_head(&head,
                             n < (ssize_t)sizeof head ? (size_t)n : (size_t)st.st_size,
                             f->path, err) < 0)
        return -1;
    f->size = mu_ledger_image_size(&head);
    f->image = mmap(NULL, f->size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->image == MAP_FAILED) {
        f->image = NULL;
        return mu_err_set(err, errno, "%s: no memory for the file", f->path);
    }
    memcpy(f->image, &head, sizeof head);
    f->head = f->image;
    if (!read_records(fd, &head, f->image, last))
        return mu_err_set(err, errno, "%s: the file cannot be read: %s", f->path,
                          strerror(errno));
    if (mu_ledger_check_records(f->image, f->path, err) < 0)
        return -1;
    place_clock(f->image, head.records);
    return 0;
}

static int read_file(struct mu_profile_file *f, uint64_t last, struct mu_err *err)
{
    int fd = mu_regular_open(f->path, err), rc;

    if (fd < 0)
        return -1;
    rc = read_open(fd, f, last, err);
    close(fd);
    return rc;
}

static void free_file(struct mu_profile_file *f)
{
    if (f->image)
        munmap(f->image, f->size);
    free(f->path);
}

/* The file joins the list, or its fault is printed. */
static int add_file(struct mu_profile *p, const char *path, bool found, FILE *complain)
{
    struct mu_profile_file f = { .path = strdup(path), .found = found };
    struct mu_err err = { 0 };

    if (!f.path || mu_array_extend(&p->files, sizeof f, p->nfiles, p->nfiles + 1) < 0) {
        free(f.path);
        fputs("muster report: no memory\n", complain);
        return -1;
    }
    if (read_file(&f, p->last, &err) < 0) {
        fprintf(complain, "muster report: %s\n", err.text);
        free_file(&f);
        p->faults++;
        return 0;
    }
    p->files[p->nfiles++] = f;
    return 0;
}

static int ends_in(const char *name, const char *suffix)
{
    size_t n = strlen(name), end = strlen(suffix);

    return n > end && strcmp(name + n - end, suffix) == 0;
}

static int is_ledger(const struct dirent *entry)
{
    return ends_in(entry->d_name, MU_LEDGER_SUFFIX);
}

static int is_samples(const struct dirent *entry)
{
    return ends_in(entry->d_name, MU_SAMPLES_SUFFIX);
}

static void add_samples(struct mu_profile *p, const char *path, FILE *complain)
{
    struct mu_err err = { 0 };

    if (mu_samples_read(path, &p->samples, &p->nsamples, &err) == 0)
        return;
    fprintf(complain, "muster report: %s\n", err.text);
    p->faults++;
}

/* They are of nodes and not of a job: their times decide which of them matter. */
static void add_samples_of(struct mu_profile *p, const char *folder, FILE *complain)
{
    struct dirent **entry;
    char name[4096];
    int n = scandir(folder, &entry, is_samples, versionsort);

    for (int i = 0; i < n; i++) {
        if (snprintf(name, sizeof name, "%s/%s", folder, entry[i]->d_name) <
            (int)sizeof name)
            add_samples(p, name, complain);
        free(entry[i]);
    }
    if (n >= 0)
        free(entry);
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

    if (n < 0 && ends_in(path, MU_SAMPLES_SUFFIX)) {
        add_samples(p, path, complain);
        return 0;
    }
    if (n < 0)
        return add_file(p, path, false, complain);
    if (!p->last)
        add_samples_of(p, path, complain);
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
            free_file(&p->files[i]);
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
    if (p->nfiles == 0) {
        if (p->faults == 0)
            fputs("muster report: no ledger is among the files\n", complain);
        return -1;
    }
    keep_last_job(p, complain);
    mu_samples_sort(p->samples, p->nsamples);
    if (mu_profile_join(p) < 0 || mu_profile_steps_find(p) < 0 ||
        (!last && mu_profile_buckets_find(p) < 0)) {
        fputs("muster report: no memory\n", complain);
        return -1;
    }
    mu_findings_make(p);
    return 0;
}

void mu_profile_clear(struct mu_profile *p)
{
    for (int i = 0; i < p->nfiles; i++)
        free_file(&p->files[i]);
    free(p->files);
    free(p->records);
    free(p->comms);
    free(p->rows);
    free(p->samples);
    free(p->buckets);
    free(p->parts);
    free(p->steps.call);
    free(p->steps.step);
    *p = (struct mu_profile){ 0 };
}
