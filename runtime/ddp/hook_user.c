/* SPDX-License-Identifier: BSD-3-Clause */
/* hook_user.c - a hook of the user */
#include "runtime/ddp/ddp.h"

#include "runtime/core/dtype.h"
#include "runtime/core/status.h"

static int user_open(struct muster_ddp *ddp, void **state, struct mu_err *err)
{
    return ddp->hook_options.reduce
               ? 0
               : mu_err_set(err, MUSTER_EUSAGE,
                            "a user hook needs the function reduce");
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

    ddp->recover->nested++; /* the hook runs in the middle of sync */
    ddp->comm->owner = mu_ddp_owner(ddp, b);
    rc = ddp->hook_options.reduce(ddp->hook_options.arg, ddp->m, &bucket);
    ddp->comm->owner = (struct mu_owner){ 0 };
    ddp->recover->nested--;
    known = mu_status_known(rc);
    if (rc == 0)
        return 0;
    return mu_err_set(err, known ? rc : MUSTER_EUSAGE,
                      "the user hook returned %d for bucket %d%s%s", rc, b,
                      known ? ": " : "", known ? ddp->last->text : "");
}

/* Gradients that no rank has must keep their values: save them and pass zeros to the
 * hook, or, with `back`, restore them. Returns how many bytes they take.
 */
static size_t set_aside(struct muster_ddp *ddp, int b, char *aside, bool back, int *rc,
                        struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->comm->ops;
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    size_t at = 0;

    for (int k = 0; *rc == 0 && k < ddp->plan.bucket[b].nparams; k++) {
        int i = bucket->param[k];
        char *mem = bucket->mem + ddp->plan.place[i].offset;
        size_t bytes = ddp->param[i].count * mu_dtype_size(ddp->param[i].dtype);

        if (!ddp->absent[i])
            continue;
        if (aside)
            *rc = ops->copy(ddp->comm->backend, back ? mem : aside + at,
                            back ? aside + at : mem, bytes, bucket->stream, err);
        if (aside && !back && *rc == 0)
            *rc = ops->zero(ddp->comm->backend, mem, bytes, bucket->stream, err);
        at += bytes;
    }
    return at;
}

static int user_finish(struct muster_ddp *ddp, void *state, int b, void *stream,
                       struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->comm->ops;
    struct mu_backend *backend = ddp->comm->backend;
    int rc = 0;
    size_t bytes = set_aside(ddp, b, NULL, false, &rc, err);
    char *aside = NULL;

    if (mu_ddp_need_host(ddp, "", NULL) < 0 && ddp->bucket[b].stream != stream)
        return mu_err_set(
            err, MUSTER_EUSAGE,
            "bucket %d: with a user hook, pass muster_ddp_sync the stream that "
            "the gradients are on",
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
    .name = "the user hook",
    .open = user_open,
    .close = user_close,
    .start = user_start,
    .finish = user_finish,
};
