/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_opts.c - the text of --muster and of --gpu-bind */
#include "spank/core/gpubind/gpu_bind.h"
#include "spank/core/options/muster_option.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct mu_gpu_bind bind;
    static struct mu_opts opts;
    char *text = fuzz_text(data, size);
    struct mu_err err;

    mu_opts_defaults(&opts);
    mu_opts_parse(text, &opts, &err);
    mu_gpu_bind_parse(text, &bind, &err);
    free(text);
    return 0;
}
