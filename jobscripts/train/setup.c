/* SPDX-License-Identifier: BSD-3-Clause */
/* setup.c - set up the parts of a run, and print them */
#include "jobscripts/train/train.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int train_failed(const struct train *t, int status, struct mu_err *err)
{
    return mu_err_set(err, status, "%s", muster_error(t->m));
}

int train_agree(struct train *t, int rc, const char *what, struct mu_err *err)
{
    /* The lowest failing rank decides: status in the low bits, rank above, minimum over
     * ranks.
     */
    int32_t worst = rc < 0 ? t->rank * 256 + (err->code & 255) : INT32_MAX;
    int status = muster_allreduce(t->m, &worst, 1, MUSTER_I32, MUSTER_MIN, NULL);

    if (status == MUSTER_OK)
        status = muster_barrier(t->m); /* on a GPU the line above only enqueued */
    if (status != MUSTER_OK)
        return rc < 0 ? -1 : train_failed(t, status, err);
    if (worst == INT32_MAX)
        return 0;
    t->agreed = 1;
    t->mine = rc < 0;
    if (rc == 0)
        mu_err_set(err, worst % 256, "stopping: rank %d (node %s) could not %s",
                   (int)(worst / 256), muster_host(t->m, worst / 256), what);
    return -1;
}

static int load_data(struct train *t, struct mu_err *err)
{
    const struct train_options *opt = t->opt;

    if (dataset_load(&t->train_set, opt->data, "train", opt->samples, err) < 0 ||
        dataset_load(&t->test_set, opt->data, "t10k", opt->test_samples, err) < 0) {
        err->code = TRAIN_EXIT_DATA;
        return -1;
    }
    if (t->train_set.rows != t->test_set.rows || t->train_set.cols != t->test_set.cols)
        return mu_err_set(err, TRAIN_EXIT_DATA,
                          "%s: training and test images differ in size", opt->data);
    return 0;
}

/* The GPU engine is a module in the folder of the NCCL backend. */
static const struct engine_ops *find_engine(struct train *t, struct mu_err *err)
{
    int wide = t->opt->dtype == MUSTER_F64;
    const char *dir = getenv("MUSTER_BACKEND_DIR");
    const struct engine_ops *table;
    char path[4096];
    void *module;

    if (muster_device(t->m) < 0)
        return wide ? &engine_cpu_f64 : &engine_cpu_f32;
    snprintf(path, sizeof path, "%s/train_cuda.so", dir ? dir : MUSTER_MODULE_DIR);
    module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    table = module ? dlsym(module, "engine_cuda") : NULL;
    if (!table)
        mu_err_set(err, MUSTER_EDEVICE,
                   "the GPU engine cannot be loaded: %s; build with CUDA, or choose "
                   "--backend host",
                   dlerror());
    return table ? &table[wide] : NULL;
}

static int open_engine(struct train *t, struct mu_err *err)
{
    const struct train_options *opt = t->opt;

    if (model_build(&t->model, opt->model, t->train_set.rows, t->train_set.cols,
                    (int)opt->hidden, DATA_CLASSES, err) < 0) {
        err->code = MUSTER_EUSAGE;
        return -1;
    }
    t->ops = find_engine(t, err);
    if (!t->ops)
        return -1;
    if (opt->zero && !t->ops->shard)
        return mu_err_set(
            err, MUSTER_EUSAGE,
            "--zero works on CPUs only, and this is the GPU engine (%s): leave it "
            "out, or choose --backend host",
            t->ops->name);
    if (t->ops->open(&t->model, muster_device(t->m), (int)opt->batch, opt->seed,
                     &t->engine, err) < 0)
        return -1;
    return 0;
}

uint64_t train_momenta_bytes(const struct train *t)
{
    uint64_t n = 0;

    for (int i = 0; i < t->model.nparams; i++)
        n += t->to[i] - t->from[i];
    return n * muster_dtype_size(t->ops->dtype);
}

/* The elements of parameter i that are in this rank's part of its bucket. */
static int find_part(struct train *t, int i)
{
    size_t size = muster_dtype_size(t->ops->dtype), count = t->model.params[i].count;
    uintptr_t grad = (uintptr_t)muster_ddp_grad(t->ddp, i), start, end;
    struct muster_shard part;
    int status = muster_ddp_shard(t->ddp, muster_ddp_bucket_of(t->ddp, i), &part);

    if (status != MUSTER_OK)
        return status;
    start = (uintptr_t)part.grad;
    end = start + part.count * size;
    t->from[i] = start <= grad                 ? 0
                 : start - grad < count * size ? (start - grad) / size
                                               : count;
    t->to[i] = end <= grad                 ? 0
               : end - grad < count * size ? (end - grad) / size
                                           : count;
    if (t->to[i] < t->from[i])
        t->to[i] = t->from[i];
    return MUSTER_OK;
}

/* Move weights into the memory of libmuster; keep momenta of this rank's part only. */
static int shard_state(struct train *t, struct mu_err *err)
{
    struct muster_shard part;
    uint64_t padded = 0;

    for (int i = 0; i < t->model.nparams; i++) {
        int status = find_part(t, i);

        if (status != MUSTER_OK)
            return train_failed(t, status, err);
        if (t->ops->shard(t->engine, i, muster_ddp_data(t->ddp, i), t->from[i],
                          t->to[i], err) < 0)
            return -1;
    }
    for (int b = 0; b < muster_ddp_buckets(t->ddp); b++) {
        muster_ddp_shard(t->ddp, b, &part);
        padded += part.count * (size_t)t->size;
    }
    t->weights_bytes = padded * muster_dtype_size(t->ops->dtype);
    return 0;
}

static int register_params(struct train *t, struct mu_err *err)
{
    const struct train_options *opt = t->opt;
    struct muster_param params[MODEL_PARAMS] = { { 0 } };
    size_t rows[MODEL_PARAMS];
    struct muster_hook hook = { .compress = (enum muster_compress)opt->compress,
                                .rank = (int)opt->compress_rank,
                                .rows = rows };
    struct muster_ddp_options options = { .first_bucket = opt->first_bucket,
                                          .bucket_cap = opt->bucket_cap,
                                          .shard = opt->zero,
                                          .hook = opt->compress >= 0 ? &hook : NULL };
    int status;

    for (int i = 0; i < t->model.nparams; i++) {
        const struct model_param *param = &t->model.params[i];

        params[i] = (struct muster_param){
            .name = param->name,
            .count = param->count,
            .dtype = t->ops->dtype,
            .data = opt->zero ? NULL : t->ops->weights(t->engine, i),
        };
        rows[i] = param->fan_in ? param->count / (size_t)param->fan_in : 0;
        t->to[i] = param->count;
    }
    t->weights_bytes = t->model.nweights * muster_dtype_size(t->ops->dtype);
    status = muster_ddp_create(t->m, params, t->model.nparams, &options, &t->ddp);
    if (status != MUSTER_OK)
        return train_failed(t, status, err);
    for (int i = 0; i < t->model.nparams; i++)
        t->ops->set_grad(t->engine, i, muster_ddp_grad(t->ddp, i));
    if (opt->zero && shard_state(t, err) < 0)
        return -1;
    status = muster_ddp_broadcast(t->ddp, 0);
    return status == MUSTER_OK ? 0 : train_failed(t, status, err);
}

static int open_sampler(struct train *t, struct mu_err *err)
{
    struct muster_sampler_options options = {
        .samples = t->train_set.n,
        .batch = (uint64_t)(t->opt->batch * t->opt->accumulate),
        .seed = t->opt->seed,
        .tail = t->opt->tail,
    };
    int status = muster_sampler_create(t->m, &options, &t->sampler);

    if (status != MUSTER_OK)
        return train_failed(t, status, err);
    t->steps_epoch = muster_sampler_steps(t->sampler);
    return 0;
}

/* Count from the position of the sampler, also after a resume with another number of
 * ranks.
 */
int train_count_steps(struct train *t, struct mu_err *err)
{
    uint64_t left = muster_sampler_steps(t->sampler);
    double *loss;

    if (t->epoch + 1 < t->opt->epochs)
        left += (uint64_t)(t->opt->epochs - t->epoch - 1) * t->steps_epoch;
    t->steps_total = t->epoch < t->opt->epochs ? t->step + left : t->step;
    if (t->opt->max_steps && t->opt->max_steps < t->steps_total)
        t->steps_total = t->opt->max_steps > t->step ? t->opt->max_steps : t->step;
    loss = realloc(t->loss, (t->steps_total - t->first_step + 1) * sizeof *loss);
    if (!loss)
        return mu_err_set(err, MUSTER_EMEMORY, "no memory for the losses");
    t->loss = loss;
    return 0;
}

static void banner_batch(const struct train *t)
{
    const struct train_options *opt = t->opt;

    printf("Batch per GPU:        %ld", opt->batch);
    if (opt->accumulate > 1)
        printf(", accumulated %ld times", opt->accumulate);
    printf("\nEffective batch size: %ld", opt->batch);
    if (opt->accumulate > 1)
        printf(" x %ld", opt->accumulate);
    printf(" x %d = %llu\n", t->size, (unsigned long long)train_effective_batch(t));
}

static void banner_cores(const struct train *t)
{
    printf("Cores used:           %d of %d allowed", t->cores.used, t->cores.allowed);
    if (t->cores.shared)
        printf(", shared by the %d ranks", t->size);
    if (muster_nodes(t->m) > t->cores.machines)
        printf(" (the %d nodes are %d machine%s)", muster_nodes(t->m),
               t->cores.machines, mu_plural(t->cores.machines));
    printf(", %d BLAS thread%s per rank\n", t->blas_threads,
           mu_plural(t->blas_threads));
}

static void banner(const struct train *t)
{
    const struct train_options *opt = t->opt;
    double scale = (double)train_effective_batch(t) / TRAIN_LR_BATCH;
    int nodes = muster_nodes(t->m);

    printf("DDP Configuration\n======================================\n");
    printf("World size:           %d rank%s on %d node%s\n", t->size,
           mu_plural(t->size), nodes, mu_plural(nodes));
    printf("Devices:              %s\n", cores_devices(muster_device(t->m)));
    banner_cores(t);
    banner_batch(t);
    printf("Backend:              %s\n", muster_backend(t->m));
    printf("Communication:        %s, %d bucket%s\n", muster_transport(t->m),
           muster_ddp_buckets(t->ddp), mu_plural(muster_ddp_buckets(t->ddp)));
    if (opt->compress >= 0 || opt->zero)
        printf("Gradients:            %s%s\n",
               opt->compress >= 0 ? opt->compress_text : "reduce-scattered",
               opt->zero ? "; optimizer state sharded (ZeRO-1)" : "");
    printf("Model:                %s, %zu parameters, %s, %s\n", t->model.text,
           t->model.nweights, opt->dtype == MUSTER_F64 ? "fp64" : "fp32", t->ops->name);
    printf(
        "Samples:              %llu to train on, %llu to test; %llu step%s per epoch\n",
        (unsigned long long)t->train_set.n, (unsigned long long)t->test_set.n,
        (unsigned long long)t->steps_epoch, mu_plural((long)t->steps_epoch));
    printf("Learning rate:        %g x %llu/%d = %g, warm-up %g epochs, then %s\n",
           opt->lr, (unsigned long long)train_effective_batch(t), TRAIN_LR_BATCH,
           opt->lr * scale, opt->warmup, opt->cosine ? "cosine" : "constant");
    printf("======================================\n");
    fflush(stdout);
}

int train_setup(struct train *t, struct mu_err *err)
{
    int status;

    if (t->opt->ranks && t->opt->ranks != t->size) {
        t->agreed = 1;
        return mu_err_set(err, MUSTER_ECONTRACT,
                          "this run has %d rank%s, but --ranks is %ld; start it with "
                          "srun --ntasks=%ld",
                          t->size, mu_plural(t->size), t->opt->ranks, t->opt->ranks);
    }
    t->blas_threads = engine_cpu_threads();
    status = cores_collect(t->m, t->blas_threads, &t->cores);
    if (status != MUSTER_OK)
        return train_failed(t, status, err);
    if (train_agree(t, load_data(t, err), "read the data", err) < 0 ||
        train_agree(t, open_engine(t, err), "open the model", err) < 0)
        return -1;
    if (register_params(t, err) < 0 || open_sampler(t, err) < 0 ||
        train_open_checkpoint(t, err) < 0)
        return -1;
    if (t->rank == 0)
        banner(t);
    if (train_resume(t, err) < 0 || train_count_steps(t, err) < 0)
        return -1;
    return train_agree(t, train_open_curve(t, err), "open the curve", err);
}

void train_clear(struct train *t)
{
    if (t->engine)
        t->ops->close(t->engine);
    muster_checkpoint_close(t->checkpoint);
    if (t->curve)
        fclose(t->curve);
    muster_sampler_destroy(t->sampler);
    muster_ddp_destroy(t->ddp);
    dataset_clear(&t->train_set);
    dataset_clear(&t->test_set);
    free(t->loss);
    free(t->figures);
    free(t->moments);
}
