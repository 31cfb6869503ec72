/* SPDX-License-Identifier: BSD-3-Clause */
/* hook.c - choose the compression of buckets */
#include "runtime/ddp/ddp.h"

#include "runtime/core/dtype.h"

static bool is_cast(const struct mu_hook_ops *hook)
{
    return hook == &mu_hook_bf16 || hook == &mu_hook_f16;
}

/* On GPUs the kernels cast f32 only. */
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
        return mu_err_set(err, MUSTER_EUSAGE, "unknown compression %u", which);
    if (check(ddp, hooks[which], err) < 0 ||
        hooks[which]->open(ddp, &ddp->hook_state, err) < 0)
        return -1;
    ddp->hook = hooks[which];
    if (mu_ddp_state_open(ddp, err) < 0)
        return -1;
    for (int b = 0; b < ddp->plan.nbuckets; b++) {
        /* A cast does not shorten 16-bit gradients. */
        ddp->bucket[b].hooked =
            ddp->plan.bucket[b].bytes > 0 &&
            !(is_cast(ddp->hook) && mu_dtype_size(ddp->plan.bucket[b].dtype) <= 2);
    }
    return 0;
}
