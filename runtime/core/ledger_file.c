/* SPDX-License-Identifier: BSD-3-Clause */
/* ledger_file.c - layout, check and arithmetic of a ledger file */
#include "runtime/core/ledger_file.h"

#include <errno.h>
#include <string.h>

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

/* The names are read as strings. */
static int names_end(const struct mu_ledger_head *head)
{
    const struct mu_ledger_comm *comm = mu_ledger_comms((void *)head);
    const struct mu_ledger_call *call = mu_ledger_calls((void *)head);

    if (!memchr(head->host, 0, sizeof head->host) ||
        !memchr(head->job, 0, sizeof head->job) ||
        !memchr(head->gpu, 0, sizeof head->gpu) ||
        !memchr(head->nic, 0, sizeof head->nic))
        return 0;
    for (int i = 0; i < MU_LEDGER_COMMS; i++)
        if (!memchr(comm[i].name, 0, sizeof comm[i].name))
            return 0;
    for (uint32_t i = 0; i < head->records; i++)
        if (!memchr(call[i].func, 0, sizeof call[i].func) ||
            !memchr(call[i].algo, 0, sizeof call[i].algo) ||
            !memchr(call[i].proto, 0, sizeof call[i].proto) ||
            call[i].comm >= MU_LEDGER_COMMS)
            return 0;
    return 1;
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

int mu_ledger_check(const void *image, size_t size, const char *path,
                    struct mu_err *err)
{
    const struct mu_ledger_head *head = image;
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
    if (head->records < MU_LEDGER_RECORDS_MIN ||
        head->records > MU_LEDGER_RECORDS_MAX ||
        (head->records & (head->records - 1)) != 0)
        return mu_err_set(err, EINVAL, "%s: the head is damaged (%u records)", path,
                          head->records);
    if (size < mu_ledger_file_size(head->records))
        return mu_err_set(err, EINVAL,
                          "%s: the file is truncated: %zu of %zu bytes are there", path,
                          size, mu_ledger_file_size(head->records));
    if (!names_end(head))
        return mu_err_set(err, EINVAL, "%s: a record is damaged", path);
    return comms_are_sound(head, path, err);
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
