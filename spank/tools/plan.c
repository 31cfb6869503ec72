/* SPDX-License-Identifier: BSD-3-Clause */
/* plan.c - muster plan: prints the plugin's plan for this node or a saved machine */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/parse.h"
#include "spank/core/plan/plan.h"
#include "spank/core/plan/plan_text.h"
#include "spank/tools/nodes_measure.h"
#include "spank/tools/plan_nodes.h"
#include "spank/tools/step.h"
#include "spank/tools/tool.h"

#define COMMAND "plan"

static void help(void)
{
    fputs("usage: muster plan [OPTION]...\n"
          "       muster plan --nodes[=FILE] [--save FILE] [--tasks N] [--hostfile "
          "FILE]\n"
          "                   [--format FORMAT]\n"
          "\n"
          "Show which CPUs, memory, GPUs and NICs each task of a step would get.\n"
          "With --nodes it orders the nodes of a job: neighbours of a ring are near.\n"
          "\n" MU_ASK_HELP "  --format FORMAT      text (default), tsv or json\n"
          "  --nodes[=FILE]       measure the round trips between this job's nodes by\n"
          "                       a step, or read those that --save wrote\n"
          "  --save FILE          write the round trips\n"
          "  --hostfile FILE      write the order for SLURM_HOSTFILE, a line per task\n"
          "  --node-probe         the task of that step\n"
          "  --help               show this and exit\n"
          "\n"
          "Exit status: 0 planned; 1 planned, but not as asked (see the warning), or\n"
          "nodes did not answer; 2 bad usage; 3 bad input file, or the step failed.\n",
          stdout);
}

static json_t *text_or_null(const char *text)
{
    return text[0] ? json_string(text) : json_null();
}

static json_t *task_json(const struct mu_node *node, const struct mu_slot *slot)
{
    json_t *task = json_object(), *gpus = json_array(), *nics = json_array();
    char text[8192];

    for (int i = 0; i < slot->ngpus; i++)
        json_array_append_new(gpus, json_string(node->gpus[slot->gpu_node[i]].label));
    for (int i = 0; i < slot->nnics; i++) {
        const struct mu_nic *nic = &node->nics[slot->nic[i]];

        json_array_append_new(nics, json_string(nic->name[0] ? nic->name : nic->busid));
    }
    json_object_set_new(task, "task", json_integer(slot->task));
    json_object_set_new(task, "gpus", gpus);
    json_object_set_new(task, "bound", json_boolean(slot->bound));
    mu_cpuset_format(&slot->cpus, text, sizeof text);
    json_object_set_new(task, "cpus", text_or_null(text));
    mu_cpuset_format(&slot->mems, text, sizeof text);
    json_object_set_new(task, "mems", text_or_null(text));
    json_object_set_new(task, "nics", nics);
    json_object_set_new(task, "nic_path",
                        slot->nic_path == MU_NEAR_NONE
                            ? json_null()
                            : json_string(mu_nearness_name(slot->nic_path)));
    json_object_set_new(task, "note", text_or_null(slot->note));
    return task;
}

static json_t *strings(char *const *text, int n)
{
    json_t *array = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(array, json_string(text[i]));
    return array;
}

static void show_json(const struct mu_node *node, const struct mu_plan *plan)
{
    json_t *top = json_object(), *tasks = json_array();

    for (int i = 0; i < plan->nslots; i++)
        json_array_append_new(tasks, task_json(node, &plan->slots[i]));
    json_object_set_new(top, "source", json_string(node->source));
    json_object_set_new(top, "as_asked", json_boolean(plan->as_asked));
    json_object_set_new(top, "own_visible", json_boolean(plan->own_visible));
    json_object_set_new(top, "tasks", tasks);
    json_object_set_new(top, "warnings", strings(plan->warning, plan->nwarnings));
    json_object_set_new(top, "facts", strings(plan->info, plan->ninfos));
    json_dumpf(top, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    putchar('\n');
    json_decref(top);
}

static int make_and_show(const struct mu_node *node, const struct mu_ask *ask,
                         enum mu_plan_format format)
{
    struct mu_plan plan = { 0 };
    struct mu_err err = { 0 };
    struct mu_alloc alloc;
    struct mu_opts opts;
    int rc;

    if (node->ncores == 0)
        return mu_tool_fail(COMMAND, MU_EXIT_INPUT,
                            "%s lists no CPUs (no affinity), so tasks cannot be placed",
                            ask->topology ? ask->topology : node->source);
    rc = mu_ask_resolve(COMMAND, ask, node, &alloc, &opts);
    if (rc != MU_EXIT_OK)
        return rc;
    if (mu_plan_make(node, &alloc, &opts, &plan, &err) < 0)
        return mu_tool_usage(COMMAND, "%s", err.text);
    for (int i = 0; i < plan.nwarnings; i++)
        mu_tool_fail(COMMAND, 0, "warning: %s", plan.warning[i]);
    for (int i = 0; opts.verbose == MU_FLAG_YES && i < plan.ninfos; i++)
        mu_tool_fail(COMMAND, 0, "%s", plan.info[i]);
    if (format == MU_PLAN_TSV)
        mu_show_tsv(stdout, node, &plan);
    else if (format == MU_PLAN_JSON)
        show_json(node, &plan);
    else
        mu_show_text(stdout, node, &plan);
    rc = mu_tool_finish(COMMAND, plan.as_asked ? MU_EXIT_OK : MU_EXIT_NOT_AS_ASKED);
    mu_plan_clear(&plan);
    return rc;
}

/* Order the nodes of a job. */
static int order_nodes(const struct mu_ask *ask, struct mu_plan_nodes *nodes)
{
    struct mu_err err = { 0 };
    long tasks = 0;

    if (ask->topology || ask->cpus || ask->gpus || ask->mems || ask->cpus_per_task ||
        ask->gpu_bind || ask->opt)
        return mu_tool_usage(COMMAND, "--nodes goes with --save, --tasks, --hostfile "
                                      "and --format only");
    if (ask->tasks && mu_parse_int("--tasks", ask->tasks, 1, 4096, &tasks, &err) < 0)
        return mu_tool_usage(COMMAND, "%s", err.text);
    if (!nodes->replay && mu_step_is_other_task())
        return 0;
    nodes->tasks = (int)tasks;
    return mu_plan_nodes(nodes);
}

static int plan_here(const struct mu_ask *ask, enum mu_plan_format format)
{
    struct mu_machine machine;
    int rc = mu_ask_machine(COMMAND, ask, &machine);

    if (rc == MU_EXIT_OK)
        rc = make_and_show(&machine.node, ask, format);
    mu_machine_clear(&machine);
    return rc;
}

int mu_plan_main(int argc, char **argv)
{
    static const char *const formats[] = { "text", "tsv", "json", NULL };
    static const struct option options[] = { MU_ASK_OPTIONS,
                                             { "format", required_argument, NULL, 'f' },
                                             { "nodes", optional_argument, NULL, 'n' },
                                             { "save", required_argument, NULL, 's' },
                                             { "node-probe", no_argument, NULL, 'p' },
                                             { "hostfile", required_argument, NULL,
                                               'o' },
                                             { "help", no_argument, NULL, 'h' },
                                             { NULL, 0, NULL, 0 } };
    struct mu_plan_nodes nodes = { 0 };
    struct mu_ask ask = { 0 };
    int format = MU_PLAN_TEXT, c;
    bool order = false;

    opterr = 0;
    while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (mu_ask_option(&ask, c, optarg))
            continue;
        switch (c) {
        case 'f':
            format = mu_parse_word(optarg, formats);
            if (format < 0)
                return mu_tool_usage(COMMAND, "--format is text, tsv or json, not '%s'",
                                     optarg);
            break;
        case 'n':
            order = true;
            nodes.replay = optarg;
            break;
        case 's':
            nodes.save = optarg;
            break;
        case 'p':
            return mu_nodes_probe(argc - optind, argv + optind);
        case 'o':
            nodes.hostfile = optarg;
            break;
        case 'h':
            help();
            return mu_tool_finish(COMMAND, MU_EXIT_OK);
        default:
            return mu_tool_bad_option(COMMAND, c, argv);
        }
    }
    if (optind < argc)
        return mu_tool_usage(COMMAND, "takes options only, not '%s'", argv[optind]);
    nodes.format = (enum mu_plan_format)format;
    if (order)
        return order_nodes(&ask, &nodes);
    if (nodes.hostfile || nodes.save)
        return mu_tool_usage(COMMAND, "--hostfile and --save belong to --nodes");
    return plan_here(&ask, nodes.format);
}
