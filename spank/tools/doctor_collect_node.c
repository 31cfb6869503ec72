/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_collect_node.c - all facts of this node; here those of Slurm, NCCL, PMIx and
 * limits
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spank/hw/io/sysfile.h"
#include "spank/hw/machine/machine.h"
#include "spank/tools/doctor_collect.h"
#include "spank/tools/doctor_facts.h"
#include "spank/tools/tool.h"

/* A file that should be the same everywhere: its size and FNV-1a sum. */
static void collect_sum(const struct mu_collector *c, const char *path, const char *key)
{
    uint64_t sum = 14695981039346656037u;
    char *text = NULL, value[64];
    size_t len;

    if (!path[0] || mu_read_file(path, &text, &len, NULL) < 0)
        return;
    for (size_t i = 0; i < len; i++)
        sum = (sum ^ (unsigned char)text[i]) * 1099511628211u;
    free(text);
    snprintf(value, sizeof value, "%zu bytes, sum %016llx", len,
             (unsigned long long)sum);
    mu_collect(c, value, "%s", key);
}

static void collect_pmix(const struct mu_collector *c)
{
    void *lib = dlopen("libpmix.so.2", RTLD_LAZY | RTLD_LOCAL);
    const char *(*version)(void) = NULL;

    if (lib)
        *(void **)&version = dlsym(lib, "PMIx_Get_version");
    if (version)
        mu_collect(c, version(), "pmix.version");
    if (lib)
        dlclose(lib);
}

static void collect_slurm(const struct mu_collector *c,
                          const struct mu_doctor_input *in)
{
    const struct mu_facts *f = &in->facts;

    mu_collect(c, f->slurm_version, "slurm.version");
    for (int i = 0; i < in->slurm.n && i < 8; i++)
        collect_sum(c, in->slurm.file[i].path, i ? "slurm.include" : "slurm.conf");
    mu_collect(c, f->plugin_path, "plugin.path");
    mu_collect(c, f->plugin_version, "plugin.version");
    mu_collect(c, f->plugin_fault, "plugin.fault");
    mu_collect(c, f->plugin_refused, "plugin.refused");
    collect_sum(c, f->plugin_path, "plugin.file");
    collect_sum(c, in->site_path, "plugin.conf");
    mu_collect(c, f->pmix_missing, "pmix.missing");
    collect_pmix(c);
    for (int i = 0; i < f->nnccl; i++)
        mu_collect(c, f->nccl[i].version, "nccl.%s", f->nccl[i].path);
    mu_collect(c,
               f->gpudirect == MU_GPUDIRECT_READY  ? "yes"
               : f->gpudirect == MU_GPUDIRECT_NONE ? "no"
                                                   : "",
               "driver.gpudirect-rdma");
}

/* "Max locked memory  65536  65536  bytes": name, soft and hard limit. */
static void collect_limits(const struct mu_collector *c, const char *path,
                           const char *area)
{
    static const struct {
        const char *line, *key;
    } limits[] = {
        { "Max stack size", "stack" },        { "Max core file size", "core" },
        { "Max processes", "processes" },     { "Max open files", "files" },
        { "Max locked memory", "memlock" },   { "Max address space", "addresses" },
        { "Max realtime priority", "rtprio" }
    };
    char *text = NULL, soft[32], hard[32], value[80];

    if (mu_sysfile_text(path, 8192, &text, NULL) < 0)
        return;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        const char *at = strstr(text, limits[i].line);

        if (!at || sscanf(at + strlen(limits[i].line), "%31s %31s", soft, hard) != 2)
            continue;
        snprintf(value, sizeof value, "%s, hard %s", soft, hard);
        mu_collect(c, value, "%s.%s", area, limits[i].key);
    }
    free(text);
}

/* srun hands the limits of its node to the tasks; slurmstepd has those of slurmd. */
static void collect_daemon_limits(const struct mu_collector *c)
{
    char path[64], name[64];

    if (mu_sysfile_read("", name, sizeof name, "/proc/%ld/comm", (long)getppid()) <=
            0 ||
        strcmp(name, "slurmstepd") != 0)
        return;
    snprintf(path, sizeof path, "/proc/%ld/limits", (long)getppid());
    collect_limits(c, path, "limit-slurmstepd");
}

int mu_collect_node(FILE *out)
{
    struct mu_doctor_input *in = calloc(1, sizeof *in);
    struct mu_collector c = { .out = out, .root = mu_sysfile_root() };
    struct mu_err err = { 0 };

    if (!in || mu_doctor_gather(NULL, NULL, in, &err) < 0) {
        free(in);
        return mu_tool_fail("doctor", MU_EXIT_INPUT, "%s",
                            in ? err.text : "out of memory");
    }
    c.node = in->facts.host ? in->facts.host : "localhost";
    mu_collect_system(&c);
    mu_collect_devices(&c);
    collect_slurm(&c, in);
    collect_limits(&c, "/proc/self/limits", "limit");
    collect_daemon_limits(&c);
    mu_doctor_release(in);
    free(in);
    return 0;
}
