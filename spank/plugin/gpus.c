/* SPDX-License-Identifier: BSD-3-Clause */
/* gpus.c - the step's GPUs by Slurm's numbers, by node index and by CUDA's numbers */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "spank/plugin/plugin.h"

/* Does a driver have this GPU? NVIDIA's driver leaves out a GPU that is lost or passed
 * to a virtual machine; Slurm and CUDA do not count it either.
 */
static bool is_driven(const struct mu_node *node, int gpu_node)
{
    if (node->gpus[gpu_node].vendor != MU_VENDOR_NVIDIA ||
        node->gpus[gpu_node].minor >= 0)
        return true;
    for (int i = 0; i < node->ngpus; i++)
        if (node->gpus[i].vendor == MU_VENDOR_NVIDIA && node->gpus[i].minor >= 0)
            return false;
    return true;
}

bool mu_gpus_have_minors(const struct mu_node *node)
{
    for (int i = 0; i < node->ngpus; i++)
        if (node->gpus[i].minor < 0 && is_driven(node, i))
            return false;
    return node->ngpus > 0;
}

static int node_of_num(const struct mu_node *node, const struct mu_gres_order *order,
                       int gpu_num)
{
    if (order->n > 0)
        return gpu_num < order->n ? order->gpu_node[gpu_num] : -1;
    for (int i = 0; i < node->ngpus; i++)
        if (is_driven(node, i) && gpu_num-- == 0)
            return i;
    return -1;
}

static bool is_uuid(const char *item)
{
    return strncmp(item, "GPU-", 4) == 0 || strncmp(item, "MIG-", 4) == 0;
}

/* The k-th item of a comma list. */
static bool nth_item(const char *list, int k, char *out, size_t len)
{
    size_t n;

    for (; k > 0 && list; k--)
        list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL;
    if (!list || !*list)
        return false;
    n = strcspn(list, ",");
    if (n >= len)
        return false;
    memcpy(out, list, n);
    out[n] = '\0';
    return true;
}

static int add_gpu(struct mu_alloc *alloc, int gpu_node, struct mu_err *err)
{
    int pos = alloc->ngpus;

    if (pos == MU_GPUS_MAX)
        return mu_err_set(err, E2BIG, "more than %d GPUs in one step", MU_GPUS_MAX);
    while (pos > 0 && alloc->gpu_node[pos - 1] > gpu_node) {
        alloc->gpu_node[pos] = alloc->gpu_node[pos - 1];
        pos--;
    }
    alloc->gpu_node[pos] = gpu_node;
    alloc->ngpus++;
    return 0;
}

int mu_gpus_of_step(const char *numbers, const char *visible,
                    const struct mu_gres_order *order, struct mu_alloc *alloc,
                    const struct mu_node *node, struct mu_err *err)
{
    alloc->ngpus = 0;
    /* Slurm writes both lists in the same order; the second has UUIDs of MIG devices
     * between the numbers of whole GPUs. */
    for (int k = 0;; k++) {
        char item[MU_NAME_LEN];
        bool uuid = nth_item(visible, k, item, sizeof item) && is_uuid(item);
        long gpu_num;
        int gpu_node;

        if (uuid) {
            gpu_node = mu_node_find_gpu(node, item);
            if (gpu_node < 0)
                return mu_err_set(err, ENODEV,
                                  "Slurm gave the step %s, which this node "
                                  "does not list; its locality is unknown",
                                  item);
        } else {
            if (!nth_item(numbers, k, item, sizeof item))
                return 0;
            if (mu_parse_int("SLURM_STEP_GPUS", item, 0, 65535, &gpu_num, err) < 0)
                return -1;
            gpu_node = node_of_num(node, order, (int)gpu_num);
            if (gpu_node < 0)
                return mu_err_set(err, ENODEV,
                                  "Slurm gave the step GPU %ld, but this node "
                                  "has %d GPU%s",
                                  gpu_num, node->ngpus, mu_plural(node->ngpus));
        }
        if (add_gpu(alloc, gpu_node, err) < 0)
            return -1;
    }
}

/* Path of a device file without its number. */
static const char *device_prefix(const struct mu_state *st)
{
    return st->site.devices[0] ? st->site.devices : "/dev/nvidia";
}

int mu_gpu_open(const struct mu_state *st, int gpu_node)
{
    int minor = st->node.gpus[gpu_node].minor;
    char path[300];
    struct stat file;

    if (st->site.devices[0] && !mu_gpus_have_minors(&st->node))
        minor = gpu_node;
    else if (st->site.topology[0] && !st->site.devices[0])
        return -1;
    if (minor < 0)
        return -1;
    snprintf(path, sizeof path, "%s%d", device_prefix(st), minor);
    if (stat(path, &file) < 0)
        return -1;
    /* access() checks the device cgroup as open() does, without waking up the GPU. */
    return access(path, R_OK | W_OK) == 0;
}

bool mu_gpus_confined(const struct mu_state *st)
{
    for (int minor = 0; minor < MU_GPUS_MAX; minor++) {
        char path[300];
        struct stat file;

        snprintf(path, sizeof path, "%s%d", device_prefix(st), minor);
        if (stat(path, &file) == 0 && access(path, R_OK | W_OK) < 0)
            return true;
    }
    return false;
}

/* Is it a GPU of the step, another slice of one of them, or a GPU of the job? */
static bool gpu_is_ours(const struct mu_state *st, int gpu_node)
{
    const struct mu_node *node = &st->node;
    char item[MU_NAME_LEN];
    long gpu_num;

    for (int pos = 0; pos < st->alloc.ngpus; pos++)
        if (st->alloc.gpu_node[pos] == gpu_node ||
            (node->gpus[gpu_node].minor >= 0 &&
             node->gpus[st->alloc.gpu_node[pos]].minor == node->gpus[gpu_node].minor))
            return true;
    for (int k = 0; nth_item(st->step.job_gpus, k, item, sizeof item); k++)
        if (mu_parse_int("SLURM_JOB_GPUS", item, 0, 65535, &gpu_num, NULL) == 0 &&
            node_of_num(node, &st->order, (int)gpu_num) == gpu_node)
            return true;
    return false;
}

int mu_gpus_foreign(const struct mu_state *st)
{
    int n = 0;

    for (int i = 0; i < st->node.ngpus; i++)
        n += !gpu_is_ours(st, i) && mu_gpu_open(st, i) == 1;
    return n;
}

/* Does a task number GPUs from 0 within the step? It does with confined devices. Used
 * where no device file can be tried (AMD and Intel GPUs, a recorded machine).
 */
static bool counts_within_step(const struct mu_state *st)
{
    return st->devices_confined ||
           (st->step.visible[0] && strcmp(st->step.visible, st->step.gpus) != 0);
}

/* CUDA's (or another vendor's) number of a GPU: its position, in PCI order, among the
 * GPUs of the same vendor that the task can open.
 */
static int cuda_of_node(const struct mu_state *st, int gpu_node)
{
    int gpu_cuda = 0;

    for (int i = 0; i < gpu_node; i++) {
        int open = mu_gpu_open(st, i);

        if (!is_driven(&st->node, i) ||
            st->node.gpus[i].vendor != st->node.gpus[gpu_node].vendor)
            continue;
        if (open < 0 && counts_within_step(st)) {
            open = 0;
            for (int pos = 0; pos < st->alloc.ngpus; pos++)
                open |= st->alloc.gpu_node[pos] == i;
        }
        gpu_cuda += open != 0;
    }
    return gpu_cuda;
}

int mu_gpus_visible(const struct mu_state *st, const int *gpu_node, int ngpus,
                    char *buf, size_t len, struct mu_err *err)
{
    bool uuids = strstr(st->step.visible, "GPU-") || strstr(st->step.visible, "MIG-");
    size_t at = 0;

    buf[0] = '\0';
    for (int k = 0; k < ngpus; k++) {
        char item[MU_NAME_LEN];

        if (uuids && st->node.gpus[gpu_node[k]].uuid[0])
            mu_copy(item, sizeof item, st->node.gpus[gpu_node[k]].uuid);
        else
            snprintf(item, sizeof item, "%d", cuda_of_node(st, gpu_node[k]));
        if (at + strlen(item) + 2 > len)
            return mu_err_set(err, E2BIG, "CUDA_VISIBLE_DEVICES does not fit");
        at += (size_t)snprintf(buf + at, len - at, "%s%s", k ? "," : "", item);
    }
    return 0;
}
