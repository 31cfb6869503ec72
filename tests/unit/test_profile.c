/* SPDX-License-Identifier: BSD-3-Clause */
/* test_profile.c - profile files: what they say, which one fits, when it counts */
#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/nccl/nccl_variables.h"
#include "spank/core/nccl/profile.h"

static void a_profile_is_for_steps_of_several_nodes(void **state)
{
    struct mu_settings *s = calloc(1, sizeof *s);
    struct mu_profiles profiles = { 0 };
    struct mu_node node = { .nnics = 0 };
    struct mu_net_choice choice = { .iface = -1 };
    struct mu_hca_choice hca = { .n = 0 };
    struct mu_nccl_input in = {
        .node = &node, .nnodes = 1, .choice = &choice, .hca = &hca
    };

    assert_int_equal(
        mu_profiles_parse(&profiles, "p.ini",
                          "[tcpx]\nwhy = NCCL_PROTO: in order\n"
                          "why = NCCL_*: as qualified\n"
                          "set = NCCL_ALGO=Ring\nset = NCCL_PROTO=Simple\n",
                          NULL),
        0);
    in.profile = &profiles.profile[0];
    assert_int_equal(mu_nccl_decide(&in, s, NULL), 0);
    assert_int_equal(s->n, 0);
    in.nnodes = 2;
    assert_int_equal(mu_nccl_decide(&in, s, NULL), 0);
    assert_int_equal(s->n, 2);
    assert_string_equal(mu_settings_find(s, "NCCL_ALGO")->reason,
                        "profile tcpx: as qualified");
    assert_string_equal(mu_settings_find(s, "NCCL_PROTO")->reason,
                        "profile tcpx: in order");
    mu_profiles_clear(&profiles);
    free(s);
}

/* A machine made up; the count is that of its PCI functions and of its ports. */
struct machine {
    const char *vendor, *pci, *file;
    int count;
};

static const char *machine_dmi(void *arg, const char *field)
{
    return strcmp(field, "sys_vendor") == 0 ? ((struct machine *)arg)->vendor : NULL;
}

static int machine_pci(void *arg, const char *glob)
{
    const struct machine *m = arg;

    return m->pci && fnmatch(glob, m->pci, 0) == 0 ? m->count : 0;
}

static int machine_rdma(void *arg, const char *link_layer)
{
    return strcmp(link_layer, "InfiniBand") == 0 ? ((struct machine *)arg)->count : 0;
}

static bool machine_exists(void *arg, const char *path)
{
    const struct machine *m = arg;

    return m->file && strcmp(m->file, path) == 0;
}

static char *machine_read(void *arg, const char *path)
{
    return strcmp(path, "/opt/env.sh") == 0
               ? strdup(
                     "#!/bin/sh\nexport NCCL_P=1\n export NCCL_Q=\"a b\"\n"
                     "NCCL_R='x'\nPATH=/bin\nexport NCCL_S=$HOME\nif [ 1 = 1 ]; then\n")
               : NULL;
}

static const char profile_text[] = "[cloud]\n"
                                   "dmi = sys_vendor: Cloud *\n"
                                   "pci = 10de:23* 8\n"
                                   "rdma = InfiniBand 8\n"
                                   "file = /opt/plugin.so\n"
                                   "set = NCCL_CROSS_NIC=0\n"
                                   "set-from = /opt/env.sh\n"
                                   "set-from = /opt/absent.sh\n"
                                   "why = NCCL_CROSS_NIC: rails are apart\n"
                                   "[any]\n"
                                   "pci = *:*\n"
                                   "set = NCCL_X=a=b\n"
                                   "[ethernet]\n"
                                   "rdma = none\n"
                                   "[never]\n"
                                   "set = NCCL_Y=1\n";

static void the_first_profile_whose_conditions_hold_is_taken(void **state)
{
    struct machine m = { "Cloud Inc", "10de:2330", "/opt/plugin.so", 8 };
    struct mu_platform platform = { &m,           machine_dmi,    machine_pci,
                                    machine_rdma, machine_exists, machine_read };
    struct mu_profiles profiles = { 0 };
    struct mu_settings *s = calloc(1, sizeof *s);
    const struct mu_profile *p;

    assert_int_equal(mu_profiles_parse(&profiles, "p.ini", profile_text, NULL), 0);
    assert_int_equal(profiles.n, 4);
    p = mu_profiles_match(&profiles, &platform);
    assert_non_null(p);
    assert_string_equal(p->name, "cloud");
    assert_int_equal(mu_profile_apply(p, &platform, s, NULL), 0);
    assert_string_equal(s->item[0].value, "0");
    assert_string_equal(s->item[0].reason, "profile cloud: rails are apart");
    /* of the vendor's script only what is plain */
    assert_int_equal(s->n, 3);
    assert_string_equal(s->item[1].name, "NCCL_P");
    assert_string_equal(s->item[2].name, "NCCL_R");
    assert_string_equal(s->item[2].value, "x");
    m.count = 7;
    p = mu_profiles_match(&profiles, &platform);
    assert_string_equal(p->name, "any");
    m.pci = NULL;
    assert_null(mu_profiles_match(&profiles, &platform));
    m.count = 0;
    p = mu_profiles_match(&profiles, &platform);
    assert_string_equal(p->name, "ethernet");
    mu_profiles_clear(&profiles);
    free(s);
}

static void a_bad_profile_line_is_named(void **state)
{
    static const char *const bad[] = { "[a]\ndmi = x\n",         "[a]\npci = 10de\n",
                                       "[a]\nfile = rel/path\n", "[a]\nset = X\n",
                                       "[a]\nspeed = 1\n",       "\nset = X=1\n",
                                       "[a]\npci = 10de:1 0\n",  "[a]\nrdma = WLAN\n",
                                       "[a]\nnonsense\n" };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct mu_profiles profiles = { 0 };
        struct mu_err err = { 0 };

        if (mu_profiles_parse(&profiles, "p.ini", bad[i], &err) == 0)
            fail_msg("accepted: %s", bad[i]);
        assert_non_null(strstr(err.text, "p.ini line 2: "));
        mu_profiles_clear(&profiles);
    }
}

/* What would run code in other users' tasks, or in tools of root around them. */
static void a_profile_sets_no_variable_of_the_loader_or_of_roots_tools(void **state)
{
    static const char *const bad[] = {
        "LD_PRELOAD", "LD_LIBRARY_PATH", "PATH",          "BASH_ENV",      "GCONV_PATH",
        "SLURM_CONF", "PYTHONPATH",      "ENROOT_ROOTFS", "GLIBC_TUNABLES"
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct mu_profiles profiles = { 0 };
        struct mu_err err = { 0 };
        char text[128];

        snprintf(text, sizeof text, "[p]\nset = %s=/x\n", bad[i]);
        if (mu_profiles_parse(&profiles, "p.ini", text, &err) == 0)
            fail_msg("accepted: %s", bad[i]);
        assert_non_null(strstr(err.text, "p.ini line 2: set takes no variable that"));
        mu_profiles_clear(&profiles);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_profile_sets_no_variable_of_the_loader_or_of_roots_tools),
        cmocka_unit_test(a_profile_is_for_steps_of_several_nodes),
        cmocka_unit_test(the_first_profile_whose_conditions_hold_is_taken),
        cmocka_unit_test(a_bad_profile_line_is_named),
    };

    return cmocka_run_group_tests_name("profile", tests, NULL, NULL);
}
