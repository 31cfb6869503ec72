/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor.c - muster doctor: reports what is wrong on this node or in this step, and
 * what to do
 */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spank/hw/machine/machine.h"
#include "spank/tools/doctor_collect.h"
#include "spank/tools/doctor_facts.h"
#include "spank/tools/doctor_nodes.h"
#include "spank/tools/step.h"
#include "spank/tools/tool.h"

static const char usage[] =
    "usage: muster doctor [--format text|json] [--topology FILE] [--gres-conf FILE]\n"
    "                     [--mask TEXT] [--all]\n"
    "       muster doctor --nodes [--format text|json] [--capture FILE.tar |\n"
    "                     --replay FILE.tar]\n"
    "Looks for misconfiguration on this node or, inside a job step, in the step.\n"
    "With --nodes it compares the nodes of a job and prints what differs.\n"
    "  --format text|json   how to print (default text)\n"
    "  --topology FILE      examine a saved machine in place of this one\n"
    "  --gres-conf FILE     compare this gres.conf with the machine\n"
    "  --mask TEXT          only explain the CPU masks and lists in lines of a log;\n"
    "                       - reads them from standard input\n"
    "  --all                also print checks without a problem\n"
    "  --nodes              run a step on each node of this job, and compare\n"
    "  --capture FILE.tar   save what was compared, without names and addresses\n"
    "  --replay FILE.tar    compare what --capture saved, on any machine\n"
    "  --node-facts         print the facts of this node that --nodes compares\n"
    "Exit status: 0 nothing wrong, 1 a warning, error or difference was found, 2 bad\n"
    "usage, 3 a file cannot be read or the step of --nodes failed.\n";

struct options {
    const char *topology, *gres_conf, *mask, *capture, *replay;
    bool json, all, nodes, node_facts;
};

static const struct option longs[] = { { "format", required_argument, NULL, 'f' },
                                       { "topology", required_argument, NULL, 't' },
                                       { "gres-conf", required_argument, NULL, 'g' },
                                       { "mask", required_argument, NULL, 'm' },
                                       { "all", no_argument, NULL, 'a' },
                                       { "nodes", no_argument, NULL, 'n' },
                                       { "node-facts", no_argument, NULL, 'F' },
                                       { "capture", required_argument, NULL, 'c' },
                                       { "replay", required_argument, NULL, 'r' },
                                       { "help", no_argument, NULL, 'h' },
                                       { NULL, 0, NULL, 0 } };

static int check(const struct options *o, int argc, char **argv)
{
    if (optind < argc)
        return mu_tool_usage("doctor", "takes options only, not '%s'", argv[optind]);
    if ((o->capture || o->replay) && !o->nodes)
        return mu_tool_usage("doctor", "--capture and --replay belong to --nodes");
    if (o->capture && o->replay)
        return mu_tool_usage("doctor", "give --capture or --replay, not both");
    return 0;
}

static int parse(int argc, char **argv, struct options *o)
{
    int c;

    opterr = 0;
    while ((c = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
        switch (c) {
        case 'f':
            o->json = strcmp(optarg, "json") == 0;
            if (!o->json && strcmp(optarg, "text") != 0)
                return mu_tool_usage("doctor", "--format is text or json, not '%s'",
                                     optarg);
            break;
        case 't':
            o->topology = optarg;
            break;
        case 'g':
            o->gres_conf = optarg;
            break;
        case 'm':
            o->mask = optarg;
            break;
        case 'a':
            o->all = true;
            break;
        case 'n':
            o->nodes = true;
            break;
        case 'F':
            o->node_facts = true;
            break;
        case 'c':
            o->capture = optarg;
            break;
        case 'r':
            o->replay = optarg;
            break;
        case 'h':
            fputs(usage, stdout);
            return -1;
        default:
            return mu_tool_bad_option("doctor", c, argv);
        }
    }
    return check(o, argc, argv);
}

static void print_text(const struct mu_findings *findings, bool all)
{
    int shown = 0, in_order = 0;

    for (int i = 0; i < findings->n; i++) {
        const struct mu_finding *f = &findings->item[i];

        in_order += f->severity == MU_OK;
        if (f->severity == MU_OK && !all)
            continue;
        printf("%-7s %-8s %s\n", mu_severity_name(f->severity), f->area, f->what);
        if (f->todo[0])
            printf("%-7s %-8s -> %s\n", "", "", f->todo);
        shown++;
    }
    if (!shown)
        printf("nothing wrong found (%d check%s in order; --all shows them)\n",
               in_order, mu_plural(in_order));
}

static void print_json(const struct mu_findings *findings)
{
    json_t *list = json_array();

    for (int i = 0; i < findings->n; i++) {
        const struct mu_finding *f = &findings->item[i];

        json_array_append_new(
            list, json_pack("{ss ss ss ss}", "severity", mu_severity_name(f->severity),
                            "area", f->area, "what", f->what, "todo", f->todo));
    }
    json_dumpf(list, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(list);
}

static void print_line(void *arg, const char *sentence)
{
    (void)arg;
    puts(sentence);
}

/* Explains o->mask, or standard input. */
static int explain(const struct options *o, const struct mu_node *node)
{
    struct mu_err err = { 0 };
    char *text = NULL;
    size_t len;
    int rc;

    if (strcmp(o->mask, "-") == 0 && mu_read_file("/dev/stdin", &text, &len, &err) < 0)
        return mu_tool_fail("doctor", MU_EXIT_INPUT, "%s", err.text);
    rc = mu_doctor_explain_text(text ? text : o->mask, node, print_line, NULL, &err);
    free(text);
    return rc < 0 ? mu_tool_usage("doctor", "--mask: %s", err.text) : 0;
}

static int examine(const struct options *o)
{
    struct mu_doctor_input *input = calloc(1, sizeof *input);
    struct mu_findings findings = { 0 };
    struct mu_err err = { 0 };
    int status = 0;

    if (!input || mu_doctor_gather(o->topology, o->gres_conf, input, &err) < 0) {
        status = mu_tool_fail("doctor", MU_EXIT_INPUT, "%s",
                              input ? err.text : "out of memory");
        goto out;
    }
    if (o->mask) {
        status = explain(o, input->facts.node);
        goto out;
    }
    mu_doctor_step(&input->facts, &findings);
    mu_doctor_gpu(&input->facts, &findings);
    mu_doctor_network(&input->facts, &findings);
    mu_doctor_stack(&input->facts, &findings);
    mu_doctor_slurm(&input->facts, &findings);
    mu_doctor_site(input, &findings);
    mu_doctor_platform(&input->facts, &findings);
    mu_doctor_limits(&input->facts, &findings);
    mu_doctor_files(input, o->topology, &findings);
    if (o->json)
        print_json(&findings);
    else
        print_text(&findings, o->all);
    status = mu_findings_worst(&findings) >= MU_WARNING;
out:
    if (input)
        mu_doctor_release(input);
    free(input);
    mu_findings_clear(&findings);
    return status;
}

int mu_doctor_main(int argc, char **argv)
{
    struct options o = { 0 };
    int rc = parse(argc, argv, &o);

    if (rc)
        return rc < 0 ? 0 : rc;
    if (o.nodes && !o.replay && mu_step_is_other_task())
        return 0;
    if (o.nodes)
        rc = mu_doctor_nodes(&(struct mu_nodes_options){ o.capture, o.replay, o.json });
    else
        rc = o.node_facts ? mu_collect_node(stdout) : examine(&o);
    return mu_tool_finish("doctor", rc);
}
