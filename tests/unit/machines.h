/* SPDX-License-Identifier: BSD-3-Clause */
/* machines.h - machines of tests/CASES.md, made up from their descriptions
 *
 * Each fills an empty node; mu_node_finish is up to the caller. GPUs without a real
 * address are 0000:01:00.0, 0000:02:00.0, ...
 */
#ifndef MACHINES_H
#define MACHINES_H

#include "spank/core/node/node.h"

void machine_dgx_a100(struct mu_node *node);
void machine_pcie_8(struct mu_node *node);
void machine_pair_64(struct mu_node *node);
void machine_perlmutter(struct mu_node *node);
void machine_lumi_l3(struct mu_node *node);
void machine_lumi_numa_only(struct mu_node *node);
void machine_backwards_8(struct mu_node *node);
void machine_lopsided_1_3(struct mu_node *node);
void machine_lopsided_1_4(struct mu_node *node);
void machine_all_on_socket_1(struct mu_node *node);
void machine_lopsided_4_2(struct mu_node *node);
void machine_flat_vm(struct mu_node *node);
void machine_gh200(struct mu_node *node);
void machine_power9(struct mu_node *node);
void machine_memoryless(struct mu_node *node);
void machine_rome(struct mu_node *node);
void machine_p4d(struct mu_node *node);
void machine_mig_4(struct mu_node *node);
void machine_mixed_models(struct mu_node *node);
void machine_h20_vm(struct mu_node *node);
void machine_ndv4(struct mu_node *node);
void machine_kvm_unknown(struct mu_node *node);
void machine_two_caches(struct mu_node *node);
void machine_even_and_odd(struct mu_node *node);
void machine_port_down(struct mu_node *node);

#endif
