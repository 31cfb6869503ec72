/* SPDX-License-Identifier: BSD-3-Clause */
/* node_soft.c - keeps RDMA devices in software (soft-iWARP, soft-RoCE) apart from NICs:
 * their PCI function, if any, is that of the Ethernet card below them
 */
#include "spank/core/node/node.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/array.h"

bool mu_nic_soft_name(const char *name)
{
    bool soft = strncmp(name, "siw", 3) == 0 || strncmp(name, "rxe", 3) == 0;

    return soft && !isalpha((unsigned char)name[3]);
}

int mu_node_add_soft(struct mu_node *node, const struct mu_nic *nic)
{
    if (mu_array_extend(&node->soft, sizeof *nic, node->nsoft, node->nsoft + 1) < 0)
        return -1;
    node->soft[node->nsoft++] = *nic;
    return 0;
}

/* Remove NIC `gone` with its column of gpu_nic. */
static void remove_nic(struct mu_node *node, int gone)
{
    int n = node->nnics, to = 0;

    for (int i = 0; node->gpu_nic && i < node->ngpus * n; i++)
        if (i % n != gone)
            node->gpu_nic[to++] = node->gpu_nic[i];
    memmove(node->nics + gone, node->nics + gone + 1,
            (size_t)(n - gone - 1) * sizeof *node->nics);
    node->nnics--;
}

int mu_node_part_soft(struct mu_node *node)
{
    for (int i = 0; i < node->nnics;) {
        if (!node->nics[i].software && !mu_nic_soft_name(node->nics[i].name)) {
            i++;
            continue;
        }
        if (mu_node_add_soft(node, &node->nics[i]) < 0)
            return -1;
        remove_nic(node, i);
    }
    return 0;
}
