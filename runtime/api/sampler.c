/* SPDX-License-Identifier: BSD-3-Clause */
/* sampler.c - the samples of this rank, step by step */
#include "runtime/api/impl.h"

#include <stdlib.h>

#include "runtime/core/shard.h"

/* batch * size must not overflow, even with padding. */
#define MOST_SAMPLES (1ull << 62)

struct muster_sampler {
    struct muster *m;
    struct muster_sampler_options options;
    struct mu_shuffle shuffle;
    uint64_t epoch, position;
};

static int check_options(struct muster *m, const struct muster_sampler_options *options,
                         struct muster_sampler **out)
{
    if (!out)
        return mu_fail(m, MUSTER_EUSAGE,
                       "muster_sampler_create needs a place for its result");
    if (MU_CHECK_RESERVED(m, "muster_sampler_create", muster_sampler_options,
                          options) != MUSTER_OK)
        return MUSTER_EUSAGE;
    if (options->samples < 1 || options->samples > MOST_SAMPLES)
        return mu_fail(m, MUSTER_EUSAGE,
                       "muster_sampler_create: samples is %llu, use 1 to 2^62",
                       (unsigned long long)options->samples);
    if (options->batch < 1 || options->batch > MOST_SAMPLES / (uint64_t)muster_size(m))
        return mu_fail(
            m, MUSTER_EUSAGE,
            "muster_sampler_create: batch is %llu, use at least 1, and at most "
            "2^62 over all ranks",
            (unsigned long long)options->batch);
    if ((unsigned)options->tail > MUSTER_TAIL_KEEP)
        return mu_fail(m, MUSTER_EUSAGE, "muster_sampler_create: unknown tail %d",
                       (int)options->tail);
    return MUSTER_OK;
}

/* Compare the options of every rank with those of rank 0. A rank with invalid options
 * takes part.
 */
static int agree(struct muster *m, const struct muster_sampler_options *o, int status)
{
    static const char *const names[] = { "samples", "batch", "seed", "tail",
                                         "in_order" };
    enum { FIELDS = sizeof names / sizeof names[0], WORDS = FIELDS + 1 };
    int64_t mine[WORDS] = { (int64_t)o->samples, (int64_t)o->batch,
                            (int64_t)o->seed,    o->tail,
                            o->in_order != 0,    status };
    int64_t *all = calloc((size_t)muster_size(m), sizeof mine);
    int rc;

    if (!all)
        return mu_fail(m, MUSTER_EMEMORY, "muster_sampler_create: no memory");
    rc = muster_allgather(m, mine, all, WORDS, MUSTER_I64, NULL);
    if (rc == MUSTER_OK)
        rc = muster_barrier(m); /* on a GPU the gather was only enqueued */
    if (rc == MUSTER_OK)
        rc = status;
    for (int r = 0; rc == MUSTER_OK && r < muster_size(m); r++) {
        if (all[r * WORDS + FIELDS] != MUSTER_OK)
            rc = mu_fail(m, MUSTER_ECONTRACT,
                         "muster_sampler_create: the options of rank %d (node %s) are "
                         "invalid",
                         r, muster_host(m, r));
        for (int f = 0; rc == MUSTER_OK && f < FIELDS; f++)
            if (all[r * WORDS + f] != all[f])
                rc = mu_fail(m, MUSTER_ECONTRACT,
                             "muster_sampler_create: %s is %lld on rank 0 (node %s), "
                             "but %lld on rank %d (node %s); it must be equal on all "
                             "ranks",
                             names[f], (long long)all[f], muster_host(m, 0),
                             (long long)all[r * WORDS + f], r, muster_host(m, r));
    }
    free(all);
    return rc;
}

int muster_sampler_create(struct muster *m,
                          const struct muster_sampler_options *options,
                          struct muster_sampler **out)
{
    static const struct muster_sampler_options none; /* refused: it has no samples */
    const struct muster_sampler_options *o = options ? options : &none;
    struct muster_sampler *sampler;
    int status = agree(m, o, check_options(m, o, out));

    if (status != MUSTER_OK)
        return status;
    sampler = calloc(1, sizeof *sampler);
    if (!sampler)
        return mu_fail(m, MUSTER_EMEMORY, "muster_sampler_create: no memory");
    sampler->m = m;
    sampler->options = *o;
    muster_sampler_set_epoch(sampler, 0);
    *out = sampler;
    return MUSTER_OK;
}

void muster_sampler_destroy(struct muster_sampler *sampler)
{
    free(sampler);
}

void muster_sampler_set_epoch(struct muster_sampler *sampler, uint64_t epoch)
{
    sampler->epoch = epoch;
    sampler->position = 0;
    mu_shuffle_init(&sampler->shuffle, sampler->options.samples, sampler->options.seed,
                    epoch);
}

int muster_sampler_next(struct muster_sampler *sampler, uint64_t *indices,
                        uint64_t *count)
{
    const struct muster_sampler_options *o = &sampler->options;
    struct mu_step step;

    if (!mu_shard_step(o->samples, sampler->position, o->batch, muster_rank(sampler->m),
                       muster_size(sampler->m), o->tail, &step))
        return 0;
    for (uint64_t i = 0; i < step.count; i++) {
        /* Padding takes its samples from the start of the epoch. */
        uint64_t place = (step.first + i) % o->samples;

        indices[i] = o->in_order ? place : mu_shuffle_at(&sampler->shuffle, place);
    }
    *count = step.count;
    sampler->position += step.consumed;
    return 1;
}

uint64_t muster_sampler_steps(const struct muster_sampler *sampler)
{
    const struct muster_sampler_options *o = &sampler->options;

    return mu_shard_steps(o->samples, sampler->position, o->batch,
                          muster_size(sampler->m), o->tail);
}

void muster_sampler_save(const struct muster_sampler *sampler,
                         struct muster_sampler_state *state)
{
    *state = (struct muster_sampler_state){ .samples = sampler->options.samples,
                                            .seed = sampler->options.seed,
                                            .epoch = sampler->epoch,
                                            .position = sampler->position };
}

int muster_sampler_restore(struct muster_sampler *sampler,
                           const struct muster_sampler_state *state)
{
    const struct muster_sampler_options *o = &sampler->options;

    if (state->samples != o->samples || state->seed != o->seed)
        return mu_fail(
            sampler->m, MUSTER_ECONTRACT,
            "muster_sampler_restore: the state has %llu samples and seed %llu, "
            "the sampler has %llu and seed %llu",
            (unsigned long long)state->samples, (unsigned long long)state->seed,
            (unsigned long long)o->samples, (unsigned long long)o->seed);
    if (state->position > state->samples)
        return mu_fail(
            sampler->m, MUSTER_ECONTRACT,
            "muster_sampler_restore: position %llu is beyond the %llu samples",
            (unsigned long long)state->position, (unsigned long long)state->samples);
    muster_sampler_set_epoch(sampler, state->epoch);
    sampler->position = state->position;
    return MUSTER_OK;
}
