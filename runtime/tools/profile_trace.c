/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_trace.c - the collectives of a job for Chrome's trace viewer */
#include <stdlib.h>

#include "runtime/tools/profile.h"

enum { LAUNCH_TRACK, GPU_TRACK };

/* How a file's clocks become nanoseconds of CLOCK_REALTIME since `origin`. */
struct clocks {
    int64_t host, gpu; /* to add */
    int gpu_known;
};

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

        clocks[i].host = (int64_t)(head->opened_real - head->opened_monotonic) - origin;
        clocks[i].gpu = clocks[i].host;
        clocks[i].gpu_known = head->interface == 3;
    }
    for (size_t k = 0; k < p->nrecords; k++) {
        const struct mu_ledger_call *call = p->records[k].call;
        struct clocks *c = &clocks[p->records[k].file];
        int64_t shift = (int64_t)(call->begin - call->gpu_begin) + c->host;

        if (!call->gpu_begin || p->files[p->records[k].file].head->interface == 3)
            continue;
        if (!c->gpu_known || shift > c->gpu)
            c->gpu = shift;
        c->gpu_known = 1;
    }
}

static void print_process(const struct mu_profile_file *f, int i, FILE *to)
{
    static const char *const tracks[] = { "launch", "GPU" };

    fprintf(to,
            "%s\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{"
            "\"name\":\"rank %d, ",
            i ? "," : "", i, f->head->rank);
    print_name(f->head->host, to);
    fputs("\"}}", to);
    for (int t = LAUNCH_TRACK; t <= GPU_TRACK; t++)
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
            r->file, track, (double)from * 1e-3, (double)(to_ns - from) * 1e-3,
            (unsigned long long)r->hash, r->rank, (unsigned long long)r->call->sequence,
            r->bytes, r->call->channels);
    print_name(r->call->algo, to);
    fputs("\",\"protocol\":\"", to);
    print_name(r->call->proto, to);
    fputs("\"}}", to);
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
            print_event(r, LAUNCH_TRACK, (int64_t)call->begin + c->host,
                        (int64_t)call->end + c->host, to);
        if (call->gpu_begin && call->gpu_end >= call->gpu_begin)
            print_event(r, GPU_TRACK, (int64_t)call->gpu_begin + c->gpu,
                        (int64_t)call->gpu_end + c->gpu, to);
    }
    fputs("\n]}\n", to);
    free(clocks);
}
