/* SPDX-License-Identifier: BSD-3-Clause */
/* ledger_out.c - writes a process's ledger file, mapped into memory */
#include "runtime/ledger/ledger_out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"

#define RECORDS 131072 /* 16 MiB */
#define PATH_MOST 4096
#define NAMES_MOST 100 /* a requeued job has the same name again */

/* ---- The file -------------------------------------------------------------------- */

static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

/* Several ranks of a launcher share SLURM_PROCID, but not RANK. */
static int own_rank(void)
{
    const char *text = variable("RANK");
    struct mu_err err = { 0 };
    long rank;

    if (!text)
        text = variable("SLURM_PROCID");
    return text && mu_parse_int("rank", text, 0, 1 << 30, &rank, &err) == 0 ? (int)rank
                                                                            : -1;
}

/* A step of a few buckets is about as many calls. */
static void fill_buckets(struct mu_ledger_head *head, uint32_t records)
{
    uint32_t half = records / 2;

    head->buckets_at = mu_ledger_file_size(records);
    head->bucket_records = half < MU_LEDGER_RECORDS_MIN ? MU_LEDGER_RECORDS_MIN : half;
    head->bucket_bytes = sizeof(struct mu_ledger_bucket);
}

static void fill_head(struct mu_ledger_head *head, uint32_t records, bool buckets)
{
    const char *job = variable("SLURM_JOB_ID"), *step = variable("SLURM_STEP_ID");

    *head = (struct mu_ledger_head){ .magic = MU_LEDGER_MAGIC,
                                     .order = 0x01020304,
                                     .records = records,
                                     .rank = own_rank(),
                                     .pid = (int32_t)getpid() };
    head->opened_monotonic = (uint64_t)mu_clock_ns();
    head->opened_real = (uint64_t)mu_time_ns(mu_time_of(CLOCK_REALTIME));
    if (buckets)
        fill_buckets(head, records);
    gethostname(head->host, sizeof head->host - 1);
    mu_ledger_place(head, variable("MUSTER_PLAN"), "/sys");
    if (job)
        snprintf(head->job, sizeof head->job, "%.15s.%.15s", job, step ? step : "0");
}

/* A name that no file has yet. */
static int create_file(const char *folder, const struct mu_ledger_head *head,
                       char *path, struct mu_err *err)
{
    char rank[16] = "";
    int fd = -1;

    if (mkdir(folder, 0777) < 0 && errno != EEXIST)
        return mu_err_set(err, errno, "the folder %s cannot be made: %s", folder,
                          strerror(errno));
    if (head->rank >= 0)
        snprintf(rank, sizeof rank, "-rank%d", head->rank);
    for (int i = 1; fd < 0 && i <= NAMES_MOST; i++) {
        char again[8] = "";

        if (i > 1)
            snprintf(again, sizeof again, "-%d", i);
        if (snprintf(path, PATH_MOST, "%s/%s%s%s-%s-%d%s%s", folder, head->job,
                     head->job[0] ? "" : "run", rank, head->host, head->pid, again,
                     MU_LEDGER_SUFFIX) >= PATH_MOST)
            return mu_err_set(err, ENAMETOOLONG, "the folder's name is too long");
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0)
        return mu_err_set(err, errno, "%s cannot be made: %s", path, strerror(errno));
    return fd;
}

int mu_ledger_open(struct mu_ledger_out *out, const char *folder, uint32_t records,
                   bool buckets, struct mu_err *err)
{
    struct mu_ledger_head head;
    size_t size;
    char path[PATH_MOST];
    void *image;
    int fd, rc;

    fill_head(&head, records, buckets);
    size = mu_ledger_image_size(&head);
    fd = create_file(folder, &head, path, err);
    if (fd < 0)
        return -1;
    /* A hole that the disk cannot fill would be a SIGBUS in the training. */
    rc = posix_fallocate(fd, 0, (off_t)size);
    image = rc == 0 ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                    : MAP_FAILED;
    if (rc == 0 && image == MAP_FAILED)
        rc = errno;
    close(fd);
    if (rc != 0) {
        unlink(path);
        return mu_err_set(err, rc, "%s: %zu bytes cannot be reserved: %s", path, size,
                          strerror(rc));
    }
    *out = (struct mu_ledger_out){ image, mu_ledger_comms(image),
                                   mu_ledger_calls(image), NULL };
    if (buckets)
        out->buckets = (void *)((char *)image + head.buckets_at);
    *out->head = head;
    return 0;
}

int mu_ledger_open_asked(struct mu_ledger_out *out, bool buckets, struct mu_err *err)
{
    const char *folder = variable("MUSTER_PROFILE");
    const char *text = variable("MUSTER_PROFILE_RECORDS");
    long want = RECORDS;
    uint32_t records = MU_LEDGER_RECORDS_MIN;

    if (text && mu_parse_int("MUSTER_PROFILE_RECORDS", text, MU_LEDGER_RECORDS_MIN,
                             MU_LEDGER_RECORDS_MAX, &want, err) < 0)
        return -1;
    while (records < want)
        records *= 2;
    return mu_ledger_open(out, folder ? folder : ".", records, buckets, err);
}

void mu_ledger_close(struct mu_ledger_out *out)
{
    if (out->head)
        munmap(out->head, mu_ledger_image_size(out->head));
    *out = (struct mu_ledger_out){ 0 };
}

struct mu_ledger_comm *mu_ledger_comm(struct mu_ledger_out *out, uint64_t hash,
                                      const char *name, int rank, int size, int nodes)
{
    uint32_t at = __atomic_fetch_add(&out->head->comms, 1, __ATOMIC_RELAXED);
    struct mu_ledger_comm *comm;

    if (at >= MU_LEDGER_COMMS - 1) {
        at = MU_LEDGER_COMMS - 1;
        hash = UINT64_MAX;
        name = "(others)";
        rank = size = nodes = 0;
    }
    comm = &out->comms[at];
    mu_copy(comm->name, sizeof comm->name, name ? name : "");
    comm->rank = rank;
    comm->size = size;
    comm->nodes = nodes;
    comm->hash = hash;
    return comm;
}

/* ---- Handles --------------------------------------------------------------------- */

/* A record's address, in whose lowest seven bits are the lap of the ring and whether it
 * is a channel's. So a handle from an earlier lap is noticed without a table.
 */
#define LAPS 64u
#define HANDLE_BITS ((uintptr_t)127)

static uintptr_t lap_of(const struct mu_ledger_out *out, uint64_t number)
{
    return (uintptr_t)((number - 1) / out->head->records % LAPS);
}

static void *handle_of(const struct mu_ledger_out *out, struct mu_ledger_call *call,
                       uint64_t number, bool channel)
{
    return (void *)((uintptr_t)call | lap_of(out, number) << 1 | channel);
}

/* NULL: the record is another call's by now. */
static struct mu_ledger_call *call_of(const struct mu_ledger_out *out, void *handle)
{
    uintptr_t bits = (uintptr_t)handle & HANDLE_BITS;
    struct mu_ledger_call *call;
    uint64_t number;

    if (!handle || !out->head)
        return NULL;
    call = (struct mu_ledger_call *)((uintptr_t)handle & ~HANDLE_BITS);
    number = __atomic_load_n(&call->number, __ATOMIC_ACQUIRE);
    return number && lap_of(out, number) == bits >> 1 ? call : NULL;
}

/* ---- Calls ----------------------------------------------------------------------- */

void *mu_ledger_begin(struct mu_ledger_out *out, const struct mu_ledger_call *what)
{
    uint64_t number = __atomic_add_fetch(&out->head->calls, 1, __ATOMIC_RELAXED);
    struct mu_ledger_call *call = &out->calls[(number - 1) & (out->head->records - 1)];

    /* A reader takes the record only with its number. */
    __atomic_store_n(&call->number, 0, __ATOMIC_RELEASE);
    *call = *what;
    call->begin = (uint64_t)mu_clock_ns();
    __atomic_store_n(&call->number, number, __ATOMIC_RELEASE);
    return handle_of(out, call, number, false);
}

static void keep_least(uint64_t *least, uint64_t value)
{
    uint64_t old = __atomic_load_n(least, __ATOMIC_RELAXED);

    while ((old == 0 || value < old) &&
           !__atomic_compare_exchange_n(least, &old, value, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
        ;
}

static void keep_most(uint64_t *most, uint64_t value)
{
    uint64_t old = __atomic_load_n(most, __ATOMIC_RELAXED);

    while (value > old &&
           !__atomic_compare_exchange_n(most, &old, value, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
        ;
}

void *mu_ledger_channel(struct mu_ledger_out *out, void *handle, uint64_t when)
{
    struct mu_ledger_call *call = call_of(out, handle);

    if (!call)
        return NULL;
    keep_least(&call->gpu_begin, when ? when : (uint64_t)mu_clock_ns());
    __atomic_add_fetch(&call->began, 1, __ATOMIC_RELAXED);
    return (void *)((uintptr_t)handle | 1);
}

void mu_ledger_channel_time(struct mu_ledger_out *out, void *handle, uint64_t when)
{
    struct mu_ledger_call *call = call_of(out, handle);

    if (call && ((uintptr_t)handle & 1))
        keep_most(&call->gpu_end, when ? when : (uint64_t)mu_clock_ns());
}

void mu_ledger_end(struct mu_ledger_out *out, void *handle)
{
    struct mu_ledger_call *call = call_of(out, handle);

    if (!call)
        return;
    if ((uintptr_t)handle & 1)
        __atomic_add_fetch(&call->ended, 1, __ATOMIC_RELAXED);
    else
        __atomic_store_n(&call->end, (uint64_t)mu_clock_ns(), __ATOMIC_RELAXED);
}

void mu_ledger_add_bucket(struct mu_ledger_out *out,
                          const struct mu_ledger_bucket *what)
{
    uint64_t number = __atomic_add_fetch(&out->head->buckets, 1, __ATOMIC_RELAXED);
    struct mu_ledger_bucket *slot =
        &out->buckets[(number - 1) & (out->head->bucket_records - 1)];

    __atomic_store_n(&slot->number, 0, __ATOMIC_RELEASE);
    *slot = *what; /* its number is 0 */
    __atomic_store_n(&slot->number, number, __ATOMIC_RELEASE);
}

void mu_ledger_add_to_step(struct mu_ledger_out *out, struct mu_ledger_bucket *step,
                           struct mu_ledger_bucket *what)
{
    what->begin = step->begin;
    what->comm = step->comm;
    step->ready = mu_ledger_earlier(step->ready, what->ready);
    step->launched = mu_ledger_earlier(step->launched, what->launched);
    step->started = mu_ledger_earlier(step->started, what->started);
    step->ended = mu_ledger_later(step->ended, what->ended);
    step->bytes += what->bytes;
    mu_ledger_add_bucket(out, what);
}
