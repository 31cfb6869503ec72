/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_trace.c - the collectives of a job for Chrome's trace viewer */
#include <stdlib.h>

#include "runtime/tools/profile.h"

enum { LAUNCH_TRACK, GPU_TRACK, BUCKET_TRACK, SYNC_TRACK, TRACKS };

/* How a file's clocks become nanoseconds of CLOCK_REALTIME since `origin`. */
struct clocks {
    int64_t host, gpu; /* to add */
    int gpu_known;
};

/* Damaged times are printed as they are; they may wrap. */
static int64_t shifted(uint64_t ns, int64_t shift)
{
    return (int64_t)(ns + (uint64_t)shift);
}

/* Names are of NCCL and the user; JSON wants no quote, backslash or control. */
static void print_name(const char *name, FILE *to)
{
    for (; *name; name++)
        putc(*name >= ' ' && *name < 127 && *name != '"' && *name != '\\' ? *name : '?',
             to);
}

/* Interface 3 has the host's times. */
static void read_clocks(const struct mu_profile *p, struct clocks *clocks)
{
    int64_t origin = INT64_MAX;

    for (int i = 0; i < p->nfiles; i++) {
        const struct mu_ledger_head *head = p->files[i].head;

        if ((int64_t)head->opened_real < origin)
            origin = (int64_t)head->opened_real;
    }
    for (int i = 0; i < p->nfiles; i++) {
        const struct mu_ledger_head *head = p->files[i].head;

        clocks[i].host =
            shifted(head->opened_real - head->opened_monotonic - (uint64_t)origin, 0);
        clocks[i].gpu = clocks[i].host;
        clocks[i].gpu_known = head->interface == 3;
    }
    for (size_t k = 0; k < p->nrecords; k++) {
        const struct mu_ledger_call *call = p->records[k].call;
        struct clocks *c = &clocks[p->records[k].file];
        int64_t shift = shifted(call->begin - call->gpu_begin, c->host);

        if (!call->gpu_begin || p->files[p->records[k].file].head->interface == 3)
            continue;
        if (!c->gpu_known || shift > c->gpu)
            c->gpu = shift;
        c->gpu_known = 1;
    }
}

static void print_process(const struct mu_profile_file *f, int i, FILE *to)
{
    static const char *const tracks[TRACKS] = { "launch", "GPU", "buckets", "sync" };
    int used = f->head->buckets ? TRACKS : BUCKET_TRACK;

    fprintf(to,
            "%s\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{"
            "\"name\":\"rank %d, ",
            i ? "," : "", i, f->head->rank);
    print_name(f->head->host, to);
    fputs("\"}}", to);
    for (int t = LAUNCH_TRACK; t < used; t++)
        fprintf(to,
                ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,"
                "\"args\":{\"name\":\"%s\"}}",
                i, t, tracks[t]);
}

static void print_event(const struct mu_profile_record *r, int track, int64_t from,
                        int64_t to_ns, FILE *to)
{
    fputs(",\n{\"ph\":\"X\",\"name\":\"", to);
    print_name(r->call->func, to);
    fprintf(to,
            "\",\"cat\":\"nccl\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
            "\"args\":{\"communicator\":\"%016llx\",\"rank\":%d,\"sequence\":%llu,"
            "\"bytes\":%.0f,\"channels\":%d,\"algorithm\":\"",
            r->file, track, (double)from * 1e-3,
            (double)shifted((uint64_t)to_ns - (uint64_t)from, 0) * 1e-3,
            (unsigned long long)r->hash, r->rank, (unsigned long long)r->call->sequence,
            r->bytes, r->call->channels);
    print_name(r->call->algo, to);
    fputs("\",\"protocol\":\"", to);
    print_name(r->call->proto, to);
    fputs("\"}}", to);
}

/* shift: from the host's clock. A bucket may begin before another one ends: so the part
 * that is drawn is the backend's, which works on one at a time.
 */
static void print_bucket(const struct mu_ledger_bucket *b, int file, int64_t shift,
                         FILE *to)
{
    double exposed = (double)b->exposed * 1e-3;
    double joined = (double)shifted(b->joined, shift) * 1e-3;

    if (b->bucket == MU_LEDGER_STEP) {
        fprintf(to,
                ",\n{\"ph\":\"X\",\"name\":\"sync of step %llu\",\"cat\":\"muster\","
                "\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{"
                "\"bytes\":%llu}}",
                (unsigned long long)b->step, file, SYNC_TRACK, joined - exposed,
                exposed, (unsigned long long)b->bytes);
        return;
    }
    if (!b->started || b->ended < b->started)
        return;
    fprintf(to,
            ",\n{\"ph\":\"X\",\"name\":\"bucket %u\",\"cat\":\"muster\",\"pid\":%d,"
            "\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%llu,"
            "\"bytes\":%llu,\"ready\":%.3f,\"launched\":%.3f,\"exposed_us\":%.3f}}",
            b->bucket, file, BUCKET_TRACK, (double)shifted(b->started, shift) * 1e-3,
            (double)(b->ended - b->started) * 1e-3, (unsigned long long)b->step,
            (unsigned long long)b->bytes, (double)shifted(b->ready, shift) * 1e-3,
            (double)shifted(b->launched, shift) * 1e-3, exposed);
}

static void print_buckets(const struct mu_profile *p, int file, int64_t shift, FILE *to)
{
    const struct mu_ledger_head *head = p->files[file].head;
    struct mu_ledger_bucket b;
    uint64_t end;

    for (uint64_t k = mu_ledger_oldest_bucket(head, &end); k < end; k++)
        if (mu_ledger_bucket(head, k, &b))
            print_bucket(&b, file, shift, to);
}

void mu_profile_trace(const struct mu_profile *p, FILE *to)
{
    struct clocks *clocks = calloc((size_t)p->nfiles + 1, sizeof *clocks);

    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", to);
    for (int i = 0; i < p->nfiles; i++)
        print_process(&p->files[i], i, to);
    if (clocks)
        read_clocks(p, clocks);
    for (size_t k = 0; clocks && k < p->nrecords; k++) {
        const struct mu_profile_record *r = &p->records[k];
        const struct mu_ledger_call *call = r->call;
        const struct clocks *c = &clocks[r->file];

        if (call->end >= call->begin)
            print_event(r, LAUNCH_TRACK, shifted(call->begin, c->host),
                        shifted(call->end, c->host), to);
        if (call->gpu_begin && call->gpu_end >= call->gpu_begin)
            print_event(r, GPU_TRACK, shifted(call->gpu_begin, c->gpu),
                        shifted(call->gpu_end, c->gpu), to);
    }
    for (int i = 0; clocks && i < p->nfiles; i++)
        print_buckets(p, i, clocks[i].host, to);
    fputs("\n]}\n", to);
    free(clocks);
}
