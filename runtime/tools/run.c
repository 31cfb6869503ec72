/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/tools/run.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "muster-train"
#define MOST_RANKS 1000000

/* The plain fields: their place in struct mu_run, and their type. */
static const struct field {
    const char *name;
    enum { TEXT, COUNT, WIDE, REAL, TRUTH } type;
    size_t offset;
    double min;
} fields[] = {
#define FIELD(name, type, min)                                                         \
    {                                                                                  \
#name, type, offsetof(struct mu_run, name), min                                \
    }
    FIELD(model, TEXT, 0),          FIELD(dtype, TEXT, 0),
    FIELD(devices, TEXT, 0),        FIELD(backend, TEXT, 0),
    FIELD(transport, TEXT, 0),      FIELD(ranks, COUNT, 1),
    FIELD(nodes, COUNT, 1),         FIELD(machines, COUNT, 1),
    FIELD(cores, COUNT, 1),         FIELD(epochs, COUNT, 1),
    FIELD(samples, WIDE, 1),        FIELD(samples_seen, WIDE, 0),
    FIELD(batch, WIDE, 1),          FIELD(effective_batch, WIDE, 1),
    FIELD(steps, WIDE, 0),          FIELD(seconds, REAL, 0),
    FIELD(cpu_seconds, REAL, 0),    FIELD(loss, REAL, -1e300),
    FIELD(test_loss, REAL, -1e300), FIELD(test_accuracy, REAL, 0),
    FIELD(finished, TRUTH, 0),
#undef FIELD
};

static int wrong(const struct mu_run *run, const char *field, struct mu_err *err)
{
    return mu_err_set(err, EINVAL,
                      "%s: the field '%s' is missing or has a wrong type or value",
                      run->path, field);
}

static int take_field(struct mu_run *run, const struct field *f, struct mu_err *err)
{
    const json_t *value = json_object_get(run->json, f->name);
    void *to = (char *)run + f->offset;

    switch (f->type) {
    case TEXT:
        if (!json_is_string(value))
            return wrong(run, f->name, err);
        *(const char **)to = json_string_value(value);
        return 0;
    case TRUTH:
        if (!json_is_boolean(value))
            return wrong(run, f->name, err);
        *(bool *)to = json_is_true(value);
        return 0;
    case COUNT:
        if (!json_is_integer(value) || json_integer_value(value) < f->min ||
            json_integer_value(value) > MOST_RANKS)
            return wrong(run, f->name, err);
        *(int *)to = (int)json_integer_value(value);
        return 0;
    case WIDE:
        if (!json_is_integer(value) || json_integer_value(value) < f->min)
            return wrong(run, f->name, err);
        *(int64_t *)to = json_integer_value(value);
        return 0;
    case REAL:
        if (!json_is_number(value) || json_number_value(value) < f->min)
            return wrong(run, f->name, err);
        *(double *)to = json_number_value(value);
        return 0;
    }
    return -1;
}

static int take_ranks(struct mu_run *run, struct mu_err *err)
{
    const json_t *list = json_object_get(run->json, "by_rank");

    if ((int)json_array_size(list) != run->ranks)
        return wrong(run, "by_rank", err);
    run->by_rank = calloc((size_t)run->ranks, sizeof *run->by_rank);
    if (!run->by_rank)
        return mu_err_set(err, ENOMEM, "%s: no memory", run->path);
    for (int r = 0; r < run->ranks; r++) {
        struct mu_run_rank *rank = &run->by_rank[r];

        if (json_unpack(json_array_get(list, (size_t)r),
                        "{s:s, s:s, s:F, s:F, s:F, s:F}", "host", &rank->host, "cpus",
                        &rank->cpus, "seconds", &rank->seconds, "cpu_seconds",
                        &rank->cpu_seconds, "sync_seconds", &rank->sync_seconds,
                        "checkpoint_stall_seconds", &rank->stall_seconds) < 0)
            return wrong(run, "by_rank", err);
    }
    return 0;
}

static int take_curves(struct mu_run *run, struct mu_err *err)
{
    const json_t *moments = json_object_get(run->json, "moments");
    const json_t *losses = json_object_get(run->json, "losses");
    const json_t *one;
    size_t i;

    if (!json_is_array(moments))
        return wrong(run, "moments", err);
    if (!json_is_array(losses))
        return wrong(run, "losses", err);
    run->moments = calloc(json_array_size(moments) + 1, sizeof *run->moments);
    run->losses = calloc(json_array_size(losses) + 1, sizeof *run->losses);
    if (!run->moments || !run->losses)
        return mu_err_set(err, ENOMEM, "%s: no memory", run->path);
    json_array_foreach(moments, i, one)
    {
        struct mu_run_moment *m = &run->moments[i];

        if (json_array_size(one) != 3)
            return wrong(run, "moments", err);
        m->step = json_number_value(json_array_get(one, 0));
        m->seconds = json_number_value(json_array_get(one, 1));
        m->loss = json_number_value(json_array_get(one, 2));
        run->nmoments++;
    }
    json_array_foreach(losses, i, one) run->losses[run->nlosses++] =
        json_number_value(one);
    return 0;
}

int mu_run_load(struct mu_run *run, const char *path, struct mu_err *err)
{
    json_error_t why;
    const char *format;

    memset(run, 0, sizeof *run);
    run->path = path;
    run->json = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (!run->json && json_error_code(&why) == json_error_cannot_open_file)
        return mu_err_set(err, errno, "%s: %s", path, strerror(errno));
    if (!run->json)
        return mu_err_set(err, EINVAL, "%s line %d: %s", path, why.line, why.text);
    format = json_string_value(json_object_get(run->json, "format"));
    if (!format || strcmp(format, FORMAT) != 0 ||
        json_integer_value(json_object_get(run->json, "version")) != 1) {
        mu_err_set(
            err, EINVAL,
            "%s is not a result of muster-train (its format is '%s' version %lld, not "
            "'" FORMAT "' version 1)",
            path, format ? format : "",
            (long long)json_integer_value(json_object_get(run->json, "version")));
        goto fail;
    }
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (take_field(run, &fields[i], err) < 0)
            goto fail;
    if (take_ranks(run, err) < 0 || take_curves(run, err) < 0)
        goto fail;
    return 0;
fail:
    mu_run_clear(run);
    return -1;
}

void mu_run_clear(struct mu_run *run)
{
    json_decref(run->json);
    free(run->by_rank);
    free(run->moments);
    free(run->losses);
    memset(run, 0, sizeof *run);
}
