/* SPDX-License-Identifier: BSD-3-Clause */
/* profile.h - platforms and the variables they need, read from data files.
 *
 * A section is one platform; every condition line in it must hold:
 *
 *     [azure-ndv5]
 *     dmi = sys_vendor: Microsoft Corporation
 *     pci = 10de:2330 8          (vendor:device, and how many at least; default 1)
 *     rdma = InfiniBand 8        (active RDMA ports by link layer; or: none)
 *     file = /opt/some/plugin.so
 *     set = NCCL_IB_PCI_RELAXED_ORDERING=1
 *     set-from = /usr/local/gib/scripts/set_nccl_env.sh
 *     why = NCCL_IB_PCI_RELAXED_ORDERING: Azure's own images set it
 *
 * set-from names a file that the vendor installs with its plugin: its plain NAME=VALUE
 * and export NAME=VALUE lines with NCCL_ names are taken, so that a value always
 * belongs to the plugin version that is installed. dmi, pci and why take the
 * wildcards * and ?; of several whys the first that fits counts. Several lines of a
 * kind are allowed. Sections are tried in order of appearance, files in order of name:
 * the first that matches is the platform. Host names are never looked at.
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

/* What a machine shows of itself. The functions get arg; value NULL: not known. */
struct mu_platform {
    void *arg;
    const char *(*dmi)(void *arg, const char *field);      /* "sys_vendor", ... */
    int (*pci)(void *arg, const char *vendor_device_glob); /* how many functions */
    int (*rdma)(void *arg, const char *link_layer); /* active ports of this layer */
    bool (*exists)(void *arg, const char *path);
    char *(*read)(void *arg, const char *path); /* text, caller frees; NULL: cannot */
};

/* Append the sections of one file's text; errors name file and line. */
int mu_profiles_parse(struct mu_profiles *profiles, const char *file, const char *text,
                      struct mu_err *err);
void mu_profiles_clear(struct mu_profiles *profiles);

/* The first profile whose conditions all hold (one without conditions never does), or
 * NULL.
 */
const struct mu_profile *mu_profiles_match(const struct mu_profiles *profiles,
                                           const struct mu_platform *platform);

/* Add its variables, each with its reason ("profile NAME: ..."), in order of the lines.
 * A set-from file that cannot be read adds nothing.
 */
int mu_profile_apply(const struct mu_profile *profile,
                     const struct mu_platform *platform, struct mu_settings *settings,
                     struct mu_err *err);

#endif
