/* SPDX-License-Identifier: BSD-3-Clause */
/* synth.h - machines made up for tests, and a planner call in one line
 *
 *   struct mu_node node = { 0 };
 *   synth_cpus(&node, 2, 4, 16, 2);             2 packages x 4 NUMA x 16 cores x SMT2
 *   synth_gpu(&node, "0000:07:00.0", 3);        near NUMA node 3
 *   synth_nic(&node, "mlx5_0", "0000:0c:00.0", 3);
 *   synth_links(&node);                         paths by NUMA node; change them after
 *   synth_path(&node, 0, 0, MU_NEAR_PXB);
 *   assert_int_equal(mu_node_finish(&node, &err), 0);
 *
 * Every function fails the test when something is wrong.
 */
#ifndef SYNTH_H
#define SYNTH_H

#include "spank/core/plan/plan.h"

/* CPU c of thread h is core c's: c + h * cores of the machine, as Linux numbers x86.
 * NUMA OS indices are 0, 1, ...; 64 GiB each; no distances.
 */
void synth_cpus(struct mu_node *node, int packages, int numas, int cores, int threads);

/* One more NUMA node without CPUs; gpu_memory as in struct mu_numa. Returns its index.
 */
int synth_memory(struct mu_node *node, int os_index, uint64_t bytes, bool gpu_memory);

/* SLIT values: 10, `near` inside a package, `far` else. */
void synth_distances(struct mu_node *node, int near, int far);

/* Cache domains of n cores each, by core number. */
void synth_caches(struct mu_node *node, int cores);

/* Add a GPU near a NUMA node (index; -1: nobody knows). Returns its index until finish.
 */
int synth_gpu(struct mu_node *node, const char *busid, int numa);
/* One whose locality is this CPU list. */
int synth_gpu_near(struct mu_node *node, const char *busid, const char *cpus, int numa);
int synth_nic(struct mu_node *node, const char *name, const char *busid, int numa);

/* The matrices, once all devices are there. */
void synth_links(struct mu_node *node);
void synth_path(struct mu_node *node, int gpu, int nic, enum mu_nearness path);
void synth_nvlink(struct mu_node *node, int a, int b, int links);

/* All CPUs and GPUs of the node, ntasks tasks. */
void synth_alloc(const struct mu_node *node, int ntasks, struct mu_alloc *alloc);

/* mu_plan_make with options in --muster's words ("" for none), and its TSV rows as
 * text: lines `task gpus cpus mems nics path note` with single blanks and no header.
 * Caller frees. An error is "error: SENTENCE".
 */
char *synth_plan(const struct mu_node *node, const struct mu_alloc *alloc,
                 const char *options, struct mu_plan *plan);

/* All warnings and infos of a plan, a line each; caller frees. */
char *synth_said(const struct mu_plan *plan);

#endif
