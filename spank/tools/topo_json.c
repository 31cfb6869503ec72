/* SPDX-License-Identifier: BSD-3-Clause */
/* topo_json.c - prints the node as JSON: all data that the planner uses */
#include <jansson.h>
#include <string.h>

#include "spank/tools/topo.h"

static void put_text(json_t *object, const char *key, const char *text)
{
    json_object_set_new(object, key, text[0] ? json_string(text) : json_null());
}

static void put_number(json_t *object, const char *key, int n)
{
    json_object_set_new(object, key, n < 0 ? json_null() : json_integer(n));
}

static void put_set(json_t *object, const char *key, const struct mu_cpuset *set)
{
    char text[32768];

    mu_cpuset_format(set, text, sizeof text);
    json_object_set_new(object, key, json_string(text));
}

static void put_numa(json_t *object, const struct mu_node *node, int index)
{
    put_number(object, "numa", index < 0 ? -1 : node->numas[index].os_index);
}

static json_t *cores(const struct mu_node *node)
{
    json_t *array = json_array();

    for (int i = 0; i < node->ncores; i++) {
        json_t *core = json_object(), *cpus = json_array();

        for (int c = 0; c < node->cores[i].ncpus; c++)
            json_array_append_new(cpus, json_integer(node->cores[i].cpu[c]));
        json_object_set_new(core, "cpus", cpus);
        put_numa(core, node, node->cores[i].numa);
        put_number(core, "package", node->cores[i].package);
        put_number(core, "cache", node->cores[i].cache);
        json_array_append_new(array, core);
    }
    return array;
}

static json_t *numas(const struct mu_node *node)
{
    json_t *array = json_array();

    for (int i = 0; i < node->nnumas; i++) {
        json_t *numa = json_object(), *distance = json_array();

        json_object_set_new(numa, "os_index", json_integer(node->numas[i].os_index));
        put_set(numa, "cpus", &node->numas[i].cpus);
        json_object_set_new(numa, "memory",
                            node->numas[i].memory == UINT64_MAX
                                ? json_null()
                                : json_integer((json_int_t)node->numas[i].memory));
        json_object_set_new(numa, "gpu_memory",
                            json_boolean(node->numas[i].gpu_memory));
        put_number(numa, "package", node->numas[i].package);
        for (int k = 0; node->numa_distance && k < node->nnumas; k++)
            json_array_append_new(
                distance, json_integer(node->numa_distance[i * node->nnumas + k]));
        json_object_set_new(numa, "distance", distance);
        json_array_append_new(array, numa);
    }
    return array;
}

static json_t *gpu_links(const struct mu_node *node, int g, const char *what)
{
    json_t *array = json_array();

    if (strcmp(what, "nic_paths") == 0)
        for (int i = 0; i < node->nnics; i++)
            json_array_append_new(array, json_string(mu_nearness_name(
                                             node->gpu_nic[g * node->nnics + i])));
    else
        for (int i = 0; i < node->ngpus; i++)
            json_array_append_new(
                array,
                strcmp(what, "gpu_paths") == 0
                    ? json_string(mu_nearness_name(node->gpu_gpu[g * node->ngpus + i]))
                    : json_integer(node->nvlinks[g * node->ngpus + i]));
    return array;
}

static json_t *gpus(const struct mu_node *node)
{
    json_t *array = json_array();

    for (int i = 0; i < node->ngpus; i++) {
        const struct mu_gpu *g = &node->gpus[i];
        json_t *gpu = json_object(), *near = json_array();
        int nic[MU_GPUS_MAX], n;
        enum mu_nearness path;
        char vendor[16] = "";

        if (g->vendor)
            snprintf(vendor, sizeof vendor, "%04x", (unsigned)g->vendor);
        put_text(gpu, "label", g->label);
        put_text(gpu, "busid", g->busid);
        put_text(gpu, "uuid", g->uuid);
        put_text(gpu, "model", g->model);
        put_text(gpu, "vendor", vendor);
        put_number(gpu, "minor", g->minor);
        put_numa(gpu, node, g->numa);
        put_number(gpu, "package", g->package);
        json_object_set_new(gpu, "local_known", json_boolean(g->local_known));
        put_set(gpu, "local", &g->local);
        n = mu_topo_nearest(node, i, nic, MU_GPUS_MAX, &path);
        for (int k = 0; k < n; k++)
            json_array_append_new(near, json_string(mu_topo_nic(&node->nics[nic[k]])));
        json_object_set_new(gpu, "nearest_nics", near);
        json_object_set_new(gpu, "nic_path",
                            path == MU_NEAR_NONE ? json_null()
                                                 : json_string(mu_nearness_name(path)));
        json_object_set_new(gpu, "nic_paths", gpu_links(node, i, "nic_paths"));
        json_object_set_new(gpu, "gpu_paths", gpu_links(node, i, "gpu_paths"));
        json_object_set_new(gpu, "nvlinks", gpu_links(node, i, "nvlinks"));
        json_array_append_new(array, gpu);
    }
    return array;
}

static json_t *nics(const struct mu_node *node)
{
    static const char *const layers[] = { NULL, "infiniband", "ethernet", "omni-path",
                                          "slingshot" };
    json_t *array = json_array();

    for (int i = 0; i < node->nnics; i++) {
        const struct mu_nic *n = &node->nics[i];
        json_t *nic = json_object();

        put_text(nic, "name", n->name);
        put_text(nic, "busid", n->busid);
        put_numa(nic, node, n->numa);
        put_number(nic, "package", n->package);
        json_object_set_new(nic, "layer",
                            layers[n->layer] ? json_string(layers[n->layer])
                                             : json_null());
        json_object_set_new(nic, "active", json_boolean(n->active));
        json_object_set_new(nic, "gbits",
                            n->gbits > 0 ? json_real(n->gbits) : json_null());
        put_text(nic, "guid", n->guid);
        json_array_append_new(array, nic);
    }
    return array;
}

void mu_topo_json(FILE *out, const struct mu_node *node)
{
    json_t *top = json_object();

    put_text(top, "source", node->source);
    put_text(top, "host", node->host);
    json_object_set_new(top, "virtual_machine", json_boolean(node->virtual_machine));
    json_object_set_new(top, "core_data", json_boolean(node->core_data));
    json_object_set_new(top, "smt_guess", json_boolean(node->smt_guess));
    json_object_set_new(top, "numas", numas(node));
    json_object_set_new(top, "cores", cores(node));
    json_object_set_new(top, "gpus", gpus(node));
    json_object_set_new(top, "nics", nics(node));
    json_dumpf(top, out, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    fputc('\n', out);
    json_decref(top);
}
