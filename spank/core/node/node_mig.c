/* SPDX-License-Identifier: BSD-3-Clause */
/* node_mig.c - replaces one GPU by several devices (MIG), which the PCI bus does not
 * show
 */
#include <errno.h>
#include <stdlib.h>

#include "spank/core/node/node.h"

/* The index, before the split, of the GPU that entry i belongs to. */
static int origin(int i, int gpu, int parts)
{
    return i < gpu ? i : i < gpu + parts ? gpu : i - parts + 1;
}

/* Copy a matrix of `cols` columns with one row for each part of the GPU; if square,
 * also with one column for each part. `self` is the value between two parts of the GPU.
 */
static int *spread(const int *old, int ngpus, int cols, int gpu, int parts, bool square,
                   int self)
{
    int rows = ngpus + parts - 1, width = square ? rows : cols;
    int *m = calloc((size_t)rows * (size_t)width + 1, sizeof *m);

    for (int r = 0; m && r < rows; r++)
        for (int c = 0; c < width; c++) {
            int from = origin(r, gpu, parts), to = square ? origin(c, gpu, parts) : c;

            m[r * width + c] =
                square && r != c && from == to ? self : old[from * cols + to];
        }
    return m;
}

int mu_node_split_gpu(struct mu_node *node, int gpu, int parts, struct mu_err *err)
{
    int n = node->ngpus, total = n + parts - 1;
    struct mu_gpu *gpus;
    int *nic = NULL, *peer = NULL, *links = NULL;

    if (total > MU_GPUS_MAX)
        return mu_err_set(
            err, EINVAL,
            "the machine has %d GPUs and MIG devices; at most %d are possible", total,
            MU_GPUS_MAX);
    gpus = calloc((size_t)total, sizeof *gpus);
    if (node->gpu_nic)
        nic = spread((int *)node->gpu_nic, n, node->nnics, gpu, parts, false, 0);
    if (node->gpu_gpu)
        peer = spread((int *)node->gpu_gpu, n, n, gpu, parts, true, MU_NEAR_PIX);
    if (node->nvlinks)
        links = spread(node->nvlinks, n, n, gpu, parts, true, 0);
    if (!gpus || (node->gpu_nic && !nic) || (node->gpu_gpu && !peer) ||
        (node->nvlinks && !links)) {
        free(gpus);
        free(nic);
        free(peer);
        free(links);
        return mu_err_set(err, ENOMEM, "out of memory for %d GPUs", total);
    }
    for (int i = 0; i < total; i++) {
        gpus[i] = node->gpus[origin(i, gpu, parts)];
        if (i >= gpu && i < gpu + parts)
            gpus[i].sub = i - gpu;
    }
    free(node->gpus);
    free(node->gpu_nic);
    free(node->gpu_gpu);
    free(node->nvlinks);
    node->gpus = gpus;
    node->gpu_nic = (enum mu_nearness *)nic;
    node->gpu_gpu = (enum mu_nearness *)peer;
    node->nvlinks = links;
    node->ngpus = total;
    return 0;
}
