/* SPDX-License-Identifier: BSD-3-Clause */
/* result.c - the end of a run: equal weights, and numbers for muster report */
#include "jobscripts/train/train.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* FNV-1a over 64-bit words; weights are 4 or 8 bytes each, a tail goes in by bytes. */
static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    const uint8_t *p = data;

    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint64_t word;

        memcpy(&word, p, 8);
        h = (h ^ word) * 0x100000001b3u;
        h ^= h >> 29;
    }
    for (; bytes; p++, bytes--)
        h = (h ^ *p) * 0x100000001b3u;
    return h;
}

static int hash_weights(struct train *t, uint64_t *h, struct mu_err *err)
{
    *h = 0xcbf29ce484222325u;
    if (t->ops->exchange(t->engine, 1, err) < 0)
        return -1;
    for (int i = 0; i < t->model.nparams; i++)
        *h = hash(*h, t->ops->host_weights(t->engine, i),
                  t->model.params[i].count * muster_dtype_size(t->ops->dtype));
    return 0;
}

int train_collect(struct train *t, struct mu_err *err)
{
    /* On a GPU sync only enqueues: the clock of the host does not measure its wait. */
    double sync = muster_device(t->m) < 0 ? t->sync_seconds : -1;
    struct rank_figures mine = { t->train_seconds,
                                 t->cpu_seconds,
                                 sync,
                                 t->stall_seconds,
                                 0,
                                 train_momenta_bytes(t),
                                 "" };
    int status;

    _Static_assert(sizeof mine % sizeof(int64_t) == 0, "sent as 64-bit integers");
    mu_cpuset_format(&t->cores.mine, mine.cpus, sizeof mine.cpus);
    free(t->figures);
    t->figures = calloc((size_t)t->size, sizeof mine);
    if (!t->figures)
        return mu_err_set(err, MUSTER_EMEMORY, "no memory for the figures of %d ranks",
                          t->size);
    if (hash_weights(t, &mine.weights_hash, err) < 0)
        return -1;
    status = muster_allgather(t->m, &mine, t->figures, sizeof mine / sizeof(int64_t),
                              MUSTER_I64, NULL);
    if (status != MUSTER_OK)
        return train_failed(t, status, err);
    for (int r = 1; r < t->size; r++)
        if (t->figures[r].weights_hash != t->figures[0].weights_hash) {
            t->agreed = 1;
            return mu_err_set(
                err, MUSTER_ENUMERIC,
                "the weights of rank %d (node %s) differ from those of rank 0 "
                "after %llu steps",
                r, muster_host(t->m, r), (unsigned long long)t->step);
        }
    return 0;
}

static json_t *ranks_json(const struct train *t)
{
    json_t *list = json_array();

    for (int r = 0; r < t->size; r++) {
        const struct rank_figures *f = &t->figures[r];

        json_array_append_new(list,
                              json_pack("{s:i, s:s, s:s, s:f, s:f, s:f, s:f}", "rank",
                                        r, "host", muster_host(t->m, r), "cpus",
                                        f->cpus, "seconds", f->seconds, "cpu_seconds",
                                        f->cpu_seconds, "sync_seconds", f->sync_seconds,
                                        "checkpoint_stall_seconds", f->stall_seconds));
    }
    return list;
}

static json_t *moments_json(const struct train *t)
{
    json_t *list = json_array();

    for (int i = 0; i < t->nmoments; i++)
        json_array_append_new(list,
                              json_pack("[I, f, f]", (json_int_t)t->moments[i].step,
                                        t->moments[i].seconds, t->moments[i].loss));
    return list;
}

static double cpu_seconds(const struct train *t)
{
    double sum = 0;

    for (int r = 0; r < t->size; r++)
        sum += t->figures[r].cpu_seconds;
    return sum;
}

/* The bytes of the model that one rank holds, the most of any. */
static json_t *memory_json(const struct train *t)
{
    uint64_t most = 0;

    for (int r = 0; r < t->size; r++)
        if (t->figures[r].momenta_bytes > most)
            most = t->figures[r].momenta_bytes;
    return json_pack("{s:I, s:I, s:I}", "weights", (json_int_t)t->weights_bytes,
                     "gradients", (json_int_t)t->weights_bytes, "momenta",
                     (json_int_t)most);
}

static json_t *result_json(const struct train *t)
{
    const struct train_options *opt = t->opt;
    char weights[17];
    json_t *losses = json_array(), *json;

    snprintf(weights, sizeof weights, "%016llx",
             (unsigned long long)t->figures[0].weights_hash);
    for (uint64_t i = 0; i < t->nloss; i++)
        json_array_append_new(losses, json_real(t->loss[i]));
    json = json_pack(
        "{s:s, s:i, s:s, s:s, s:i, s:i, s:s, s:i, s:i, s:b, s:i, s:s, s:s}", "format",
        "muster-train", "version", 1, "model", t->model.text, "dtype",
        opt->dtype == MUSTER_F64 ? "fp64" : "fp32", "ranks", t->size, "nodes",
        muster_nodes(t->m), "devices", cores_devices(muster_device(t->m)), "machines",
        t->cores.machines, "cores", t->cores.used, "cores_shared", t->cores.shared,
        "blas_threads", t->blas_threads, "backend", muster_backend(t->m), "transport",
        muster_transport(t->m));
    if (!json)
        return NULL;
    json_object_set_new(json, "ranks_lost", json_integer(t->lost));
    json_object_set_new(json, "batch", json_integer(opt->batch));
    json_object_set_new(json, "accumulate", json_integer(opt->accumulate));
    json_object_set_new(json, "effective_batch",
                        json_integer((json_int_t)train_effective_batch(t)));
    json_object_set_new(json, "samples", json_integer((json_int_t)t->train_set.n));
    json_object_set_new(json, "samples_seen",
                        json_integer((json_int_t)t->samples_seen));
    json_object_set_new(json, "epochs", json_integer(opt->epochs));
    json_object_set_new(json, "first_step", json_integer((json_int_t)t->first_step));
    json_object_set_new(json, "steps", json_integer((json_int_t)t->step));
    json_object_set_new(json, "seconds", json_real(t->train_seconds));
    json_object_set_new(json, "test_seconds", json_real(t->test_seconds));
    json_object_set_new(json, "cpu_seconds", json_real(cpu_seconds(t)));
    json_object_set_new(json, "loss", json_real(t->last_loss));
    json_object_set_new(json, "test_loss", json_real(t->test_loss));
    json_object_set_new(json, "test_accuracy", json_real(t->test_accuracy));
    json_object_set_new(json, "weights", json_string(weights));
    json_object_set_new(json, "finished", json_boolean(t->step >= t->steps_total));
    json_object_set_new(json, "compress", json_string(opt->compress_text));
    json_object_set_new(json, "zero", json_boolean(opt->zero));
    json_object_set_new(json, "memory", memory_json(t));
    if (t->step > t->first_step)
        json_object_set_new(json, "gradient_bytes_per_step",
                            json_integer((json_int_t)(muster_ddp_wire_bytes(t->ddp) /
                                                      (t->step - t->first_step))));
    json_object_set_new(json, "checkpoints", json_integer(t->nsaves));
    json_object_set_new(json, "by_rank", ranks_json(t));
    json_object_set_new(json, "moments", moments_json(t));
    json_object_set_new(json, "losses", losses);
    return json;
}

int train_write_result(const struct train *t, struct mu_err *err)
{
    const char *path = t->opt->result;
    json_t *json;
    FILE *f;
    int rc = 0;

    if (t->rank != 0 || !path)
        return 0;
    json = result_json(t);
    f = fopen(path, "we");
    if (!json || !f ||
        json_dumpf(json, f, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) < 0 ||
        fputc('\n', f) == EOF || fflush(f) == EOF)
        rc = mu_err_set(err, MUSTER_EIO, "the result cannot be written to %s: %s", path,
                        strerror(errno));
    if (f)
        fclose(f);
    json_decref(json);
    return rc;
}
