/* SPDX-License-Identifier: BSD-3-Clause */
/* hook.c - choose the compression; the user's own */
#include "runtime/api/ddp.h"

#include "runtime/core/dtype.h"

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

static int user_finish(struct muster_ddp *ddp, void *state, int b, void *stream,
                       struct mu_err *err)
{
    const struct mu_bucket_info *info = &ddp->plan.bucket[b];
    struct muster_bucket bucket = {
        .index = b,
        .dtype = info->dtype,
        .count = info->bytes / mu_dtype_size(info->dtype),
        .data = ddp->bucket[b].mem,
    };
    int rc = ddp->hook_options.reduce(ddp->hook_options.arg, ddp->m, &bucket);

    return rc == 0
               ? 0
               : mu_err_set(
                     err,
                     rc >= MUSTER_EUSAGE && rc <= MUSTER_EINTERNAL ? rc : MUSTER_EUSAGE,
                     "your hook returned %d for bucket %d: %s", rc, b,
                     muster_error(ddp->m));
}

const struct mu_hook_ops mu_hook_user = {
    .name = "user",
    .open = user_open,
    .close = user_close,
    .start = user_start,
    .finish = user_finish,
};

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
    const struct mu_hook_ops *hook;

    if (which >= sizeof hooks / sizeof hooks[0])
        return mu_err_set(err, MUSTER_EUSAGE, "there is no compression number %u",
                          which);
    hook = hooks[which];
    if (hook->host_f32) {
        if (mu_ddp_need_host(ddp, hook->name, err) < 0)
            return -1;
        for (int b = 0; b < ddp->plan.nbuckets; b++)
            if (ddp->plan.bucket[b].dtype != MUSTER_F32)
                return mu_err_set(err, MUSTER_EUSAGE, "%s compresses f32, not %s",
                                  hook->name, mu_dtype_name(ddp->plan.bucket[b].dtype));
    }
    if (hook->open(ddp, &ddp->hook_state, err) < 0)
        return -1;
    ddp->hook = hook;
    return 0;
}
