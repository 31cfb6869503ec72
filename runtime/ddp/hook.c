/* SPDX-License-Identifier: BSD-3-Clause */
/* hook.c - choose the compression of buckets; the user's own */
#include "runtime/ddp/ddp.h"

#include "runtime/core/dtype.h"

/* `given` elements of this rank take part in the sum. */
static int start_coll(struct muster_ddp *ddp, int b, struct mu_coll *coll, size_t given,
                      struct mu_err *err)
{
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];

    coll->stream = bucket->stream;
    coll->what = bucket->what;
    coll->owner = mu_ddp_owner(ddp, b);
    if (coll->count == 0)
        return 0;
    if (mu_coll_start(ddp->m, coll, &bucket->started[bucket->nstarted], err) < 0)
        return -1;
    bucket->nstarted++;
    ddp->wire_bytes += given * mu_dtype_size(coll->dtype);
    return 0;
}

int mu_hook_reduce(struct muster_ddp *ddp, int b, enum muster_dtype dtype,
                   enum muster_op op, void *data, size_t count, double scale,
                   struct mu_err *err)
{
    struct mu_coll coll = {
        .kind = MU_COLL_ALLREDUCE,
        .dtype = dtype,
        .op = op,
        .send = data,
        .recv = data,
        .count = count,
        .scale = scale,
    };

    return start_coll(ddp, b, &coll, count, err);
}

int mu_hook_scatter(struct muster_ddp *ddp, int b, enum muster_dtype dtype, char *data,
                    struct mu_err *err)
{
    const struct mu_world *w = ddp->m->world;
    size_t part = mu_ddp_part(ddp, b);
    struct mu_coll coll = {
        .kind = MU_COLL_REDUCE_SCATTER,
        .dtype = dtype,
        .op = MUSTER_SUM,
        .send = data,
        .recv = data + part * (size_t)w->rank * mu_dtype_size(dtype),
        .count = part,
        .scale = 1,
    };

    return start_coll(ddp, b, &coll, part * (size_t)w->size, err);
}

/* ---- The user's own ---------------------------------------------------------------
 */

static int user_open(struct muster_ddp *ddp, void **state, struct mu_err *err)
{
    return ddp->hook_options.reduce
               ? 0
               : mu_err_set(err, MUSTER_EUSAGE, "a hook of your own needs its reduce");
}

static void user_close(struct muster_ddp *ddp, void *state)
{
}

static int user_start(struct muster_ddp *ddp, void *state, int b, struct mu_err *err)
{
    return 0;
}

static int user_call(struct muster_ddp *ddp, int b, struct mu_err *err)
{
    const struct mu_bucket_info *info = &ddp->plan.bucket[b];
    struct muster_bucket bucket = {
        .index = b,
        .dtype = info->dtype,
        .count = info->bytes / mu_dtype_size(info->dtype),
        .data = ddp->bucket[b].mem,
        .stream = ddp->bucket[b].stream,
    };
    bool known;
    int rc;

    ddp->m->nested++; /* we are in the middle of sync */
    ddp->m->owner = mu_ddp_owner(ddp, b);
    rc = ddp->hook_options.reduce(ddp->hook_options.arg, ddp->m, &bucket);
    ddp->m->owner = (struct mu_owner){ 0 };
    ddp->m->nested--;
    known = mu_status_known(rc);
    if (rc == 0)
        return 0;
    return mu_err_set(err, known ? rc : MUSTER_EUSAGE,
                      "your hook returned %d for bucket %d%s%s", rc, b,
                      known ? ": " : "", known ? muster_error(ddp->m) : "");
}

/* Gradients that no rank has keep their values: put them aside and hand out zeros, or,
 * with `back`, bring them again. Returns how many bytes that are.
 */
static size_t set_aside(struct muster_ddp *ddp, int b, char *aside, bool back, int *rc,
                        struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->m->ops;
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    size_t at = 0;

    for (int k = 0; *rc == 0 && k < ddp->plan.bucket[b].nparams; k++) {
        int i = bucket->param[k];
        char *mem = bucket->mem + ddp->plan.place[i].offset;
        size_t bytes = ddp->param[i].count * mu_dtype_size(ddp->param[i].dtype);

        if (!ddp->absent[i])
            continue;
        if (aside)
            *rc = ops->copy(ddp->m->backend, back ? mem : aside + at,
                            back ? aside + at : mem, bytes, bucket->stream, err);
        if (aside && !back && *rc == 0)
            *rc = ops->zero(ddp->m->backend, mem, bytes, bucket->stream, err);
        at += bytes;
    }
    return at;
}

static int user_finish(struct muster_ddp *ddp, void *state, int b, void *stream,
                       struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->m->ops;
    struct mu_backend *backend = ddp->m->backend;
    int rc = 0;
    size_t bytes = set_aside(ddp, b, NULL, false, &rc, err);
    char *aside = NULL;

    if (mu_ddp_need_host(ddp, "", NULL) < 0 && ddp->bucket[b].stream != stream)
        return mu_err_set(
            err, MUSTER_EUSAGE,
            "bucket %d: with a hook of your own, give muster_ddp_sync the "
            "stream that the gradients come from",
            b);
    if (bytes > 0 && !(aside = ops->alloc(backend, bytes, err)))
        return -1;
    if (aside)
        set_aside(ddp, b, aside, false, &rc, err);
    if (rc == 0)
        rc = user_call(ddp, b, err);
    if (rc == 0 && aside)
        set_aside(ddp, b, aside, true, &rc, err);
    if (rc == 0 && aside)
        rc = ops->drain(backend, stream, err);
    if (aside)
        ops->free(backend, aside);
    return rc;
}

const struct mu_hook_ops mu_hook_user = {
    .name = "your own hook",
    .open = user_open,
    .close = user_close,
    .start = user_start,
    .finish = user_finish,
};

/* ---- The choice ---------------------------------------------------------------------
 */

static bool is_cast(const struct mu_hook_ops *hook)
{
    return hook == &mu_hook_bf16 || hook == &mu_hook_f16;
}

/* On GPUs the kernels that cast know f32 only. */
static bool takes(const struct muster_ddp *ddp, const struct mu_hook_ops *hook,
                  enum muster_dtype dtype)
{
    bool host = mu_ddp_need_host(ddp, hook->name, NULL) == 0;

    if (hook->f32)
        return dtype == MUSTER_F32;
    if (hook->floats)
        return dtype == MUSTER_F32 || mu_dtype_size(dtype) == 2;
    return host || !is_cast(hook) || dtype != MUSTER_F64;
}

static int check(struct muster_ddp *ddp, const struct mu_hook_ops *hook,
                 struct mu_err *err)
{
    for (int i = 0; i < ddp->nparams; i++)
        if (!takes(ddp, hook, ddp->param[i].dtype))
            return mu_err_set(err, MUSTER_EUSAGE,
                              "%s compresses f32%s, but parameter '%s' is %s",
                              hook->name, hook->floats ? " and 16-bit floats" : "",
                              ddp->param[i].name, mu_dtype_name(ddp->param[i].dtype));
    return 0;
}

int mu_hook_choose(struct muster_ddp *ddp, struct mu_err *err)
{
    static const struct mu_hook_ops *const hooks[] = {
        [MUSTER_COMPRESS_USER] = &mu_hook_user,
        [MUSTER_COMPRESS_BF16] = &mu_hook_bf16,
        [MUSTER_COMPRESS_F16] = &mu_hook_f16,
        [MUSTER_COMPRESS_INT8] = &mu_hook_int8,
        [MUSTER_COMPRESS_POWERSGD] = &mu_hook_powersgd,
    };
    unsigned which = ddp->hook_options.compress;

    if (which >= sizeof hooks / sizeof hooks[0])
        return mu_err_set(err, MUSTER_EUSAGE, "there is no compression number %u",
                          which);
    if (check(ddp, hooks[which], err) < 0 ||
        hooks[which]->open(ddp, &ddp->hook_state, err) < 0)
        return -1;
    ddp->hook = hooks[which];
    if (mu_ddp_state_open(ddp, err) < 0)
        return -1;
    for (int b = 0; b < ddp->plan.nbuckets; b++) {
        /* 16-bit gradients are as short already. */
        ddp->bucket[b].hooked =
            ddp->plan.bucket[b].bytes > 0 &&
            !(is_cast(ddp->hook) && mu_dtype_size(ddp->plan.bucket[b].dtype) <= 2);
    }
    return 0;
}
