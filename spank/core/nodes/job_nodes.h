/* SPDX-License-Identifier: BSD-3-Clause */
/* job_nodes.h - the nodes of a job and how far apart they are; from that, the order of
 * the nodes in which neighbours of a ring are near
 *
 *   muster-node n1 gpus=8 nvlink=UUID.3 switches=s0.s1 cpu=grace near=4
 *   muster-pair n1 n2 23.4          round trip, us; "-": no answer
 *
 *   job_nodes.c        reads that text
 *   node_classes.c     classes of distance, by gaps
 *   node_order.c       the order
 *   node_advice.c      what to change
 *   job_nodes_text.c   prints it
 */
#ifndef MU_JOB_NODES_H
#define MU_JOB_NODES_H

#include <stdbool.h>
#include <stdio.h>

#include "runtime/base/err.h"

#define MU_JOB_NODE "muster-node "
#define MU_JOB_PAIR "muster-pair "
#define MU_JOB_NODES_MAX 4096
#define MU_NODE_CLASSES 8

/* What one node reports; "" and -1: unknown. */
struct mu_job_node {
    char name[256];
    char nvlink[64];    /* the NVLink domain of its GPUs: cluster and clique */
    char switches[256]; /* Slurm's switches, the top first: "s0.s1" */
    char cpu[32];       /* "grace" */
    int gpus;
    int near; /* GPUs that are in a package with CPUs (NVLink-C2C) */
};

/* Owned; clear with mu_job_nodes_clear. */
struct mu_job_nodes {
    int n; /* in the order of Slurm: of the text */
    struct mu_job_node *node;
    double *us; /* n x n, both ways the same; 0: not measured, -1: no answer */
};

/* Other lines and unknown keys are passed over. A wrong line is an error, which names
 * its number, and so is a text without a node.
 */
int mu_job_nodes_parse(const char *text, struct mu_job_nodes *out, struct mu_err *err);
void mu_job_nodes_clear(struct mu_job_nodes *nodes);
/* Round trip between two nodes. */
double mu_job_nodes_us(const struct mu_job_nodes *nodes, int i, int j);

/* What decides how far two nodes are apart. */
enum mu_distance { MU_DISTANCE_NONE, MU_DISTANCE_LATENCY, MU_DISTANCE_SWITCHES };

struct mu_node_class {
    int pairs;
    double least, median, most; /* round trip, us; 0: not measured */
};

/* Owned; clear with mu_node_classes_clear. Class 0 is one NVLink domain; without such
 * pairs it is empty. The others begin with the nearest.
 */
struct mu_node_classes {
    int n; /* with class 0; a pair without a distance has the number n */
    struct mu_node_class c[MU_NODE_CLASSES + 1];
    enum mu_distance by;
    signed char *of; /* nodes x nodes */
};

/* Round trips make the classes where they have gaps: a value that is 1.25 times the one
 * below it, and 2 us above it, begins a class. Less than 2 % of the pairs are no class.
 * Where all are alike the switches decide, if Slurm names those of all nodes.
 */
int mu_node_classes_make(const struct mu_job_nodes *nodes, struct mu_node_classes *out,
                         struct mu_err *err);
void mu_node_classes_clear(struct mu_node_classes *classes);

/* Edges of the ring over all nodes by their class; order NULL: as Slurm has them. */
void mu_ring_edges(const struct mu_node_classes *classes, int nodes, const int *order,
                   int edges[MU_NODE_CLASSES + 2]);

/* The order: order[i] is the node at position i. What is near stays together, class by
 * class, else Slurm's order is kept. If the ring gains nothing, it is Slurm's.
 */
int mu_node_order(const struct mu_node_classes *classes, int nodes, int *order,
                  struct mu_err *err);

/* Groups of nodes that are connected by pairs up to a class: group[i] is the number of
 * node i's; groups are numbered in Slurm's order. Returns their number, 0 without
 * memory.
 */
int mu_node_groups(const struct mu_node_classes *classes, int nodes, int class,
                   int *group);

/* What to change in the job's request; a sentence each, owned. */
#define MU_NODE_ADVICE 6
struct mu_node_advice {
    int n;
    char *text[MU_NODE_ADVICE];
    bool silent; /* a pair did not answer */
};

/* hostfile: where the order was written, or NULL. */
int mu_node_advise(const struct mu_job_nodes *nodes,
                   const struct mu_node_classes *classes, const int *order,
                   const char *hostfile, struct mu_node_advice *out,
                   struct mu_err *err);
void mu_node_advice_clear(struct mu_node_advice *advice);

/* "an NVLink domain", "a round trip of 12 us", "2 levels of switches". */
void mu_node_class_name(const struct mu_node_classes *classes, int class, char *out,
                        size_t len);

/* The names in that order, compressed; order NULL: as Slurm has them. Caller frees the
 * text; NULL: no memory.
 */
char *mu_node_names(const struct mu_job_nodes *nodes, const int *order);

/* For people. */
int mu_job_nodes_text(FILE *out, const struct mu_job_nodes *nodes,
                      const struct mu_node_classes *classes, const int *order,
                      const struct mu_node_advice *advice);
/* A line per position. Header: position node gpus nvlink switches class us; the last
 * two are the distance to the next position.
 */
void mu_job_nodes_tsv(FILE *out, const struct mu_job_nodes *nodes,
                      const struct mu_node_classes *classes, const int *order);

#endif
