/* SPDX-License-Identifier: BSD-3-Clause */
/* nodes_measure.h - the round trips between all nodes of a job, for muster plan --nodes
 *
 *   muster plan --nodes                                          nodes_measure.c
 *     listens; srun, one task on each node:
 *       muster plan --node-probe PORT TOKEN                      nodes_probe.c
 *         sends its facts                                        nodes_facts.c
 *     sends all addresses when all have arrived
 *         measures its share of the pairs by UDP, sends the times
 *     closes the connections, which ends the tasks
 *
 * Lines of a task:  TOKEN NAME UDP-PORT KEY=VALUE...; pair INDEX US|-; done
 * Lines to a task:  peer INDEX ADDRESS PORT; go INDEX NODES
 */
#ifndef MU_NODES_MEASURE_H
#define MU_NODES_MEASURE_H

#include <stdio.h>

#include "runtime/base/err.h"

#define MU_NODES_TOKEN 16 /* characters */

/* Measure the nodes of this job. *text is that of job_nodes.h, which the caller frees:
 * a node that did not start has pairs without an answer.
 */
int mu_nodes_measure(char **text, struct mu_err *err);

/* The task on one node; the words are port and token. Returns an exit status. */
int mu_nodes_probe(int nwords, char *const *words);

/* Write KEY=VALUE words of this node, each behind a blank. */
void mu_nodes_facts(FILE *out);

#endif
