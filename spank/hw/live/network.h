/* SPDX-License-Identifier: BSD-3-Clause */
/* network.h - everything about the network of one step on this node, gathered and
 * decided
 *
 *   interfaces, resolved names, platform, NCCL's files     (read here, as the user)
 *                          |
 *      mu_net_choose, mu_hca_choose, mu_profiles_match, mu_nccl_decide   (spank/core)
 *                          |
 *      settings with a reason each, and rank 0's address
 */
#ifndef MU_NETWORK_H
#define MU_NETWORK_H

#include "spank/core/nccl/nccl_variables.h"
#include "spank/core/slurm/node_addr.h"

/* All strings borrowed; NULL where not known. */
struct mu_network_request {
    const struct mu_node *node;
    const struct mu_alloc *alloc;
    const struct mu_plan *plan;
    char *const *hosts; /* the nodes of the step, in order */
    int nhosts;
    const char *rank0_host; /* rank 0's among them; NULL: the first */
    const char *self;       /* this node among them; NULL: not known */
    const char *networks;   /* the site's networks=, comma separated */
    const char *exclude_hca;
    const char *profile_dir;      /* shipped profiles; may be absent */
    const char *site_profile_dir; /* the site's own, tried first */
    const char *root; /* a recorded /sys tree for the platform; NULL: this machine */
    const char *conf_file, *home; /* NCCL_CONF_FILE and HOME of the user */
    bool nccl;                    /* false: no NCCL variables */
    bool gloo; /* GLOO_SOCKET_IFNAME where gloo would take loopback */
    /* Gives a topology file where neither the user nor NCCL's files name one; false:
     * there is none. NULL: not called. Its strings must live as long as `out`.
     */
    bool (*topo)(void *arg, const char *platform, const char **file,
                 const char **reason);
    void *topo_arg;
    /* Fills in list[].addr for nodes whose names do not resolve. NULL: not called. */
    void (*node_addrs)(void *arg, struct mu_node_addr *list, int n);
    void *node_addrs_arg;
    int ras_port; /* this and the next as in struct mu_nccl_input */
    const char *ras_addr;
    const struct mu_library *library; /* as in struct mu_nccl_input */
    double timeout;                   /* seconds for name look-ups */
    /* The user's own value of a variable, see mu_settings_resolve. */
    const char *(*user)(void *arg, const char *name);
    void *user_arg;
};

struct mu_network {
    struct mu_net net;
    struct mu_net_choice choice; /* one node: iface -1 and a reason */
    struct mu_hca_choice hca;
    /* of rank 0's node: an address, or its name when none is known */
    char master_addr[256];
    bool master_known; /* false: it is a name that does not resolve here */
    /* a sentence about names that do not resolve and their replacement; "" none */
    char fallback[640];
    char refused[MU_ERR_TEXT]; /* why a set-from file is not read, "" none is refused */
    char unread[MU_ERR_TEXT];  /* why the user's nccl.conf does not count, "" it does */
    char platform[64];         /* name of the profile, "" none */
    struct mu_settings settings; /* resolved: who won is in each */
};

/* Fails only on a bad site value (networks=, a profile file): the sentence names it. A
 * name service that does not answer is a reason in choice, not a failure.
 */
int mu_network_decide(const struct mu_network_request *request, struct mu_network *out,
                      struct mu_err *err);
void mu_network_clear(struct mu_network *network);

#endif
