/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/tools/doctor_nodes.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spank/core/doctor/node_mask.h"
#include "spank/tools/run.h"
#include "spank/tools/step.h"
#include "spank/tools/tool.h"

/* A node may wait for nvidia-smi, NVML and names: 35 s. */
#define STEP_SECONDS 60.0
#define NODE_TEXT (128u << 10)  /* bytes of one node's facts, at most */
#define REPLAY_TEXT (64u << 20) /* of a capture, which may be compressed */
#define MEMBER "facts"          /* the file in a capture */

/* Runs the step; *text has the lines of the nodes that answered. */
static int run_step(int nnodes, char **text, struct mu_err *err)
{
    static const char *const command[] = { "doctor", "--node-facts", NULL };
    size_t len = (size_t)nnodes * NODE_TEXT;
    int status;

    *text = malloc(len);
    if (!*text)
        return mu_err_set(err, ENOMEM, "out of memory");
    status = mu_step_on_nodes(nnodes, command, STEP_SECONDS, *text, len);
    if (status == 0 || strstr(*text, MU_NODE_FACT))
        return 0;
    free(*text);
    *text = NULL;
    return mu_step_failed(nnodes, command, status, err);
}

/* The facts of the job's nodes. */
static int gather_job(struct mu_node_facts *facts, struct mu_err *err)
{
    const char *list = getenv("SLURM_JOB_NODELIST");
    struct mu_hostlist nodes = { 0 };
    char *text = NULL;
    int rc;

    if (!list || !getenv("SLURM_JOB_ID"))
        return mu_err_set(err, EINVAL,
                          "--nodes compares the nodes of a job: run it under sbatch or "
                          "salloc, or give --replay FILE");
    if (mu_hostlist_parse(list, &nodes, err) < 0)
        return -1;
    rc = run_step(nodes.n, &text, err);
    if (rc == 0)
        rc = mu_node_facts_parse(text, &nodes, facts, err);
    free(text);
    mu_hostlist_clear(&nodes);
    return rc;
}

static int gather_replay(const char *file, struct mu_node_facts *facts,
                         struct mu_err *err)
{
    char *argv[] = { (char *)"tar", (char *)"--force-local", (char *)"-xOf",
                     (char *)file,  (char *)MEMBER,          NULL };
    struct stat st;
    char *text;
    int rc = -1;

    if (stat(file, &st) < 0)
        return mu_err_set(err, errno, "%s: %s", file, strerror(errno));
    text = malloc(REPLAY_TEXT);
    if (!text)
        return mu_err_set(err, ENOMEM, "out of memory");
    if (!S_ISREG(st.st_mode) || mu_run(argv, STEP_SECONDS, text, REPLAY_TEXT) != 0)
        mu_err_set(err, EINVAL, "%s is not an archive that --capture wrote", file);
    else if (strlen(text) == REPLAY_TEXT - 1)
        mu_err_set(err, EFBIG, "%s has more than %u MiB of facts", file,
                   REPLAY_TEXT >> 20);
    else if (mu_node_facts_parse(text, NULL, facts, err) < 0)
        mu_err_context(err, "%s", file);
    else if (facts->n == 0)
        mu_err_set(err, EINVAL, "%s has no fact of any node", file);
    else
        rc = 0;
    free(text);
    return rc;
}

/* Archives the text as the one member of the file. */
static int write_archive(const char *text, const char *file, struct mu_err *err)
{
    char dir[] = "/tmp/muster-doctor.XXXXXX", path[sizeof dir + sizeof MEMBER + 1],
         scrap[64];
    char *argv[] = { (char *)"tar",       (char *)"--force-local",
                     (char *)"--owner=0", (char *)"--group=0",
                     (char *)"-cf",       (char *)file,
                     (char *)"-C",        dir,
                     (char *)MEMBER,      NULL };
    bool written = false;
    FILE *out;
    int rc = 0;

    if (!mkdtemp(dir))
        return mu_err_set(err, errno, "%s: %s", dir, strerror(errno));
    snprintf(path, sizeof path, "%s/" MEMBER, dir);
    out = fopen(path, "we");
    if (out) {
        written = fputs(text, out) >= 0;
        written = fclose(out) == 0 && written;
    }
    if (!written || mu_run(argv, STEP_SECONDS, scrap, sizeof scrap) != 0)
        rc = mu_err_set(err, EIO, "--capture: %s cannot be written with tar", file);
    unlink(path);
    rmdir(dir);
    return rc;
}

static int capture(const struct mu_node_facts *facts, const char *file,
                   struct mu_err *err)
{
    char *text = mu_node_facts_mask(facts);
    int rc = text ? write_archive(text, file, err)
                  : mu_err_set(err, ENOMEM, "out of memory");

    free(text);
    return rc;
}

static json_t *json_of_groups(const struct mu_fact_difference *d)
{
    json_t *list = json_array();

    for (int g = 0; g < d->n; g++)
        json_array_append_new(list, json_pack("{ss? si ss}", "value", d->group[g].value,
                                              "count", d->group[g].count, "nodes",
                                              d->group[g].nodes));
    return list;
}

static void print_json(const struct mu_comparison *c)
{
    json_t *differences = json_array(), *away = json_array(), *all;

    for (int i = 0; i < c->n; i++)
        json_array_append_new(differences,
                              json_pack("{ss so}", "fact", c->difference[i].key,
                                        "groups", json_of_groups(&c->difference[i])));
    for (int i = 0; i < c->nodes->n; i++)
        if (c->away[i] > 0)
            json_array_append_new(away, json_pack("{ss si}", "node", c->nodes->name[i],
                                                  "facts", c->away[i]));
    all = json_pack("{si si ss so so}", "nodes", c->nnodes, "facts", c->nfacts,
                    "silent", c->silent, "differences", differences, "away", away);
    json_dumpf(all, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(all);
}

int mu_doctor_nodes(const struct mu_nodes_options *o)
{
    struct mu_node_facts facts = { 0 };
    struct mu_comparison c = { 0 };
    struct mu_err err = { 0 };
    int status = MU_EXIT_INPUT;

    if ((o->replay ? gather_replay(o->replay, &facts, &err)
                   : gather_job(&facts, &err)) < 0 ||
        mu_node_facts_compare(&facts, &c, &err) < 0 ||
        (o->capture && capture(&facts, o->capture, &err) < 0)) {
        mu_tool_fail("doctor", status, "%s", err.text);
    } else {
        if (o->json)
            print_json(&c);
        else
            mu_comparison_text(stdout, &c);
        status = c.n > 0 || c.silent[0] ? 1 : 0;
    }
    mu_comparison_clear(&c);
    mu_node_facts_clear(&facts);
    return status;
}
