/* SPDX-License-Identifier: BSD-3-Clause */
/* ledger_file.c - layout, check and arithmetic of a ledger file */
#include "runtime/core/ledger_file.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/base/parse.h"

#define BUCKET_BYTES_MAX 512
#define COMMS_AT sizeof(struct mu_ledger_head)
#define CALLS_AT (COMMS_AT + MU_LEDGER_COMMS * sizeof(struct mu_ledger_comm))

size_t mu_ledger_file_size(uint32_t records)
{
    return CALLS_AT + records * sizeof(struct mu_ledger_call);
}

struct mu_ledger_comm *mu_ledger_comms(void *image)
{
    return (struct mu_ledger_comm *)((char *)image + COMMS_AT);
}

struct mu_ledger_call *mu_ledger_calls(void *image)
{
    return (struct mu_ledger_call *)((char *)image + CALLS_AT);
}

uint64_t mu_ledger_oldest_bucket(const struct mu_ledger_head *head, uint64_t *end)
{
    *end = __atomic_load_n(&head->buckets, __ATOMIC_ACQUIRE);
    if (!head->buckets_at)
        return *end;
    return *end > head->bucket_records ? *end - head->bucket_records : 0;
}

bool mu_ledger_bucket(const void *image, uint64_t n, struct mu_ledger_bucket *out)
{
    const struct mu_ledger_head *head = image;
    const char *at;

    if (!head->buckets_at)
        return false;
    at = (const char *)image + head->buckets_at +
         (n & (head->bucket_records - 1)) * head->bucket_bytes;
    memcpy(out, at, sizeof *out);
    return out->number == n + 1 && out->comm < MU_LEDGER_COMMS;
}

size_t mu_ledger_call_at(uint64_t slot)
{
    return CALLS_AT + slot * sizeof(struct mu_ledger_call);
}

/* A name is read as a string, and printed. */
static bool clean(char *name, size_t size)
{
    if (!memchr(name, 0, size))
        return false;
    mu_make_printable(name);
    return true;
}

#define CLEAN(name) clean(name, sizeof(name))

static bool names_are_sound(struct mu_ledger_head *head)
{
    struct mu_ledger_comm *comm = mu_ledger_comms(head);
    struct mu_ledger_call *call = mu_ledger_calls(head);

    if (!CLEAN(head->host) || !CLEAN(head->job) || !CLEAN(head->gpu) ||
        !CLEAN(head->nic))
        return false;
    for (int i = 0; i < MU_LEDGER_COMMS; i++)
        if (!CLEAN(comm[i].name))
            return false;
    for (uint32_t i = 0; i < head->records; i++)
        if (!CLEAN(call[i].func) || !CLEAN(call[i].algo) || !CLEAN(call[i].proto) ||
            call[i].comm >= MU_LEDGER_COMMS)
            return false;
    return true;
}

static bool is_ring(uint32_t records)
{
    return records >= MU_LEDGER_RECORDS_MIN && records <= MU_LEDGER_RECORDS_MAX &&
           (records & (records - 1)) == 0;
}

/* A size decides how much memory a reader takes. */
static int comms_are_sound(const struct mu_ledger_head *head, const char *path,
                           struct mu_err *err)
{
    const struct mu_ledger_comm *comm = mu_ledger_comms((void *)head);

    for (int i = 0; i < MU_LEDGER_COMMS; i++)
        if (comm[i].rank < -1 || comm[i].rank >= MU_LEDGER_RANKS_MAX ||
            comm[i].size < 0 || comm[i].size > MU_LEDGER_RANKS_MAX)
            return mu_err_set(err, EINVAL,
                              "%s: communicator %d is damaged (rank %d of %d)", path, i,
                              comm[i].rank, comm[i].size);
    return 0;
}

size_t mu_ledger_image_size(const struct mu_ledger_head *head)
{
    return head->buckets_at
               ? head->buckets_at + (size_t)head->bucket_records * head->bucket_bytes
               : mu_ledger_file_size(head->records);
}

/* The ring of buckets lies behind that of calls. */
static bool buckets_are_sound(const struct mu_ledger_head *head)
{
    return !head->buckets_at ||
           (head->buckets_at >= mu_ledger_file_size(head->records) &&
            head->buckets_at % 8 == 0 && head->buckets_at <= SIZE_MAX / 2 &&
            is_ring(head->bucket_records) &&
            head->bucket_bytes >= sizeof(struct mu_ledger_bucket) &&
            head->bucket_bytes <= BUCKET_BYTES_MAX && head->bucket_bytes % 8 == 0);
}

int mu_ledger_check_head(const struct mu_ledger_head *head, size_t size,
                         const char *path, struct mu_err *err)
{
    const size_t family = sizeof "muster-ledger-" - 1;

    if (size < family || memcmp(head->magic, MU_LEDGER_MAGIC, family) != 0)
        return mu_err_set(err, EINVAL, "%s: this is no ledger file of Muster", path);
    if (size < sizeof *head)
        return mu_err_set(err, EINVAL, "%s: the file ends within its head", path);
    if (memcmp(head->magic, MU_LEDGER_MAGIC, sizeof head->magic) != 0)
        return mu_err_set(err, EINVAL,
                          "%s: this ledger has format '%.15s', muster report reads "
                          "'%s'; use the muster of the job",
                          path, head->magic, MU_LEDGER_MAGIC);
    if (head->order != 0x01020304)
        return mu_err_set(err, EINVAL,
                          "%s: this ledger is of a machine with another byte order",
                          path);
    if (!is_ring(head->records))
        return mu_err_set(err, EINVAL, "%s: the head is damaged (%u records)", path,
                          head->records);
    if (!buckets_are_sound(head))
        return mu_err_set(err, EINVAL,
                          "%s: the head is damaged (%u buckets of %u bytes)", path,
                          head->bucket_records, head->bucket_bytes);
    if (size < mu_ledger_image_size(head))
        return mu_err_set(err, EINVAL,
                          "%s: the file is truncated: %zu of %zu bytes are there", path,
                          size, mu_ledger_image_size(head));
    return 0;
}

int mu_ledger_check_records(void *image, const char *path, struct mu_err *err)
{
    if (!names_are_sound(image))
        return mu_err_set(err, EINVAL, "%s: a record is damaged", path);
    return comms_are_sound(image, path, err);
}

double mu_ledger_bytes(const struct mu_ledger_call *call, int size)
{
    static const char *const parts[] = { "AllGather", "ReduceScatter", "AlltoAll",
                                         "Gather", "Scatter" };
    double bytes = (double)call->count * call->element;

    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strcmp(call->func, parts[i]) == 0)
            return bytes * size;
    return bytes;
}

double mu_ledger_bus_factor(const char *func, int size)
{
    double others = size > 1 ? (double)(size - 1) / size : 0;

    if (strcmp(func, "AllReduce") == 0)
        return 2 * others;
    if (strcmp(func, "Broadcast") == 0 || strcmp(func, "Reduce") == 0)
        return size > 1;
    if (strcmp(func, "AllGather") == 0 || strcmp(func, "ReduceScatter") == 0 ||
        strcmp(func, "AlltoAll") == 0 || strcmp(func, "Gather") == 0 ||
        strcmp(func, "Scatter") == 0)
        return others;
    return 0;
}
