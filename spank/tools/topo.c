/* SPDX-License-Identifier: BSD-3-Clause */
/* topo.c - muster topo: prints the node as text, JSON, NCCL topology file or drawing */
#include "spank/tools/topo.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

#define COMMAND "topo"

enum format { TEXT, JSON, NCCL_XML, SVG };

struct request {
    struct mu_ask ask;
    const char *check; /* --check FILE */
    bool here;
    int format; /* -1: not given */
};

static void help(void)
{
    fputs(
        "usage: muster topo [OPTION]...\n"
        "       muster topo --check FILE [--topology FILE | --here]\n"
        "\n"
        "Show the node as Muster sees it, write an NCCL topology file, or check one.\n"
        "\n" MU_ASK_HELP "  --format FORMAT      text (default), json, nccl-xml or "
        "svg; the drawing shows\n"
        "                       the plan for the options above\n"
        "  --check FILE         check an NCCL topology file by itself, against the\n"
        "                       machine of --topology, or --here against this node\n"
        "  --here               with --check: compare with this node\n"
        "  --help               show this and exit\n"
        "\n"
        "Exit status: 0 done, and no error in a checked file; 1 the file has errors;\n"
        "2 bad usage; 3 a file that Muster cannot read, or that NCCL could not read.\n",
        stdout);
}

static int draw(const struct mu_node *node, const struct mu_ask *ask)
{
    struct mu_plan plan = { 0 };
    struct mu_err err = { 0 };
    struct mu_alloc alloc;
    struct mu_opts opts;
    int rc;

    if (node->ncores == 0) {
        mu_topo_svg(stdout, node, NULL);
        return MU_EXIT_OK;
    }
    rc = mu_ask_resolve(COMMAND, ask, node, &alloc, &opts);
    if (rc != MU_EXIT_OK)
        return rc;
    if (mu_plan_make(node, &alloc, &opts, &plan, &err) < 0)
        return mu_tool_usage(COMMAND, "%s", err.text);
    for (int i = 0; i < plan.nwarnings; i++)
        mu_tool_fail(COMMAND, 0, "warning: %s", plan.warning[i]);
    mu_topo_svg(stdout, node, &plan);
    mu_plan_clear(&plan);
    return MU_EXIT_OK;
}

/* For a comparison: the machine as it is, without what files add. */
static int load(const struct mu_ask *ask, struct mu_machine *machine)
{
    struct mu_err err = { 0 };

    if (ask->topology ? mu_machine_load_file(ask->topology, machine, &err) < 0
                      : mu_machine_load_live(machine, &err) < 0)
        return mu_tool_fail(COMMAND, MU_EXIT_INPUT, "%s", err.text);
    return MU_EXIT_OK;
}

static int show(const struct request *r)
{
    struct mu_machine machine;
    struct mu_err err = { 0 };
    int rc = mu_ask_machine(COMMAND, &r->ask, &machine);

    if (rc != MU_EXIT_OK) {
        mu_machine_clear(&machine);
        return rc;
    }
    switch (r->format) {
    case JSON:
        mu_topo_json(stdout, &machine.node);
        break;
    case NCCL_XML:
        if (mu_nccl_write(stdout, &machine, &err) < 0)
            rc = mu_tool_fail(COMMAND, MU_EXIT_INPUT, "%s%s%s",
                              r->ask.topology ? r->ask.topology : "",
                              r->ask.topology ? ": " : "", err.text);
        break;
    case SVG:
        rc = draw(&machine.node, &r->ask);
        break;
    default:
        mu_topo_text(stdout, &machine.node);
    }
    mu_machine_clear(&machine);
    return mu_tool_finish(COMMAND, rc);
}

static void print_finding(void *arg, const struct mu_nccl_finding *f)
{
    static const char *const levels[] = { "error", "warning", "hint" };

    if (f->line > 0)
        printf("%s:%d: %s: %s\n", (const char *)arg, f->line, levels[f->level],
               f->text);
    else
        printf("%s: %s: %s\n", (const char *)arg, levels[f->level], f->text);
}

static int check(const struct request *r)
{
    struct mu_machine machine;
    struct mu_err err = { 0 };
    struct mu_nccl_verdict verdict;
    bool compare = r->ask.topology || r->here;
    char *file = strdup(r->check);
    char *text = NULL;
    size_t len;
    int rc = MU_EXIT_OK;

    memset(&machine, 0, sizeof machine);
    if (compare)
        rc = load(&r->ask, &machine);
    if (rc == MU_EXIT_OK && (!file || mu_read_file(r->check, &text, &len, &err) < 0))
        rc = mu_tool_fail(COMMAND, MU_EXIT_INPUT, "%s", err.text);
    if (rc == MU_EXIT_OK) {
        mu_nccl_check(text, len, compare ? &machine : NULL, r->here, print_finding,
                      file, &verdict);
        printf("%s: %d error%s, %d warning%s, %d hint%s\n", r->check, verdict.errors,
               mu_plural(verdict.errors), verdict.warnings, mu_plural(verdict.warnings),
               verdict.hints, mu_plural(verdict.hints));
        rc = !verdict.parsable ? MU_EXIT_INPUT
             : verdict.errors  ? MU_EXIT_NOT_AS_ASKED
                               : MU_EXIT_OK;
    }
    free(text);
    free(file);
    mu_machine_clear(&machine);
    return mu_tool_finish(COMMAND, rc);
}

int mu_topo_main(int argc, char **argv)
{
    static const char *const formats[] = { "text", "json", "nccl-xml", "svg", NULL };
    static const struct option options[] = { MU_ASK_OPTIONS,
                                             { "format", required_argument, NULL, 'f' },
                                             { "check", required_argument, NULL, 'c' },
                                             { "here", no_argument, NULL, 'H' },
                                             { "help", no_argument, NULL, 'h' },
                                             { NULL, 0, NULL, 0 } };
    struct request r = { .format = -1 };
    int c;

    opterr = 0;
    while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (mu_ask_option(&r.ask, c, optarg))
            continue;
        if (c == 'h') {
            help();
            return mu_tool_finish(COMMAND, MU_EXIT_OK);
        }
        if (c == 'c')
            r.check = optarg;
        else if (c == 'H')
            r.here = true;
        else if (c != 'f')
            return mu_tool_bad_option(COMMAND, c, argv);
        else if ((r.format = mu_parse_word(optarg, formats)) < 0)
            return mu_tool_usage(
                COMMAND, "--format is text, json, nccl-xml or svg, not '%s'", optarg);
    }
    if (optind < argc)
        return mu_tool_usage(COMMAND, "takes options only, not '%s'", argv[optind]);
    if (r.here && !r.check)
        return mu_tool_usage(COMMAND, "--here needs --check");
    if (r.here && r.ask.topology)
        return mu_tool_usage(
            COMMAND, "--here and --topology name two machines: use one of them");
    if (r.check && r.format >= 0)
        return mu_tool_usage(COMMAND, "--check has one output format: remove --format");
    return r.check ? check(&r) : show(&r);
}
