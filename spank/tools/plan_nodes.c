/* SPDX-License-Identifier: BSD-3-Clause */
/* plan_nodes.c - muster plan --nodes: how far apart the nodes of a job are, and their
 * order for a ring
 */
#include "spank/tools/plan_nodes.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spank/core/nodes/job_nodes.h"
#include "spank/hw/io/sysfile.h"
#include "spank/tools/nodes_measure.h"
#include "spank/tools/tool.h"

#define COMMAND "plan"
#define TEXT_MOST ((size_t)64 << 20) /* bytes of a measurement */

/* What the measurement leads to. */
struct decision {
    struct mu_node_classes classes;
    struct mu_node_advice advice;
    int *order;
};

static int write_text(const char *path, const char *text, struct mu_err *err)
{
    FILE *f = fopen(path, "we");
    bool whole = f && fputs(text, f) >= 0;

    if (f && fclose(f) != 0)
        whole = false;
    return whole ? 0 : mu_err_set(err, errno, "%s: %s", path, strerror(errno));
}

/* A line per task, for SLURM_HOSTFILE. */
static int write_hostfile(const struct mu_plan_nodes *o,
                          const struct mu_job_nodes *nodes, const int *order,
                          struct mu_err *err)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    int rc;

    for (int i = 0; f && i < nodes->n; i++) {
        const struct mu_job_node *node = &nodes->node[order[i]];
        int tasks = o->tasks > 0 ? o->tasks : node->gpus > 0 ? node->gpus : 1;

        for (int k = 0; k < tasks; k++)
            fprintf(f, "%s\n", node->name);
    }
    rc = f && fclose(f) == 0 ? write_text(o->hostfile, text, err)
                             : mu_err_set(err, ENOMEM, "out of memory");
    free(text);
    return rc;
}

static int decide(const struct mu_plan_nodes *o, const struct mu_job_nodes *nodes,
                  struct decision *out, struct mu_err *err)
{
    out->order = malloc((size_t)nodes->n * sizeof *out->order);
    if (!out->order)
        return mu_err_set(err, ENOMEM, "out of memory");
    if (mu_node_classes_make(nodes, &out->classes, err) < 0 ||
        mu_node_order(&out->classes, nodes->n, out->order, err) < 0)
        return -1;
    return mu_node_advise(nodes, &out->classes, out->order, o->hostfile, &out->advice,
                          err);
}

static json_t *classes_json(const struct mu_job_nodes *nodes, const struct decision *d)
{
    int before[MU_NODE_CLASSES + 2], after[MU_NODE_CLASSES + 2];
    json_t *list = json_array();
    char name[96];

    mu_ring_edges(&d->classes, nodes->n, NULL, before);
    mu_ring_edges(&d->classes, nodes->n, d->order, after);
    for (int class = 0; class < d->classes.n; class ++) {
        const struct mu_node_class *c = &d->classes.c[class];

        if (c->pairs == 0)
            continue;
        mu_node_class_name(&d->classes, class, name, sizeof name);
        json_array_append_new(
            list, json_pack("{si ss si sf sf sf si si}", "class", class, "name", name,
                            "pairs", c->pairs, "least_us", c->least, "median_us",
                            c->median, "most_us", c->most, "ring_before", before[class],
                            "ring_after", after[class]));
    }
    return list;
}

static void print_json(const struct mu_job_nodes *nodes, const struct decision *d)
{
    static const char *const by[] = { [MU_DISTANCE_NONE] = "nothing",
                                      [MU_DISTANCE_LATENCY] = "round trip",
                                      [MU_DISTANCE_SWITCHES] = "switches" };
    json_t *order = json_array(), *advice = json_array(), *top;

    for (int i = 0; i < nodes->n; i++) {
        const struct mu_job_node *node = &nodes->node[d->order[i]];

        json_array_append_new(order,
                              json_pack("{ss si ss ss ss si}", "node", node->name,
                                        "gpus", node->gpus, "nvlink", node->nvlink,
                                        "switches", node->switches, "cpu", node->cpu,
                                        "gpus_near_cpu", node->near));
    }
    for (int i = 0; i < d->advice.n; i++)
        json_array_append_new(advice, json_string(d->advice.text[i]));
    top = json_pack("{ss so so so}", "by", by[d->classes.by], "classes",
                    classes_json(nodes, d), "order", order, "advice", advice);
    json_dumpf(top, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    putchar('\n');
    json_decref(top);
}

static void print(const struct mu_plan_nodes *o, const struct mu_job_nodes *nodes,
                  const struct decision *d)
{
    if (o->format == MU_PLAN_TSV)
        mu_job_nodes_tsv(stdout, nodes, &d->classes, d->order);
    else if (o->format == MU_PLAN_JSON)
        print_json(nodes, d);
    else
        mu_job_nodes_text(stdout, nodes, &d->classes, d->order, &d->advice);
    for (int i = 0; o->format == MU_PLAN_TSV && i < d->advice.n; i++)
        mu_tool_fail(COMMAND, 0, "%s", d->advice.text[i]);
}

int mu_plan_nodes(const struct mu_plan_nodes *o)
{
    struct decision d = { 0 };
    struct mu_job_nodes nodes = { 0 };
    struct mu_err err = { 0 };
    char *text = NULL;
    int status = MU_EXIT_INPUT;

    if ((o->replay ? mu_sysfile_text(o->replay, TEXT_MOST, &text, &err)
                   : mu_nodes_measure(&text, &err)) == 0 &&
        mu_job_nodes_parse(text, &nodes, &err) < 0)
        mu_err_context(&err, "%s", o->replay ? o->replay : "the measurement");
    if (nodes.n == 0 || (o->save && write_text(o->save, text, &err) < 0) ||
        decide(o, &nodes, &d, &err) < 0 ||
        (o->hostfile && write_hostfile(o, &nodes, d.order, &err) < 0)) {
        mu_tool_fail(COMMAND, status, "%s", err.text);
    } else {
        print(o, &nodes, &d);
        status = mu_tool_finish(COMMAND,
                                d.advice.silent ? MU_EXIT_NOT_AS_ASKED : MU_EXIT_OK);
    }
    mu_node_advice_clear(&d.advice);
    mu_node_classes_clear(&d.classes);
    free(d.order);
    mu_job_nodes_clear(&nodes);
    free(text);
    return status;
}
