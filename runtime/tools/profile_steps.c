/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_steps.c - the steps of a training, found in the order of its collectives
 *
 * A training repeats its collectives step by step. The shortest period of one process's
 * sequence is a step. It begins behind the longest pause: there the next forward pass
 * is computed. This needs no help from the program.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/tools/profile.h"

#define WINDOW 8192  /* the last calls, in which the period is looked for */
#define MISSES_IN 50 /* one call of so many may differ from that a period before */
#define NS_PER_US 1000.0

/* ---- One process ----------------------------------------------------------------- */

/* The GPU's clock where it is there, else the host's, in microseconds. */
static double begin_us(const struct mu_ledger_call *call)
{
    uint64_t ns = mu_profile_gpu_us(call) < 0 ? call->begin : call->gpu_begin;

    return (double)ns / NS_PER_US;
}

static double end_us(const struct mu_ledger_call *call)
{
    double gpu = mu_profile_gpu_us(call);
    uint64_t end = call->end > call->begin ? call->end : call->begin;

    return gpu < 0 ? (double)end / NS_PER_US : begin_us(call) + gpu;
}

/* The calls in the order of their numbers; returns how many. */
static size_t in_order(const struct mu_profile_file *f, uint64_t last,
                       const struct mu_ledger_call **out)
{
    const struct mu_ledger_call *ring = mu_ledger_calls(f->image);
    uint64_t records = f->head->records, calls = f->head->calls;
    size_t n = 0;

    last = last && last < records ? last : records;
    for (uint64_t k = calls > last ? calls - last : 0; k < calls; k++)
        if (ring[k & (records - 1)].number == k + 1)
            out[n++] = &ring[k & (records - 1)];
    return n;
}

/* Time with at least one of the calls on the GPU, -1 unknown. */
static double busy_timed(const struct mu_ledger_call *const *call, size_t n)
{
    double busy = 0, until = 0;
    int known = 0;

    for (size_t i = 0; i < n; i++) {
        double begin = begin_us(call[i]), end = end_us(call[i]);

        if (mu_profile_gpu_us(call[i]) < 0)
            continue;
        known = 1;
        if (end > until) {
            busy += end - (begin > until ? begin : until);
            until = end;
        }
    }
    return known ? busy : -1;
}

static double busy_us(const struct mu_ledger_call *const *call, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (call[i]->untimed)
            return -1;
    return busy_timed(call, n);
}

/* The calls between two pauses of the timing are a stretch; their share of its time is
 * that of the whole span.
 */
static double busy_share(const struct mu_ledger_call *const *call, size_t n)
{
    double busy = 0, span = 0;
    size_t of;

    for (size_t at = 0; at < n; at += of) {
        for (of = 1; at + of < n && call[at + of]->untimed == call[at]->untimed;)
            of++;
        if (call[at]->untimed || busy_timed(&call[at], of) < 0)
            continue;
        busy += busy_timed(&call[at], of);
        span += end_us(call[at + of - 1]) - begin_us(call[at]);
    }
    return span > 0 ? busy / span : -1;
}

static void make_part(const struct mu_profile *p, int file,
                      const struct mu_ledger_call *const *call, size_t n,
                      double *launch, struct mu_profile_part *part)
{
    const struct mu_profile_file *f = &p->files[file];
    size_t launched = 0;

    *part = (struct mu_profile_part){ .rank = f->head->rank, .span = -1 };
    if (part->rank < 0 && f->head->comms > 0)
        part->rank = mu_ledger_comms(f->image)->rank;
    for (size_t i = 0; i < n; i++)
        if (call[i]->end >= call[i]->begin) {
            launch[launched] = (double)(call[i]->end - call[i]->begin) / NS_PER_US;
            part->launches += launch[launched++];
        }
    part->launch = mu_profile_median(launch, launched);
    part->busy = busy_us(call, n);
    if (n > 0 && end_us(call[n - 1]) > begin_us(call[0]))
        part->span = end_us(call[n - 1]) - begin_us(call[0]);
    if (part->busy < 0 && part->span > 0 && busy_share(call, n) >= 0)
        part->busy = busy_share(call, n) * part->span;
}

/* ---- The period ------------------------------------------------------------------ */

/* Equal in each step: FNV-1a of function, size and communicator. */
static uint32_t token(const struct mu_ledger_call *call)
{
    uint32_t hash = 2166136261u;

    for (const char *c = call->func; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    for (int i = 0; i < 8; i++)
        hash = (hash ^ (uint32_t)(call->count >> 8 * i & 255)) * 16777619u;
    return (hash ^ call->comm) * 16777619u;
}

/* The shortest period of the last calls; 0: none. The first half has what a training
 * sends before its first step.
 */
static size_t find_period(const uint32_t *token, size_t n)
{
    size_t window = n < 2 * WINDOW ? n / 2 : WINDOW;

    token += n - window;
    n = window;
    for (size_t period = 1; period <= n / 3; period++) {
        size_t misses = 0, most = (n - period) / MISSES_IN + 1;

        for (size_t i = 0; i + period < n && misses <= most; i++)
            misses += token[i] != token[i + period];
        if (misses <= most)
            return period;
    }
    return 0;
}

/* The index, among the last two periods, of the call behind the longest pause. */
static size_t behind_pause(const struct mu_ledger_call *const *call, size_t n,
                           size_t period)
{
    size_t best = n - period, rounds = n / period - 1;
    double longest = -1;

    rounds = rounds < 64 ? rounds : 64;
    for (size_t at = n - period; at < n; at++) {
        double pause = 0;

        for (size_t k = 0; k < rounds && at > k * period; k++)
            pause +=
                begin_us(call[at - k * period]) - end_us(call[at - k * period - 1]);
        if (pause > longest) {
            longest = pause;
            best = at;
        }
    }
    return best;
}

/* ---- Steps ----------------------------------------------------------------------- */

/* What all ranks together show of a call. */
struct shared {
    double wait;
    int late; /* index in files, -1 unknown */
};

/* By slot of the process's ring. Caller frees it. */
static struct shared *share_calls(const struct mu_profile *p, int file)
{
    const struct mu_ledger_call *ring = mu_ledger_calls(p->files[file].image);
    struct shared *out = malloc(p->files[file].head->records * sizeof *out);
    size_t of;

    for (uint32_t i = 0; out && i < p->files[file].head->records; i++)
        out[i] = (struct shared){ 0, -1 };
    for (size_t at = 0; out && at < p->nrecords; at += of) {
        const struct mu_profile_record *r = &p->records[at];
        const struct mu_ledger_call *own = NULL;
        double least = -1, most = -1;
        int late = -1;

        for (of = 0; at + of < p->nrecords && r[of].hash == r->hash &&
                     r[of].call->sequence == r->call->sequence &&
                     strcmp(r[of].call->func, r->call->func) == 0;
             of++) {
            double took = mu_profile_gpu_us(r[of].call);

            if (r[of].file == file)
                own = r[of].call;
            if (took < 0)
                continue;
            if (least < 0 || took < least) {
                least = took;
                late = r[of].file;
            }
            most = took > most ? took : most;
        }
        if (own && most > least)
            out[own - ring] = (struct shared){ most - least, late };
    }
    return out;
}

static void finish_step(const struct mu_profile *p, const struct shared *shared,
                        struct mu_profile_step *s, double begin)
{
    const struct mu_profile_steps *steps = &p->steps;
    const struct mu_ledger_call *ring = mu_ledger_calls(p->files[steps->file].image);
    double longest = 0;

    s->begin = begin_us(steps->call[s->first]) - begin;
    s->took = begin_us(steps->call[s->end]) - begin_us(steps->call[s->first]);
    s->busy = busy_us(&steps->call[s->first], s->end - s->first);
    s->compute =
        s->first ? begin_us(steps->call[s->first]) - end_us(steps->call[s->first - 1])
                 : 0;
    s->compute = s->compute > 0 ? s->compute : 0;
    s->late = -1;
    for (size_t i = s->first; i < s->end; i++) {
        const struct shared *c = &shared[steps->call[i] - ring];

        s->wait += c->wait;
        if (c->wait > longest) {
            longest = c->wait;
            s->late = c->late;
        }
    }
}

/* A step begins at each call that is like that at `mark` and follows the same one. */
static int cut_steps(struct mu_profile *p, const size_t *index, const uint32_t *token,
                     size_t n, size_t mark, const struct shared *shared)
{
    struct mu_profile_steps *s = &p->steps;
    size_t last = 0;
    int open = 0;

    s->step = calloc(n + 1, sizeof *s->step);
    if (!s->step)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (token[i] != token[mark] || (i && token[i - 1] != token[mark - 1]) ||
            (open && 2 * (i - last) < (size_t)s->period))
            continue;
        if (open && begin_us(s->call[index[i]]) > begin_us(s->call[index[last]])) {
            struct mu_profile_step *step = &s->step[s->n++];

            step->first = index[last];
            step->end = index[i];
            finish_step(p, shared, step, begin_us(s->call[s->step[0].first]));
        }
        last = i;
        open = 1;
    }
    return 0;
}

static int median_step(struct mu_profile_steps *s)
{
    double *value = malloc(((size_t)s->n + 1) * sizeof *value);

    if (!value)
        return -1;
    for (int i = 0; i < s->n; i++)
        s->timed += s->step[i].busy >= 0;
#define MEDIAN_OF(field, of_all)                                                       \
    do {                                                                               \
        size_t n = 0;                                                                  \
                                                                                       \
        for (int i = 0; i < s->n; i++)                                                 \
            if ((of_all) || mu_profile_counts(s, i))                                   \
                value[n++] = s->step[i].field;                                         \
        s->median.field = mu_profile_median(value, n);                                 \
    } while (0)
    MEDIAN_OF(took, true);
    MEDIAN_OF(busy, false);
    MEDIAN_OF(compute, false);
    MEDIAN_OF(wait, false);
    free(value);
    return 0;
}

static int find_steps(struct mu_profile *p)
{
    struct mu_profile_steps *s = &p->steps;
    uint32_t *tokens = malloc((s->ncalls + 1) * sizeof *tokens);
    size_t *index = malloc((s->ncalls + 1) * sizeof *index);
    const struct mu_ledger_call **large = malloc((s->ncalls + 1) * sizeof *large);
    struct shared *shared = share_calls(p, s->file);
    size_t n = 0;
    int rc = -1;

    if (!tokens || !index || !large || !shared)
        goto out;
    for (size_t i = 0; i < s->ncalls; i++)
        if (s->call[i]->count * (s->call[i]->element ? s->call[i]->element : 1) >=
            MU_PROFILE_SMALL) {
            tokens[n] = token(s->call[i]);
            large[n] = s->call[i];
            index[n++] = i;
        }
    s->period = (int)find_period(tokens, n);
    rc = s->period ? cut_steps(p, index, tokens, n,
                               behind_pause(large, n, (size_t)s->period), shared)
                   : 0;
    rc = rc < 0 ? rc : median_step(s);
out:
    free(tokens);
    free(index);
    free(large);
    free(shared);
    return rc;
}

int mu_profile_steps_find(struct mu_profile *p)
{
    const struct mu_ledger_call **call;
    double *launch;
    size_t room = 1;
    int rc = -1;

    for (int i = 0; i < p->nfiles; i++)
        if (p->files[i].head->records > room)
            room = p->files[i].head->records;
    call = malloc(room * sizeof(void *));
    launch = malloc(room * sizeof *launch);
    p->parts = calloc((unsigned)p->nfiles, sizeof *p->parts);
    p->steps.call = malloc(room * sizeof(void *));
    if (!call || !launch || !p->parts || !p->steps.call)
        goto out;
    for (int i = 0; i < p->nfiles; i++) {
        size_t n = in_order(&p->files[i], p->last, call);

        make_part(p, i, call, n, launch, &p->parts[i]);
        if (n > p->steps.ncalls) {
            p->steps.file = i;
            p->steps.ncalls = n;
            memcpy(p->steps.call, call, n * sizeof(void *));
        }
    }
    rc = find_steps(p);
out:
    free(call);
    free(launch);
    return rc;
}
