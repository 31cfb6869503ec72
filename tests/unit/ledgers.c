/* SPDX-License-Identifier: BSD-3-Clause */
/* ledgers.c - writes the ledgers of an invented training */
#include "tests/unit/ledgers.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/core/ledger_file.h"
#include "runtime/tools/samples.h"

#define GPU_CLOCK 1700000000000000000u /* ahead of the host's, ns */

static uint64_t ns(double us)
{
    return (uint64_t)(us * 1000);
}

static void record(const struct training *t, void *image, double bytes, double launch,
                   double begin, double end)
{
    struct mu_ledger_head *head = image;
    uint64_t n = head->calls++;
    double took = t->late_launch && head->rank == t->late ? t->late_launch : t->launch;

    mu_ledger_calls(image)[n % head->records] =
        (struct mu_ledger_call){ .sequence = n,
                                 .count = (uint64_t)(bytes / 4),
                                 .begin = ns(launch),
                                 .end = ns(launch + took),
                                 .gpu_begin = ns(begin),
                                 .gpu_end = ns(end),
                                 .number = n + 1,
                                 .began = 1,
                                 .ended = 1,
                                 .channels = (uint8_t)t->channels,
                                 .element = 4,
                                 .func = "AllReduce",
                                 .proto = "SIMPLE" };
    strcpy(mu_ledger_calls(image)[n % head->records].algo,
           t->libmuster ? "HOST" : "RING");
}

/* The last record, of this step: its clock, or without times. */
static void time_record(const struct training *t, void *image, int s)
{
    const struct mu_ledger_head *head = image;
    struct mu_ledger_call *call =
        &mu_ledger_calls(image)[(head->calls - 1) % head->records];

    if (s / 10 % t->windows == 0) {
        call->gpu_begin += GPU_CLOCK;
        call->gpu_end += GPU_CLOCK;
    } else {
        call->gpu_begin = call->gpu_end = 0;
        call->began = call->ended = 0;
        call->untimed = 1;
    }
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
        if (t->windows)
            time_record(t, image, s);
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
    if (t->remote || t->gpus)
        snprintf(head->gpu, sizeof head->gpu, "0000:%02x:00.0", rank + 1);
    if (t->remote) {
        head->gpu_node = 1;
        head->cpu_node = (int16_t)(late || t->remote == 2 ? 2 : 1);
    }
    if (t->nic)
        snprintf(head->nic, sizeof head->nic, "%s", late ? t->nic : "mlx5_0");
}

static double unless(double value, double otherwise)
{
    return value > 0 ? value : otherwise;
}

/* Ten looks a second. Ledgers begin at 0 on all clocks. */
static int write_samples(const char *folder, const struct training *t)
{
    double took = (t->forward + t->backward) * 1e-6, last = 1.2 * t->steps * took;
    char path[512];
    FILE *f;

    snprintf(path, sizeof path, "%s/all.samples", folder);
    f = fopen(path, "w");
    if (!f)
        return -1;
    mu_samples_head(f);
    for (double when = 0; when < last; when += 0.1)
        for (int rank = 0; rank < t->ranks; rank++) {
            bool bad = t->gpus == 2 || (rank == t->late && when > t->from * took);
            struct mu_sample s = {
                when,
                "",
                "",
                { bad ? unless(t->busy, 97) - (t->gpus == 2 ? rank : 0) : 97,
                  bad ? unless(t->watts, 600) : 600, bad ? unless(t->mhz, 1980) : 1980,
                  bad ? 10 * unless(t->memory, 80) : 800, 1000 }
            };

            snprintf(s.host, sizeof s.host, "n%d", rank / 2);
            snprintf(s.gpu, sizeof s.gpu, "00000000:%02X:00.0", rank + 1);
            mu_sample_print(&s, f);
        }
    return fclose(f);
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
                                         .interface =
                                             t->libmuster ? MU_LEDGER_LIBMUSTER : 5,
                                         .rank = rank };
        snprintf(head->host, sizeof head->host, "n%d", rank / 2);
        place(t, head, rank);
        for (int r = rank; r < (t->one_process ? t->ranks : rank + 1); r++)
            mu_ledger_comms(image)[head->comms++] = (struct mu_ledger_comm){
                .hash = 7, .rank = r, .size = t->ranks, .nodes = t->nodes ? t->nodes : 1
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
    return rc == 0 && t->gpus ? write_samples(folder, t) : rc;
}
