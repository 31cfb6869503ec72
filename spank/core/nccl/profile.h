/* SPDX-License-Identifier: BSD-3-Clause */
/* profile.h - platforms and the variables that they need, from data files
 *
 * A section is one platform. All its conditions (dmi, pci, rdma, file) must hold:
 *
 *     [azure-ndv5]
 *     dmi = sys_vendor: Microsoft Corporation
 *     pci = 10de:2330 8          (vendor:device and the least number, default 1)
 *     rdma = InfiniBand 8        (active RDMA ports by link layer; or: none)
 *     file = /opt/some/plugin.so
 *     set = NCCL_IB_PCI_RELAXED_ORDERING=1
 *     set-from = /usr/local/gib/scripts/set_nccl_env.sh
 *     why = NCCL_IB_PCI_RELAXED_ORDERING: Azure's own images set it
 *
 * set-from names a file that the vendor installs with its plugin. Its NAME=VALUE and
 * export NAME=VALUE lines with NCCL_ names are used, so that each value belongs to the
 * installed version of the plugin. Several lines of a kind are allowed.
 *
 * dmi, pci and why take the wildcards * and ?. The first why line that matches a
 * variable gives its reason. The first section that matches is the platform: files are
 * read in order of name, sections in order of appearance. Host names are never used.
 */
#ifndef MU_PROFILE_H
#define MU_PROFILE_H

#include <stdbool.h>

#include "runtime/base/err.h"
#include "spank/core/env/variables.h"

enum mu_rule_kind {
    MU_RULE_DMI,
    MU_RULE_PCI,
    MU_RULE_RDMA,
    MU_RULE_FILE,
    MU_RULE_SET,
    MU_RULE_FROM,
    MU_RULE_WHY
};

struct mu_rule {
    enum mu_rule_kind kind;
    char
        key[64]; /* dmi: field; pci: "vendor:device"; rdma: layer; set, why: variable */
    char text[1024]; /* dmi: value; file, set-from: path; set: value; why: reason */
    int count;       /* pci, rdma */
};

struct mu_profile {
    char name[64];
    char file[256];
    int nrules;
    struct mu_rule *rule;
};

struct mu_profiles {
    int n;
    struct mu_profile *profile;
};

/* What a machine reports about itself. Each function gets arg. A NULL value is unknown.
 */
struct mu_platform {
    void *arg;
    const char *(*dmi)(void *arg, const char *field);      /* "sys_vendor", ... */
    int (*pci)(void *arg, const char *vendor_device_glob); /* how many functions */
    int (*rdma)(void *arg, const char *link_layer); /* active ports of this layer */
    bool (*exists)(void *arg, const char *path);
    char *(*read)(void *arg, const char *path); /* caller frees; NULL: not readable */
};

/* Append the sections of one file's text; errors name file and line. */
int mu_profiles_parse(struct mu_profiles *profiles, const char *file, const char *text,
                      struct mu_err *err);
void mu_profiles_clear(struct mu_profiles *profiles);

/* The first profile whose conditions all hold, or NULL. A profile without conditions
 * never matches.
 */
const struct mu_profile *mu_profiles_match(const struct mu_profiles *profiles,
                                           const struct mu_platform *platform);

/* Add the profile's variables in the order of its lines, each with its reason ("profile
 * NAME: ..."). A set-from file that cannot be read adds none.
 */
int mu_profile_apply(const struct mu_profile *profile,
                     const struct mu_platform *platform, struct mu_settings *settings,
                     struct mu_err *err);

#endif
