/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_gpu.c - muster bench on GPUs: the program that links CUDA */
#include "runtime/tools/bench.h"

#include <stdio.h>
#include <string.h>

#include "runtime/backend/nccl/bench/gpu.h"

static int end(struct muster *m, int rc)
{
    return muster_finalize(m) != MUSTER_OK && rc == 0 ? MUSTER_EINTERNAL : rc;
}

static int run(struct muster *m, const struct bench_options *options, double init_ms)
{
    struct bench b = { .options = options, .m = m };
    int rc;

    if (strcmp(options->kind, "tune") == 0)
        return end(m, bench_tune(&b));
    if (strcmp(muster_backend(m), "nccl") != 0) {
        fprintf(stderr,
                "muster bench: GPUs are needed, but the backend is %s; --host measures "
                "host memory\n",
                muster_backend(m));
        muster_finalize(m);
        return MUSTER_EDEVICE;
    }
    bench_module_open(&b);
    b.stream = mu_gpu_stream();
    bench_print(&b, "# %d x %s, %s, muster %s, muster_init %.0f ms\n", muster_size(m),
                mu_gpu_name(), muster_transport(m), muster_version(), init_ms);
    rc = strcmp(options->kind, "ddp") == 0      ? bench_ddp(&b)
         : strcmp(options->kind, "beside") == 0 ? bench_beside(&b)
                                                : bench_collectives(&b);
    return end(m, rc);
}

int main(int argc, char **argv)
{
    struct bench_options options;

    bench_options_read(argc, argv, &options);
    return bench_start(&options, run);
}
