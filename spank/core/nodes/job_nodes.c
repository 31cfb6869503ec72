/* SPDX-License-Identifier: BSD-3-Clause */
/* job_nodes.c - reads the nodes of a job and the round trips between them */
#include "spank/core/nodes/job_nodes.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

double mu_job_nodes_us(const struct mu_job_nodes *nodes, int i, int j)
{
    return nodes->us[(size_t)i * (size_t)nodes->n + (size_t)j];
}

static int find(const struct mu_job_nodes *nodes, const char *name)
{
    for (int i = 0; i < nodes->n; i++)
        if (strcmp(nodes->node[i].name, name) == 0)
            return i;
    return -1;
}

static int number(const char *key, const char *value, int *out, struct mu_err *err)
{
    long n;

    if (mu_parse_int(key, value, 0, 1024, &n, err) < 0)
        return -1;
    *out = (int)n;
    return 0;
}

static int set(struct mu_job_node *node, const char *key, const char *value,
               struct mu_err *err)
{
    const struct {
        const char *key;
        char *to;
        size_t len;
    } texts[] = {
        { "nvlink", node->nvlink, sizeof node->nvlink },
        { "switches", node->switches, sizeof node->switches },
        { "cpu", node->cpu, sizeof node->cpu },
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (strcmp(key, texts[i].key) == 0)
            return mu_copy(texts[i].to, texts[i].len, value)
                       ? 0
                       : mu_err_set(err, EINVAL, "the value of %s is too long", key);
    if (strcmp(key, "gpus") == 0)
        return number(key, value, &node->gpus, err);
    if (strcmp(key, "near") == 0)
        return number(key, value, &node->near, err);
    return 0;
}

static int parse_node(struct mu_job_nodes *nodes, char *rest, struct mu_err *err)
{
    struct mu_job_node node = { .gpus = -1, .near = -1 };
    char *save = NULL, *word = strtok_r(rest, " ", &save);

    if (!word || !mu_copy(node.name, sizeof node.name, word))
        return mu_err_set(err, EINVAL, "a node has a name of at most %zu characters",
                          sizeof node.name - 1);
    if (find(nodes, word) >= 0)
        return mu_err_set(err, EINVAL, "node %s is there twice", word);
    if (nodes->n == MU_JOB_NODES_MAX)
        return mu_err_set(err, E2BIG, "more than %d nodes", MU_JOB_NODES_MAX);
    while ((word = strtok_r(NULL, " ", &save))) {
        char *value = strchr(word, '=');

        if (!value)
            return mu_err_set(err, EINVAL, "'%.40s' is no KEY=VALUE", word);
        *value++ = '\0';
        if (set(&node, word, value, err) < 0)
            return -1;
    }
    nodes->node[nodes->n++] = node;
    return 0;
}

static int parse_pair(struct mu_job_nodes *nodes, char *rest, struct mu_err *err)
{
    char *save = NULL, *one = strtok_r(rest, " ", &save),
         *other = strtok_r(NULL, " ", &save), *text = strtok_r(NULL, " ", &save);
    int i = one ? find(nodes, one) : -1, j = other ? find(nodes, other) : -1;
    size_t n = (size_t)nodes->n;
    double us = -1;

    if (!text)
        return mu_err_set(err, EINVAL, "a pair has two nodes and a time");
    if (i < 0 || j < 0 || i == j)
        return mu_err_set(err, EINVAL, "'%.40s %.40s' is no pair of the nodes above",
                          one, other);
    if (strcmp(text, "-") != 0 &&
        mu_parse_double("a round trip in us", text, 1e-3, 1e9, &us, err) < 0)
        return -1;
    nodes->us[(size_t)i * n + (size_t)j] = us;
    nodes->us[(size_t)j * n + (size_t)i] = us;
    return 0;
}

/* Lines of one kind, which begin with `what`. */
static int parse_lines(struct mu_job_nodes *nodes, const char *text, const char *what,
                       int (*parse)(struct mu_job_nodes *, char *, struct mu_err *),
                       struct mu_err *err)
{
    char *copy = strdup(text), *rest = copy, *line;
    int number = 0, rc = 0;

    if (!copy)
        return mu_err_set(err, ENOMEM, "out of memory");
    while (rc == 0 && (line = mu_parse_next(&rest, '\n'))) {
        number++;
        if (strncmp(line, what, strlen(what)) != 0)
            continue;
        mu_make_printable(line);
        rc = parse(nodes, line + strlen(what), err);
        if (rc < 0)
            mu_err_context(err, "line %d", number);
    }
    free(copy);
    return rc;
}

int mu_job_nodes_parse(const char *text, struct mu_job_nodes *out, struct mu_err *err)
{
    struct mu_job_nodes nodes = { .node =
                                      calloc(MU_JOB_NODES_MAX, sizeof *nodes.node) };

    if (!nodes.node)
        return mu_err_set(err, ENOMEM, "out of memory");
    if (parse_lines(&nodes, text, MU_JOB_NODE, parse_node, err) < 0)
        goto fail;
    if (nodes.n == 0) {
        mu_err_set(err, EINVAL, "there is no line '" MU_JOB_NODE "NAME'");
        goto fail;
    }
    nodes.us = calloc((size_t)nodes.n * (size_t)nodes.n, sizeof *nodes.us);
    if (!nodes.us) {
        mu_err_set(err, ENOMEM, "out of memory");
        goto fail;
    }
    if (parse_lines(&nodes, text, MU_JOB_PAIR, parse_pair, err) < 0)
        goto fail;
    *out = nodes;
    return 0;
fail:
    mu_job_nodes_clear(&nodes);
    return -1;
}

void mu_job_nodes_clear(struct mu_job_nodes *nodes)
{
    free(nodes->node);
    free(nodes->us);
    *nodes = (struct mu_job_nodes){ 0 };
}
