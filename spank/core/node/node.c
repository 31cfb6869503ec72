/* SPDX-License-Identifier: BSD-3-Clause */
/* node.c - a machine in its normal form: sorted, labelled, checked; distances in it */
#include "spank/core/node/node.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/parse.h"

#define NO_BUSID UINT64_MAX

const char *mu_link_layer_name(enum mu_link_layer layer)
{
    static const char *const names[] = { "unknown",   "InfiniBand", "Ethernet",
                                         "Omni-Path", "Slingshot",  "EFA" };

    return names[layer];
}

bool mu_nic_has_verbs(const struct mu_nic *nic)
{
    return nic->layer != MU_LINK_SLINGSHOT && nic->layer != MU_LINK_EFA;
}

const char *mu_nearness_name(enum mu_nearness path)
{
    static const char *const names[] = {
        "PIX", "PXB", "PHB", "NODE", "PKG", "SYS", "-"
    };

    return (unsigned)path <= MU_NEAR_NONE ? names[path] : "-";
}

void mu_node_clear(struct mu_node *node)
{
    free(node->cores);
    free(node->numas);
    free(node->numa_distance);
    free(node->gpus);
    free(node->nics);
    free(node->soft);
    free(node->gpu_nic);
    free(node->gpu_gpu);
    free(node->nvlinks);
    memset(node, 0, sizeof *node);
}

/* Read a hexadecimal number of 1 to max digits that ends at `end`; advance *text past
 * it.
 */
static bool hex_field(const char **text, int max, char end, unsigned long *out)
{
    const char *p = *text;
    int digits = 0;

    *out = 0;
    for (; isxdigit((unsigned char)*p) && digits <= max; p++, digits++)
        *out = *out * 16 + (unsigned long)(isdigit((unsigned char)*p)
                                               ? *p - '0'
                                               : (*p | 0x20) - 'a' + 10);
    if (digits < 1 || digits > max || *p != end)
        return false;
    *text = end ? p + 1 : p;
    return true;
}

int mu_busid_normal(const char *text, char out[MU_BUSID_LEN], uint64_t *key)
{
    unsigned long domain = 0, bus, dev, fn;
    const char *p = text, *colon = strchr(text, ':');

    if (colon && strchr(colon + 1, ':') && !hex_field(&p, 8, ':', &domain))
        return -1;
    if (!hex_field(&p, 2, ':', &bus) || !hex_field(&p, 2, '.', &dev) ||
        !hex_field(&p, 1, '\0', &fn) || dev > 0x1f || fn > 7)
        return -1;
    if (out)
        snprintf(out, MU_BUSID_LEN, "%04lx:%02lx:%02lx.%lx", domain, bus, dev, fn);
    if (key)
        *key = (uint64_t)domain << 16 | bus << 8 | dev << 3 | fn;
    return 0;
}

/* The sort key of an entry: key, then sub, then name, then the order of the input. */
struct place {
    uint64_t key;
    int sub;
    const char *name;
    int from;
};

static int place_order(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int by_name;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    if (x->sub != y->sub)
        return x->sub < y->sub ? -1 : 1;
    by_name = strcmp(x->name, y->name);
    if (by_name)
        return by_name;
    return (x->from > y->from) - (x->from < y->from);
}

/* Reorder n elements of `size` bytes so that new i is old places[i].from. */
static int permute(void *array, size_t size, const struct place *places, int n)
{
    char *copy;

    if (n <= 0)
        return 0;
    copy = malloc((size_t)n * size);
    if (!copy)
        return -1;
    memcpy(copy, array, (size_t)n * size);
    for (int i = 0; i < n; i++)
        memcpy((char *)array + (size_t)i * size, copy + (size_t)places[i].from * size,
               size);
    free(copy);
    return 0;
}

/* The same for a rows x cols matrix of ints; a NULL order leaves that side unchanged.
 */
static int permute_matrix(int *m, const struct place *rows, int nrows,
                          const struct place *cols, int ncols)
{
    size_t cells = (size_t)nrows * (size_t)ncols;
    int *copy;

    if (!m || cells == 0)
        return 0;
    copy = malloc(cells * sizeof *copy);
    if (!copy)
        return -1;
    memcpy(copy, m, cells * sizeof *copy);
    for (int r = 0; r < nrows; r++)
        for (int c = 0; c < ncols; c++)
            m[r * ncols + c] =
                copy[(rows ? rows[r].from : r) * ncols + (cols ? cols[c].from : c)];
    free(copy);
    return 0;
}

static void remap(int *index, const int *to, int n)
{
    *index = *index >= 0 && *index < n ? to[*index] : -1;
}

static int sort_numas(struct mu_node *node)
{
    int n = node->nnumas, rc = -1;
    struct place *places = calloc((size_t)n + 1, sizeof *places);
    int *to = calloc((size_t)n + 1, sizeof *to);

    if (!places || !to)
        goto out;
    for (int i = 0; i < n; i++)
        places[i] = (struct place){ (uint64_t)node->numas[i].os_index, 0, "", i };
    qsort(places, (size_t)n, sizeof *places, place_order);
    for (int i = 0; i < n; i++)
        to[places[i].from] = i;
    if (permute(node->numas, sizeof *node->numas, places, n) < 0 ||
        permute_matrix(node->numa_distance, places, n, places, n) < 0)
        goto out;
    for (int i = 0; i < node->ncores; i++)
        remap(&node->cores[i].numa, to, n);
    for (int i = 0; i < node->ngpus; i++)
        remap(&node->gpus[i].numa, to, n);
    for (int i = 0; i < node->nnics; i++)
        remap(&node->nics[i].numa, to, n);
    rc = 0;
out:
    free(places);
    free(to);
    return rc;
}

static int cpu_order(const void *a, const void *b)
{
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

static int core_order(const void *a, const void *b)
{
    return cpu_order(((const struct mu_core *)a)->cpu,
                     ((const struct mu_core *)b)->cpu);
}

static int sort_cores(struct mu_node *node, struct mu_err *err)
{
    struct mu_cpuset seen = { 0 };

    for (int i = 0; i < node->ncores; i++) {
        struct mu_core *core = &node->cores[i];

        if (core->ncpus < 1 || core->ncpus > MU_CORE_CPUS)
            return mu_err_set(err, EINVAL, "a core has %d CPUs; 1 to %d are possible",
                              core->ncpus, MU_CORE_CPUS);
        qsort(core->cpu, (size_t)core->ncpus, sizeof core->cpu[0], cpu_order);
        for (int c = 0; c < core->ncpus; c++) {
            if (core->cpu[c] < 0 || core->cpu[c] >= MU_CPUSET_MAX)
                return mu_err_set(err, EINVAL, "CPU number %d is not within 0..%d",
                                  core->cpu[c], MU_CPUSET_MAX - 1);
            if (mu_cpuset_has(&seen, core->cpu[c]))
                return mu_err_set(err, EINVAL, "CPU %d belongs to two cores",
                                  core->cpu[c]);
            mu_cpuset_add(&seen, core->cpu[c]);
        }
    }
    if (node->ncores > 1)
        qsort(node->cores, (size_t)node->ncores, sizeof *node->cores, core_order);
    return 0;
}

/* Bring a bus id into normal form; returns its sort key. Other text stays unchanged. */
static uint64_t tidy_busid(char busid[MU_BUSID_LEN])
{
    uint64_t key = NO_BUSID;

    if (busid[0])
        mu_busid_normal(busid, busid, &key);
    return key;
}

static bool same_function(const struct mu_gpu *a, const struct mu_gpu *b)
{
    return a->busid[0] && strcmp(a->busid, b->busid) == 0;
}

static void label_gpus(struct mu_node *node)
{
    int n = node->ngpus;

    for (int i = 0, first = 0; i < n; i++) {
        struct mu_gpu *gpu = &node->gpus[i];
        bool several;

        if (i > 0 && !same_function(gpu, &node->gpus[i - 1]))
            first = i;
        several = i > first || (i + 1 < n && same_function(gpu, &node->gpus[i + 1]));
        gpu->sub = several ? i - first : -1;
        if (strncmp(gpu->uuid, "MIG-", 4) == 0)
            mu_copy(gpu->label, sizeof gpu->label, gpu->uuid);
        else if (!gpu->busid[0])
            snprintf(gpu->label, sizeof gpu->label, "GPU%d", i);
        else if (several)
            snprintf(gpu->label, sizeof gpu->label, "%s/%d", gpu->busid, gpu->sub);
        else
            mu_copy(gpu->label, sizeof gpu->label, gpu->busid);
    }
}

static int sort_devices(struct mu_node *node)
{
    int ng = node->ngpus, nn = node->nnics, rc = -1;
    struct place *gpus = calloc((size_t)ng + 1, sizeof *gpus);
    struct place *nics = calloc((size_t)nn + 1, sizeof *nics);

    if (!gpus || !nics)
        goto out;
    for (int i = 0; i < ng; i++)
        gpus[i] = (struct place){ tidy_busid(node->gpus[i].busid), node->gpus[i].sub,
                                  node->gpus[i].uuid, i };
    for (int i = 0; i < nn; i++) {
        uint64_t key = tidy_busid(node->nics[i].busid);

        nics[i] =
            (struct place){ key, 0, key == NO_BUSID ? "" : node->nics[i].name, i };
    }
    qsort(gpus, (size_t)ng, sizeof *gpus, place_order);
    qsort(nics, (size_t)nn, sizeof *nics, place_order);
    if (permute_matrix((int *)node->gpu_nic, gpus, ng, nics, nn) < 0 ||
        permute_matrix((int *)node->gpu_gpu, gpus, ng, gpus, ng) < 0 ||
        permute_matrix(node->nvlinks, gpus, ng, gpus, ng) < 0 ||
        permute(node->gpus, sizeof *node->gpus, gpus, ng) < 0 ||
        permute(node->nics, sizeof *node->nics, nics, nn) < 0)
        goto out;
    rc = 0;
out:
    free(gpus);
    free(nics);
    return rc;
}

/* If no NUMA node has memory, the source does not report it: mark it unknown. */
static void tidy_memory(struct mu_node *node)
{
    for (int i = 0; i < node->nnumas; i++)
        if (node->numas[i].memory > 0)
            return;
    for (int i = 0; i < node->nnumas; i++)
        node->numas[i].memory = UINT64_MAX;
}

int mu_node_finish(struct mu_node *node, struct mu_err *err)
{
    if (node->ngpus > MU_GPUS_MAX)
        return mu_err_set(err, EINVAL,
                          "the machine has %d GPUs; at most %d are possible",
                          node->ngpus, MU_GPUS_MAX);
    if (sort_cores(node, err) < 0)
        return -1;
    if (sort_numas(node) < 0 || sort_devices(node) < 0 || mu_node_part_soft(node) < 0)
        return mu_err_set(err, ENOMEM, "out of memory");
    label_gpus(node);
    tidy_memory(node);
    return 0;
}

bool mu_core_in(const struct mu_core *core, const struct mu_cpuset *set)
{
    for (int i = 0; i < core->ncpus; i++)
        if (mu_cpuset_has(set, core->cpu[i]))
            return true;
    return false;
}

int mu_node_core_count(const struct mu_node *node, const struct mu_cpuset *set)
{
    int n = 0;

    for (int i = 0; i < node->ncores; i++)
        n += mu_core_in(&node->cores[i], set);
    return n;
}

void mu_node_cpus(const struct mu_node *node, struct mu_cpuset *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < node->ncores; i++)
        for (int c = 0; c < node->cores[i].ncpus; c++)
            mu_cpuset_add(out, node->cores[i].cpu[c]);
}

int mu_node_numas_with_cpus(const struct mu_node *node)
{
    int n = 0;

    for (int i = 0; i < node->nnumas; i++)
        n += !mu_cpuset_empty(&node->numas[i].cpus);
    return n;
}

int mu_node_distance(const struct mu_node *node, int a, int b)
{
    if (a < 0 || b < 0 || a >= node->nnumas || b >= node->nnumas)
        return 20;
    if (node->numa_distance)
        return node->numa_distance[a * node->nnumas + b];
    return a == b ? 10 : 20;
}

int mu_node_core_distance(const struct mu_node *node, int gpu, int core)
{
    const struct mu_gpu *g = &node->gpus[gpu];
    const struct mu_core *c = &node->cores[core];
    int distance;

    if (!g->local_known)
        return 0;
    if (mu_core_in(c, &g->local))
        return 0;
    distance = 4 * mu_node_distance(node, g->numa, c->numa);
    if (g->package >= 0 && c->package >= 0 && g->package != c->package)
        distance += 2;
    return distance > 0 ? distance : 1;
}

int mu_node_find_gpu(const struct mu_node *node, const char *text)
{
    char busid[MU_BUSID_LEN];

    for (int i = 0; i < node->ngpus; i++) {
        const struct mu_gpu *gpu = &node->gpus[i];

        if (strcasecmp(text, gpu->label) == 0 ||
            (gpu->uuid[0] && strcasecmp(text, gpu->uuid) == 0))
            return i;
    }
    if (mu_busid_normal(text, busid, NULL) < 0)
        return -1;
    for (int i = 0; i < node->ngpus; i++)
        if (strcmp(busid, node->gpus[i].busid) == 0)
            return i;
    return -1;
}

bool mu_gpu_is_slice(const struct mu_gpu *gpu)
{
    return strncmp(gpu->uuid, "MIG-", 4) == 0 ||
           (gpu->vendor == MU_VENDOR_NVIDIA && gpu->sub >= 0);
}

int mu_node_gpu_of_minor(const struct mu_node *node, int minor)
{
    for (int i = 0; i < node->ngpus && minor >= 0; i++)
        if (node->gpus[i].minor == minor)
            return i;
    return -1;
}
