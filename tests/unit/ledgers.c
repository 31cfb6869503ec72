/* SPDX-License-Identifier: BSD-3-Clause */
/* ledgers.c - writes the ledgers of an invented training */
#include "tests/unit/ledgers.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/core/ledger_file.h"

static uint64_t ns(double us)
{
    return (uint64_t)(us * 1000);
}

static void record(const struct training *t, void *image, double bytes, double launch,
                   double begin, double end)
{
    struct mu_ledger_head *head = image;
    uint64_t n = head->calls++;

    mu_ledger_calls(image)[n % head->records] =
        (struct mu_ledger_call){ .sequence = n,
                                 .count = (uint64_t)(bytes / 4),
                                 .begin = ns(launch),
                                 .end = ns(launch + t->launch),
                                 .gpu_begin = ns(begin),
                                 .gpu_end = ns(end),
                                 .number = n + 1,
                                 .began = 1,
                                 .ended = 1,
                                 .channels = (uint8_t)t->channels,
                                 .element = 4,
                                 .func = "AllReduce",
                                 .algo = "RING",
                                 .proto = "SIMPLE" };
}

/* Rank's records of one step that begins at `now`; returns when it ends. Each bucket
 * ends on all ranks at once, when the last rank has begun it and exchanged it.
 */
static double step(const struct training *t, void *image, int rank, int s, double now)
{
    double lag = t->late && s >= t->from ? t->late_us : 0;
    int late = t->mostly ? s % 5 >= 3 : t->rotates ? s % t->ranks : t->late;
    double ready = now + t->forward, end = 0;

    if (t->starved && s % t->starved == 0)
        ready += 3 * t->forward;
    for (int b = 0; b < t->buckets; b++) {
        double part = t->backward / t->buckets * (b + 1);
        double begin = ready + (t->burst ? t->backward + 10 * b : part);
        double took = t->exchange, launch = begin - 5;

        if (t->slow && (s * t->buckets + b) % t->slow == 0)
            took *= 10;
        begin = begin > end ? begin : end;
        end = begin + lag + took;
        record(t, image, t->bytes + 4096 * b, launch, begin + (rank == late ? lag : 0),
               end);
    }
    if (t->losses && s % 10 == 0)
        record(t, image, 4, end, end + 10, end + 20);
    return end + 100;
}

static int save(const char *folder, int rank, const void *image, size_t size)
{
    char path[512];
    FILE *f;
    int rc;

    snprintf(path, sizeof path, "%s/rank%d.ledger", folder, rank);
    f = fopen(path, "w");
    if (!f)
        return -1;
    rc = fwrite(image, size, 1, f) == 1 ? 0 : -1;
    return fclose(f) == 0 ? rc : -1;
}

static void place(const struct training *t, struct mu_ledger_head *head, int rank)
{
    bool late = rank == t->late;

    head->cpus = late && t->cpus ? 2 : t->cpus;
    if (t->remote) {
        snprintf(head->gpu, sizeof head->gpu, "0000:%02x:00.0", rank + 1);
        head->gpu_node = 1;
        head->cpu_node = (int16_t)(late || t->remote == 2 ? 2 : 1);
    }
    if (t->nic)
        snprintf(head->nic, sizeof head->nic, "%s", late ? t->nic : "mlx5_0");
}

int ledgers_write(const char *folder, const struct training *t)
{
    size_t size;
    uint32_t records = MU_LEDGER_RECORDS_MIN;
    int rc = 0;

    while (records < (uint32_t)(t->steps * (t->buckets + 1) + t->setup))
        records *= 2;
    size = mu_ledger_file_size(records);
    for (int rank = 0; rank < t->ranks && rc == 0; rank++) {
        void *image = calloc(1, size);
        struct mu_ledger_head *head = image;
        double now = 1000;

        if (!image)
            return -1;
        *head = (struct mu_ledger_head){ .magic = MU_LEDGER_MAGIC,
                                         .order = 0x01020304,
                                         .records = records,
                                         .interface = 5,
                                         .rank = rank };
        snprintf(head->host, sizeof head->host, "n%d", rank / 2);
        place(t, head, rank);
        for (int r = rank; r < (t->one_process ? t->ranks : rank + 1); r++)
            mu_ledger_comms(image)[head->comms++] = (struct mu_ledger_comm){
                .hash = 7, .rank = r, .size = t->ranks, .nodes = 1
            };
        for (int i = 0; i < t->setup; i++)
            record(t, image, 8 * (i + 1), 20 * i, 20 * i + 5, 20 * i + 10);
        for (int s = 0; s < t->steps; s++)
            now = step(t, image, rank, s, now);
        rc = save(folder, rank, image, size);
        free(image);
        if (t->one_process)
            break;
    }
    return rc;
}
