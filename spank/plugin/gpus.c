/* SPDX-License-Identifier: BSD-3-Clause */
/* gpus.c - the step's GPUs by Slurm's numbers, by node index and by CUDA's numbers */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "spank/plugin/plugin.h"

/* Does the vendor's driver list it? */
static bool has_number(const struct mu_gpu *gpu)
{
    return gpu->vendor == MU_VENDOR_NVIDIA ? gpu->minor >= 0 : gpu->runtime_nth > 0;
}

/* Does a driver have this GPU? The driver leaves out a GPU that is lost or passed to a
 * virtual machine; Slurm and the runtime do not count it either. Without any number the
 * driver's list is unknown.
 */
static bool is_driven(const struct mu_node *node, int gpu_node)
{
    const struct mu_gpu *gpu = &node->gpus[gpu_node];

    for (int i = 0; i < node->ngpus && !has_number(gpu); i++)
        if (node->gpus[i].vendor == gpu->vendor && has_number(&node->gpus[i]))
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

/* Does the runtime count GPU a before GPU b, of the same vendor? */
static bool counts_before(const struct mu_node *node, int a, int b)
{
    int nth_a = node->gpus[a].runtime_nth, nth_b = node->gpus[b].runtime_nth;

    return nth_a > 0 && nth_b > 0 ? nth_a < nth_b : a < b;
}

void mu_gpus_runtime_order(const struct mu_node *node, struct mu_gres_order *order)
{
    bool differs = false;

    order->n = 0;
    for (int i = 0; i < node->ngpus && order->n < MU_GPUS_MAX; i++) {
        int at = order->n;

        if (!is_driven(node, i))
            continue;
        for (; at > 0 && counts_before(node, i, order->gpu_node[at - 1]); at--)
            order->gpu_node[at] = order->gpu_node[at - 1];
        differs |= at < order->n;
        order->gpu_node[at] = i;
        order->n++;
    }
    if (!differs)
        order->n = 0;
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

/* ROCr or Level Zero opens it, not CUDA. */
static bool is_amd_or_intel(const struct mu_gpu *gpu)
{
    return gpu->vendor == MU_VENDOR_AMD || gpu->vendor == MU_VENDOR_INTEL;
}

/* The path of the GPU's device file; false: unknown. `devices` of the site file names
 * other files, which count along the PCI bus where the GPUs have no minors of NVIDIA's.
 */
static bool device_file(const struct mu_state *st, int gpu_node, char *path, size_t len)
{
    const struct mu_gpu *gpu = &st->node.gpus[gpu_node];
    const char *prefix = is_amd_or_intel(gpu) ? "/dev/dri/renderD" : "/dev/nvidia";
    int number = gpu->minor;

    if (st->site.devices[0]) {
        prefix = st->site.devices;
        if (is_amd_or_intel(gpu) || !mu_gpus_have_minors(&st->node))
            number = gpu_node;
    } else if (st->site.topology[0]) {
        return false;
    }
    snprintf(path, len, "%s%d", prefix, number);
    return number >= 0;
}

/* access() checks the device cgroup as open() does, without waking up the GPU. */
static int open_file(const char *path)
{
    struct stat file;

    return stat(path, &file) < 0 ? -1 : access(path, R_OK | W_OK) == 0;
}

int mu_gpu_open(const struct mu_state *st, int gpu_node)
{
    char path[300];

    return device_file(st, gpu_node, path, sizeof path) ? open_file(path) : -1;
}

bool mu_gpus_confined(const struct mu_state *st)
{
    const char *prefix = st->site.devices[0] ? st->site.devices : "/dev/nvidia";

    /* Without a plan the node is unknown: every number counts. */
    for (int minor = 0; minor < MU_GPUS_MAX; minor++) {
        char path[300];

        snprintf(path, sizeof path, "%s%d", prefix, minor);
        if (open_file(path) == 0)
            return true;
    }
    for (int i = 0; i < st->node.ngpus; i++)
        if (mu_gpu_open(st, i) == 0)
            return true;
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

/* Can the task use this GPU, so that the runtime counts it? */
static bool is_counted(const struct mu_state *st, int gpu_node)
{
    int open = mu_gpu_open(st, gpu_node);

    if (open >= 0 || !counts_within_step(st))
        return open != 0;
    for (int pos = 0; pos < st->alloc.ngpus; pos++)
        if (st->alloc.gpu_node[pos] == gpu_node)
            return true;
    return false;
}

static int width_of(const struct mu_state *st, int gpu_node)
{
    int tiles = st->node.gpus[gpu_node].tiles;

    return tiles > 1 && !st->step.ze_composite ? tiles : 1;
}

/* The first number that the vendor's runtime has for a GPU: the devices before it, of
 * those that the task can open. The runtime also counts devices that the node does not
 * list, such as a processor's graphics unit.
 */
static int number_of_gpu(const struct mu_state *st, int gpu_node)
{
    const struct mu_node *node = &st->node;
    int nth = node->gpus[gpu_node].runtime_nth, before = 0, number = 0;

    for (int i = 0; i < node->ngpus; i++) {
        if (i == gpu_node || !is_driven(node, i) ||
            node->gpus[i].vendor != node->gpus[gpu_node].vendor ||
            !counts_before(node, i, gpu_node))
            continue;
        before++;
        if (is_counted(st, i))
            number += width_of(st, i);
    }
    return nth > 0 ? number + nth - 1 - before : number;
}

static bool add_item(const char *item, char *buf, size_t len)
{
    size_t at = strlen(buf);

    return (size_t)snprintf(buf + at, len - at, "%s%s", at ? "," : "", item) < len - at;
}

bool mu_gpus_tiled(const struct mu_state *st)
{
    for (int pos = 0; pos < st->alloc.ngpus; pos++)
        if (width_of(st, st->alloc.gpu_node[pos]) > 1)
            return true;
    return false;
}

bool mu_gpus_unnamed(const struct mu_state *st)
{
    for (int pos = 0; pos < st->alloc.ngpus; pos++) {
        const struct mu_gpu *gpu = &st->node.gpus[st->alloc.gpu_node[pos]];

        if (mu_gpu_is_slice(gpu) && !gpu->uuid[0])
            return true;
    }
    return false;
}

int mu_gpus_visible(const struct mu_state *st, const int *gpu_node, int ngpus,
                    char *buf, size_t len, struct mu_err *err)
{
    bool uuids =
        strstr(st->step.visible, "GPU-") || st->alloc.mig || st->step.cuda_order;
    bool fits = true;

    buf[0] = '\0';
    for (int k = 0; k < ngpus && fits; k++) {
        const struct mu_gpu *gpu = &st->node.gpus[gpu_node[k]];
        int number = number_of_gpu(st, gpu_node[k]), width = width_of(st, gpu_node[k]);
        char item[16];

        if (uuids && !is_amd_or_intel(gpu) && gpu->uuid[0]) {
            fits = add_item(gpu->uuid, buf, len);
            continue;
        }
        for (int tile = 0; tile < width && fits; tile++) {
            snprintf(item, sizeof item, "%d", number + tile);
            fits = add_item(item, buf, len);
        }
    }
    return fits ? 0
                : mu_err_set(err, E2BIG, "the list of visible devices does not fit");
}
