/* SPDX-License-Identifier: BSD-3-Clause */
/* locality.c - see locality.h. The child parses the file and adopts what it has; the
 * parent takes places and paths over from the child's copy of the node.
 */
#include "spank/hw/load/locality.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "spank/hw/io/child.h"
#include "spank/hw/io/sysfile.h"
#include "spank/hw/live/nccl_conf_files.h"
#include "spank/hw/load/node_load.h"

#define DEADLINE_S 2

struct source {
    const char *path;
    bool owned; /* counts only if it belongs to root or the caller */
    struct mu_node *node;
};

/* What the child sends; where rc is 0, the node's GPUs and their paths to NICs follow.
 */
struct answer {
    int rc;
    struct mu_err err;
};

static bool all_known(const struct mu_node *node)
{
    for (int i = 0; i < node->ngpus; i++)
        if (!node->gpus[i].local_known)
            return false;
    return true;
}

static size_t gpus_size(const struct mu_node *node)
{
    return (size_t)node->ngpus * sizeof *node->gpus;
}

static size_t paths_size(const struct mu_node *node)
{
    return node->gpu_nic
               ? (size_t)node->ngpus * (size_t)node->nnics * sizeof *node->gpu_nic
               : 0;
}

/* In the child, whose copy of the node may change. */
static int adopt(void *arg, int index, int fd)
{
    const struct source *source = arg;
    struct answer answer = { 0 };
    struct mu_node file = { 0 };

    if ((source->owned && mu_check_owner(source->path, &answer.err) < 0) ||
        mu_node_load_file_of(source->path, source->node, &file, &answer.err) < 0 ||
        mu_node_adopt(source->node, &file, &answer.err) < 0)
        answer.rc = -1;
    if (mu_child_write(fd, &answer, sizeof answer) && answer.rc == 0)
        mu_child_write(fd, source->node->gpus, gpus_size(source->node));
    if (answer.rc == 0)
        mu_child_write(fd, source->node->gpu_nic, paths_size(source->node));
    return 0;
}

/* The file is the user's: nothing that it led to may point outside of the node. */
static bool is_sound(const struct mu_node *node, const struct mu_gpu *gpus,
                     const enum mu_nearness *paths)
{
    struct mu_cpuset machine;

    mu_node_cpus(node, &machine);
    for (int i = 0; i < node->ngpus; i++)
        if (gpus[i].numa < -1 || gpus[i].numa >= node->nnumas ||
            !mu_cpuset_inside(&gpus[i].local, &machine))
            return false;
    for (int i = 0; paths && i < node->ngpus * node->nnics; i++)
        if ((unsigned)paths[i] > MU_NEAR_NONE)
            return false;
    return true;
}

static void take_over(struct mu_node *node, const struct mu_gpu *gpus,
                      const enum mu_nearness *paths)
{
    for (int i = 0; i < node->ngpus; i++) {
        struct mu_gpu *gpu = &node->gpus[i];

        if (gpu->local_known || !gpus[i].local_known)
            continue;
        gpu->numa = gpus[i].numa;
        gpu->package = gpus[i].package;
        gpu->local = gpus[i].local;
        gpu->local_known = gpu->adopted = true;
        if (paths)
            memcpy(&node->gpu_nic[i * node->nnics], &paths[i * node->nnics],
                   (size_t)node->nnics * sizeof *paths);
    }
}

static int receive(const struct mu_children *child, struct mu_node *node,
                   const char *path, struct mu_err *err)
{
    double deadline = mu_clock_s() + DEADLINE_S;
    size_t paths_len = paths_size(node);
    struct mu_gpu *gpus = malloc(gpus_size(node));
    enum mu_nearness *paths = paths_len ? malloc(paths_len) : NULL;
    struct answer answer;
    int rc = -1;

    if (!gpus || (paths_len && !paths))
        mu_err_set(err, ENOMEM, "%s: out of memory", path);
    else if (mu_children_read(child, &answer, sizeof answer, deadline) !=
             (ssize_t)sizeof answer)
        mu_err_set(err, ETIMEDOUT, "%s was not read within %d s", path, DEADLINE_S);
    else if (answer.rc < 0)
        mu_err_set(err, answer.err.code, "%.*s", (int)sizeof answer.err.text - 1,
                   answer.err.text);
    else if (mu_children_read(child, gpus, gpus_size(node), deadline) !=
                 (ssize_t)gpus_size(node) ||
             (paths_len && mu_children_read(child, paths, paths_len, deadline) !=
                               (ssize_t)paths_len) ||
             !is_sound(node, gpus, paths))
        mu_err_set(err, EINVAL, "%s could not be used", path);
    else
        rc = 0;
    if (rc == 0)
        take_over(node, gpus, paths);
    free(gpus);
    free(paths);
    return rc;
}

/* named_by: for *why, which keeps the first failure. */
static void take_file(struct mu_node *node, const char *path, bool owned,
                      const char *named_by, char *file, size_t len, struct mu_err *why)
{
    struct source source = { path, owned, node };
    struct mu_children child;
    struct mu_err err = { 0 };
    int rc = -1;

    if (mu_children_start(&child, 1, adopt, &source, &err) == 0)
        rc = receive(&child, node, path, &err);
    mu_children_end(&child, 0);
    if (rc == 0)
        mu_copy(file, len, path);
    else if (named_by && !why->text[0])
        mu_err_set(why, err.code, "%s does not help with the GPUs' locality: %s",
                   named_by, err.text);
}

void mu_locality_complete(struct mu_node *node, const char *root, const char *topo,
                          char *file, size_t len, struct mu_err *why)
{
    struct mu_conf conf = { 0 };
    const struct mu_conf_line *line;
    char path[4200];

    file[0] = '\0';
    if (topo && topo[0] && !all_known(node)) {
        snprintf(path, sizeof path, "topo=%.4000s", topo);
        take_file(node, topo, false, path, file, len, why);
    }
    if (!root || all_known(node))
        return;
    snprintf(path, sizeof path, "%.1000s/etc/nccl.conf", root);
    if (mu_conf_load_live(NULL, NULL, path, &conf, NULL) == 0 &&
        (line = mu_conf_find(&conf, "NCCL_TOPO_FILE"))) {
        snprintf(path, sizeof path, "%.1000s%.3000s", root, line->value);
        take_file(node, path, true, "/etc/nccl.conf", file, len, why);
    }
    mu_conf_clear(&conf);
    snprintf(path, sizeof path, "%.1000s%s", root, MU_TOPOLOGYD_FILE);
    if (!all_known(node))
        take_file(node, path, true, NULL, file, len, why);
}
