/* SPDX-License-Identifier: BSD-3-Clause */
/* test_doctor_slurm.c - gres.conf against the hardware, and Slurm's plugins; case
 * numbers of tests/CASES.md */
#include "tests/unit/doctor_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* gres.conf of this text, and one file more that the first includes. */
static void check_gres(struct mu_facts *facts, const char *text, const char *more)
{
    struct mu_slurm_files *files = calloc(1, sizeof *files);

    assert_non_null(files);
    *files = (struct mu_slurm_files){
        .n = more ? 2 : 1,
        .file = { { .path = "gres.conf", .text = strdup(text), .from = -1 },
                  { .path = "gpus.conf", .text = NULL, .line = 2 } }
    };
    if (more && more[0])
        files->file[1].text = strdup(more);
    mu_slurm_conf_join(files->file[0].text);
    facts->gres = files;
    mu_findings_clear(&doctor_found);
    mu_doctor_slurm(facts, &doctor_found);
    for (int i = 0; i < files->n; i++)
        free(files->file[i].text);
    free(files);
    facts->gres = NULL;
}

static const struct gres_case {
    const char *name, *text;
    const char *more; /* a file it includes, "" one that cannot be read */
    const char *host;
    const char *says[3]; /* none: nothing is found */
} gres[] = {
    { "core numbers, keys in any case",
      "AutoDetect=off\nName=gpu File=/dev/nvidia0 Cores=0-3 # near\n"
      "name=gpu file=/dev/nvidia1 COREs=4-7\n",
      .more = NULL },
    { "threads, and the other package",
      "Name=gpu File=/dev/nvidia0 CPUs=0-3,8-11\n"
      "NodeName=n1 Name=gpu File=/dev/nvidia1 Cores=0-3\n",
      .says = { "gres.conf line 1: Cores=0-3,8-11 holds Linux CPU numbers: this "
                "machine "
                "has 8 cores, so core 11 does not exist",
                "GPU1: Slurm has CPUs 0-3,8-11 (gres.conf line 2), the PCI bus reports "
                "CPUs 4-7,12-15 "
                "(NUMA 1)" } },
    { "one wrong line for two GPUs is told once",
      "Name=gpu File=/dev/nvidia[0-1] CPUs=0-11\n",
      .says = { "core 11 does not exist" } },
    { "blanks around '=', quotes",
      "Name = \"gpu\" File = \"/dev/nvidia1\" Cores = \"0-3\"\n",
      .says = { "GPU1: Slurm has CPUs 0-3,8-11 (gres.conf line 1)" } },
    { "a line that goes on, and the numbers of those behind",
      "Name=gpu \\\n File=/dev/nvidia0 \\\r\n Cores=0-3\n"
      "Name=gpu File=/dev/nvidia1 Cores=0-3\n",
      .says = { "GPU1: Slurm has CPUs 0-3,8-11 (gres.conf line 4)" } },
    { "a list of files", "Name=gpu File=/dev/nvidia[0],/dev/nvidia1 Cores=0-3\n",
      .says = { "GPU1: Slurm has CPUs 0-3,8-11 (gres.conf line 1)" } },
    { "an included file is named with its own line", "# GPUs\nInclude gpus.conf\n",
      "Name=gpu File=/dev/nvidia1 Cores=0-3\n",
      .says = { "GPU1: Slurm has CPUs 0-3,8-11 (gpus.conf line 1)" } },
    { "an included file that cannot be read", "# GPUs\nInclude gpus.conf\n", "",
      .says = { "gres.conf line 2 includes gpus.conf, which cannot be read" } },
    { "lines of other nodes are not held against this one",
      "NodeName=n[1-6] Name=gpu File=/dev/nvidia[0-1] Cores=0-63\n"
      "NodeName=n[7-8] Name=gpu File=/dev/nvidia0 Cores=0-3\n"
      "NodeName=n[7-8] Name=gpu File=/dev/nvidia1 Cores=4-7\n",
      .host = "n7" },
    { "AutoDetect of another node is not this one's",
      "NodeName=n1 AutoDetect=nvml\nNodeName=n7 Name=gpu File=/dev/nvidia[0-1]\n",
      .host = "n7", .says = { "has no Cores=" } },
    { "AutoDetect finds the cores", "AutoDetect=nvml\nName=gpu File=/dev/nvidia[0-1]\n",
      .more = NULL },
    { "other device files: by position, where they are as many as the GPUs",
      "Name=gpu File=/dev/dri/renderD128 Cores=0-3\n"
      "Name=gpu File=/dev/dri/renderD129 Cores=0-3\n",
      .says = { "GPU1: Slurm has CPUs 0-3,8-11 (gres.conf line 2), the PCI bus reports "
                "CPUs "
                "4-7,12-15" } },
    { "more files than GPUs are those of another node",
      "Name=gpu File=/dev/gpu[0-3] Cores=4-7\n", .more = NULL },
    { "a MIG slice is several files and no GPU of that number",
      "Name=gpu MultipleFiles=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap1 Cores=0-3\n",
      .more = NULL },
    { "no cores", "Name=gpu File=/dev/nvidia[0-1]\n", .says = { "has no Cores=" } },
    { "cores that are no list", "\n\nName=gpu Cores=x\n",
      .says = { "gres.conf: line 3: Cores: 'x'" } },
};

static void c014_gres_conf_against_the_hardware(void **state)
{
    for (size_t i = 0; i < sizeof gres / sizeof gres[0]; i++) {
        struct doctor_machine m;
        struct mu_facts facts = { .node = &m.node, .host = gres[i].host };
        int n = 0;

        doctor_machine(&m);
        check_gres(&facts, gres[i].text, gres[i].more);
        for (; n < 3 && gres[i].says[n]; n++)
            doctor_finding(gres[i].says[n]);
        if (doctor_found.n != n)
            fail_msg("%s: %d findings, the last: %s", gres[i].name, doctor_found.n,
                     doctor_found.item[doctor_found.n - 1].what);
    }
}

/* The abstract numbering runs package by package, also where Linux alternates. */
static void c014_interleaved_sockets_are_counted_by_package(void **state)
{
    struct doctor_machine m;
    struct mu_facts facts = { .node = &m.node };

    doctor_machine(&m);
    for (int i = 0; i < 8; i++) {
        m.cores[i].package = m.cores[i].numa = i % 2;
        for (int t = 0; t < 2; t++) {
            mu_cpuset_remove(&m.numas[1 - i % 2].cpus, i + 8 * t);
            mu_cpuset_add(&m.numas[i % 2].cpus, i + 8 * t);
        }
    }
    for (int n = 0; n < 2; n++)
        m.gpus[n].local = m.numas[n].cpus;
    check_gres(&facts,
               "Name=gpu File=/dev/nvidia0 Cores=0-3\n"
               "Name=gpu File=/dev/nvidia1 Cores=4-7\n",
               NULL);
    assert_int_equal(doctor_found.n, 0);
}

static void c048_c051_slurms_plugins(void **state)
{
    struct mu_facts facts = { .slurm_version = "23.11.11",
                              .pmix_plugin = true,
                              .pmix_missing = "libpmix.so.2",
                              .plugin_path = "/usr/lib/muster.so",
                              .plugin_version = "25.05.9" };

    mu_doctor_slurm(&facts, &doctor_found);
    doctor_finding("libpmix.so.2 cannot be loaded");
    doctor_finding(
        "/usr/lib/muster.so was built for Slurm 25.05.9, but this is Slurm 23.11.11");
    mu_findings_clear(&doctor_found);
    strcpy(facts.plugin_version, "23.11.0");
    facts.pmix_missing[0] = '\0';
    mu_doctor_slurm(&facts, &doctor_found);
    doctor_nothing_above(MU_OK);
    facts.pmix_plugin = false;
    mu_doctor_slurm(&facts, &doctor_found);
    doctor_finding("no mpi_pmix*.so");
}

static void a_plugin_that_cannot_be_loaded(void **state)
{
    struct mu_facts facts = { .plugin_path = "/nfs/muster.so",
                              .plugin_from = "/etc/slurm/plugstack.conf line 3",
                              .plugin_fault = "No such file or directory" };

    mu_doctor_slurm(&facts, &doctor_found);
    doctor_finding("/etc/slurm/plugstack.conf line 3: /nfs/muster.so cannot be loaded "
                   "(No such file or directory): steps run without Muster");
    mu_findings_clear(&doctor_found);
    facts.plugin_required = true;
    mu_doctor_slurm(&facts, &doctor_found);
    doctor_finding("the line has required, so every srun, sbatch and salloc stops");
    mu_findings_clear(&doctor_found);
    facts.plugin_fault[0] = '\0';
    mu_doctor_slurm(&facts, &doctor_found);
    doctor_finding("plugstack.conf line 3 has required");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DOCTOR_TEST(c014_gres_conf_against_the_hardware),
        DOCTOR_TEST(c014_interleaved_sockets_are_counted_by_package),
        DOCTOR_TEST(c048_c051_slurms_plugins),
        DOCTOR_TEST(a_plugin_that_cannot_be_loaded),
    };

    return cmocka_run_group_tests_name("doctor slurm", tests, NULL, NULL);
}
