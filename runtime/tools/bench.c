/* SPDX-License-Identifier: BSD-3-Clause */
/* bench.c - muster bench: how fast the ranks of a step, or of this node, move data
 *
 * It links no CUDA, so that it starts on any machine. GPUs are measured by a program
 * beside it.
 */
#include "runtime/tools/bench.h"
#include "runtime/tools/bench_compare.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPU_PROGRAM "muster-bench-gpu"

static void copy(void *to, const void *from, size_t bytes, bool put)
{
    (void)put;
    memcpy(to, from, bytes);
}

static const struct bench_memory memory = { .alloc = malloc,
                                            .free = free,
                                            .copy = copy };

static int run(struct muster *m, const struct bench_options *options, double init_ms)
{
    struct bench b = { .options = options, .m = m, .memory = &memory };
    int rc;

    if (muster_size(m) == 1) {
        fprintf(stderr, "muster bench: one rank moves no data; start it by srun "
                        "--mpi=pmix, or with --ranks N\n");
        muster_finalize(m);
        return 2;
    }
    bench_print(&b,
                "# %d ranks on %d node%s, host memory, %s, muster %s, muster_init "
                "%.0f ms\n",
                muster_size(m), muster_nodes(m), muster_nodes(m) == 1 ? "" : "s",
                muster_transport(m), muster_version(), init_ms);
    rc = strcmp(options->kind, "pairs") == 0     ? bench_pairs(&b)
         : strcmp(options->kind, "lanes") == 0   ? bench_lanes(&b)
         : strcmp(options->kind, "compare") == 0 ? bench_compare(&b, &bench_engine_host)
                                                 : bench_host(&b);
    if (muster_finalize(m) != MUSTER_OK && rc == 0)
        rc = MUSTER_EINTERNAL;
    return rc;
}

/* Returns only if the program beside this one could not be started. */
static int start_for_gpus(char **argv)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - sizeof GPU_PROGRAM);
    char *slash;

    path[n > 0 ? n : 0] = '\0';
    slash = strrchr(path, '/');
    memcpy(slash ? slash + 1 : path, GPU_PROGRAM, sizeof GPU_PROGRAM);
    execv(path, argv);
    if (errno == ENOENT)
        fprintf(stderr,
                "muster bench: there is no %s, which configure builds where it finds "
                "CUDA and NCCL; --host measures host memory\n",
                path);
    else
        fprintf(stderr, "muster bench: cannot start %s: %s\n", path, strerror(errno));
    return 2;
}

int main(int argc, char **argv)
{
    struct bench_options options;

    bench_options_read(argc, argv, &options);
    return options.host ? bench_start(&options, run) : start_for_gpus(argv);
}
