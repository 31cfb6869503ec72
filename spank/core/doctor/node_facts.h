/* SPDX-License-Identifier: BSD-3-Clause */
/* node_facts.h - facts of all nodes of a job; the comparison has only what differs
 *
 *   muster-fact n1 driver.nvidia=550.54.15       one line for each node and fact
 *
 * A fact's key is "area.name". Other lines of the text are passed over, and control
 * bytes become '?'.
 */
#ifndef MU_NODE_FACTS_H
#define MU_NODE_FACTS_H

#include <stdio.h>

#include "spank/core/slurm/hostlist.h"

#define MU_NODE_FACT "muster-fact " /* begins each line */

struct mu_node_fact {
    const char *key, *value; /* borrowed from the text */
    int node;                /* index into nodes */
};

/* Owned; clear with mu_node_facts_clear. */
struct mu_node_facts {
    char *text;
    struct mu_hostlist nodes;  /* those expected, then others, as they appear */
    int n;                     /* facts */
    struct mu_node_fact *fact; /* in order of key, value, node; each once */
};

/* expected: the nodes that should have facts, NULL: those that have. A line without
 * node, key or '=' is an error, which names the line.
 */
int mu_node_facts_parse(const char *text, const struct mu_hostlist *expected,
                        struct mu_node_facts *out, struct mu_err *err);
void mu_node_facts_clear(struct mu_node_facts *facts);

/* Nodes on which a fact has the same value. */
struct mu_fact_group {
    const char *value; /* borrowed from the facts; NULL: these nodes lack the fact */
    int count;
    char *nodes; /* "n[1-63]" */
};

struct mu_fact_difference {
    const char *key; /* borrowed from the facts */
    int n;
    struct mu_fact_group *group; /* the largest first */
};

/* Owned; clear with mu_comparison_clear. */
struct mu_comparison {
    int nnodes, nfacts; /* nodes with facts; different keys */
    char *silent;       /* nodes without any fact; "" none */
    int n;
    struct mu_fact_difference *difference; /* in order of key */
    const struct mu_hostlist *nodes;       /* borrowed from the facts */
    int *away; /* for each node: facts whose value more than half of the nodes share,
                * but not this one */
};

int mu_node_facts_compare(const struct mu_node_facts *facts, struct mu_comparison *out,
                          struct mu_err *err);
void mu_comparison_clear(struct mu_comparison *comparison);

/* Writes it for people: a line for each group of nodes, then the nodes that differ from
 * most. Facts of one area that the same nodes lack are counted in one line.
 */
void mu_comparison_text(FILE *out, const struct mu_comparison *comparison);

#endif
