/* SPDX-License-Identifier: BSD-3-Clause */
/* verify.c - `muster verify`, run as a step's task: compares the plan in MUSTER_PLAN
 * with the actual placement of this process
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/cpuset.h"
#include "runtime/base/parse.h"
#include "runtime/base/record.h"
#include "spank/core/env/task_env.h"
#include "spank/core/gpubind/visible_check.h"
#include "spank/tools/run.h"
#include "spank/tools/tool.h"

#define NODE_BITS 1024
#define PREFERRED_MANY 5 /* MPOL_PREFERRED_MANY, which older headers lack */
#define PROBE_TEXT (64 * 1024)
#define PROBE_SECONDS "10"
#define DEVICES 128

/* One line of output, appended part by part; `differs` counts the differences. */
struct verdict {
    char line[4096];
    size_t at;
    int differs;
};

static void part(struct verdict *v, bool ok, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void part(struct verdict *v, bool ok, const char *fmt, ...)
{
    size_t room = sizeof v->line - v->at;
    va_list ap;
    int n = snprintf(v->line + v->at, room, "%s", v->at ? "; " : "");

    v->at += n > 0 && (size_t)n < room ? (size_t)n : 0;
    room = sizeof v->line - v->at;
    va_start(ap, fmt);
    n = vsnprintf(v->line + v->at, room, fmt, ap);
    va_end(ap);
    v->at += n > 0 && (size_t)n < room ? (size_t)n : room - 1;
    v->differs += !ok;
}

static void check_cpus(const struct mu_record *plan, struct verdict *v)
{
    struct mu_cpuset now = { { 0 } };
    char want[512], have[512];

    if (mu_cpuset_empty(&plan->cpus)) {
        part(v, true, "cpus as Slurm set them");
        return;
    }
    mu_cpuset_of_process(0, &now);
    mu_cpuset_format(&plan->cpus, want, sizeof want);
    mu_cpuset_format(&now, have, sizeof have);
    if (mu_cpuset_equal(&now, &plan->cpus))
        part(v, true, "cpus %s ok", want);
    else
        part(v, false, "cpus DIFFER: planned %s, has %s", want, have);
}

static const char *policy_name(int mode)
{
    switch (mode) {
    case MPOL_DEFAULT:
        return "default";
    case MPOL_PREFERRED:
        return "preferred";
    case MPOL_BIND:
        return "bind";
    case MPOL_INTERLEAVE:
        return "interleave";
    case MPOL_LOCAL:
        return "local";
    case PREFERRED_MANY:
        return "preferred";
    default:
        return "of another kind";
    }
}

static void check_memory(const struct mu_record *plan, struct verdict *v)
{
    struct mu_cpuset nodes = { { 0 } };
    char want[512], have[512];
    int mode = MPOL_DEFAULT;

    if (mu_cpuset_empty(&plan->mems)) {
        part(v, true, "memory not bound");
        return;
    }
    mu_cpuset_format(&plan->mems, want, sizeof want);
    if (syscall(SYS_get_mempolicy, &mode, nodes.word, NODE_BITS, NULL, 0) < 0) {
        part(v, false, "memory: get_mempolicy failed: %s", strerror(errno));
        return;
    }
    mu_cpuset_format(&nodes, have, sizeof have);
    mode &= ~MPOL_MODE_FLAGS;
    if (mu_cpuset_equal(&nodes, &plan->mems) &&
        (mode == MPOL_BIND || mode == MPOL_PREFERRED || mode == PREFERRED_MANY))
        part(v, true, "memory %s %s ok", policy_name(mode), have);
    else if (mode == MPOL_PREFERRED && !mu_cpuset_empty(&nodes) &&
             mu_cpuset_inside(&nodes, &plan->mems))
        /* Linux before 5.15 can prefer one node only */
        part(v, true, "memory %s %s ok (of %s: this kernel prefers one node only)",
             policy_name(mode), have, want);
    else
        part(v, false, "memory DIFFERS: planned node %s, policy is %s%s%s", want,
             policy_name(mode), have[0] ? " " : "", have);
}

static void copy_text(char *dst, size_t len, const json_t *gpu, const char *key)
{
    const char *text = json_string_value(json_object_get(gpu, key));

    mu_copy(dst, len, text ? text : "");
}

/* CUDA's devices in its order; returns their number, 0: unknown here. */
static int cuda_devices(struct mu_cuda_device *list, int max)
{
    char *argv[] = { (char *)MUSTER_LIBEXECDIR "/gpu-probe", (char *)PROBE_SECONDS,
                     NULL };
    char *text = malloc(PROBE_TEXT);
    json_t *root = NULL, *gpus, *gpu;
    size_t k;
    int n = 0;

    if (text && mu_run(argv, atoi(PROBE_SECONDS) + 1, text, PROBE_TEXT) == 0)
        root = json_loads(text, 0, NULL);
    free(text);
    gpus = json_object_get(root, "gpus");
    json_array_foreach(gpus, k, gpu)
    {
        if (n == max)
            break;
        copy_text(list[n].pci, sizeof list[n].pci, gpu, "pci");
        copy_text(list[n].uuid, sizeof list[n].uuid, gpu, "uuid");
        n++;
    }
    json_decref(root);
    return n;
}

/* Tasks on this node, -1 unknown: "4(x2)" has as many on every node. */
static int local_tasks(void)
{
    const char *text = getenv("SLURM_STEP_TASKS_PER_NODE");

    return text && !strchr(text, ',') ? atoi(text) : -1;
}

static void check_gpu(const struct mu_record *plan, struct verdict *v)
{
    struct mu_cuda_device device[DEVICES];
    struct mu_visible_task task = { plan->gpus, plan->task, local_tasks() };
    char text[256];
    int n;

    if (strcmp(plan->gpus, "-") == 0 || !plan->gpus[0])
        return;
    n = cuda_devices(device, DEVICES);
    if (n == 0) {
        part(v, true, "gpu %s not checked (no CUDA here)", plan->gpus);
        return;
    }
    switch (mu_visible_check(&task, device, n, text, sizeof text)) {
    case MU_VISIBLE_OK:
        part(v, true, "gpu %s ok (%s)", plan->gpus, text);
        break;
    case MU_VISIBLE_UNKNOWN:
        part(v, true, "gpu %s not checked (%s)", plan->gpus, text);
        break;
    case MU_VISIBLE_DIFFERS:
        part(v, false, "gpu DIFFERS: planned %s, %s", plan->gpus, text);
        break;
    }
}

/* Checks that every variable of Muster still has its value. */
static int check_set(const char *set, struct verdict *v)
{
    char name[64];
    int n = 0;

    for (; mu_env_set_name(set, n, name, sizeof name); n++) {
        const char *value = getenv(name);

        if (!value)
            part(v, false, "%s DIFFERS: it was removed", name);
        else if (!mu_env_set_has(set, name, value))
            part(v, false, "%s DIFFERS: it was changed to '%.80s'", name, value);
    }
    return n;
}

/* Compares the rank variables with Slurm's variables. */
static void check_ranks(struct verdict *v)
{
    static const char *const pairs[][2] = {
        { "RANK", "SLURM_PROCID" },
        { "LOCAL_RANK", "SLURM_LOCALID" },
        { "NODE_RANK", "SLURM_NODEID" },
        { "WORLD_SIZE", "SLURM_STEP_NUM_TASKS" },
    };

    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const char *ours = getenv(pairs[i][0]), *slurms = getenv(pairs[i][1]);

        if (ours && slurms && strcmp(ours, slurms) != 0)
            part(v, false, "%s DIFFERS: %s, but %s is %s", pairs[i][0], ours,
                 pairs[i][1], slurms);
    }
}

static void check_environment(struct verdict *v)
{
    int before = v->differs, n = check_set(getenv("MUSTER_SET"), v);

    check_ranks(v);
    if (v->differs == before)
        part(v, true, "environment ok (%d variable%s)", n, mu_plural(n));
}

static int verify(void)
{
    const char *line = getenv("MUSTER_PLAN");
    const char *rank = getenv("SLURM_PROCID"), *host = getenv("SLURMD_NODENAME");
    struct verdict *v = calloc(1, sizeof *v);
    struct mu_record *plan = calloc(1, sizeof *plan);
    struct mu_err err = { 0 };
    int status;

    if (!v || !plan) {
        status = mu_tool_fail("verify", MU_EXIT_INPUT, "out of memory");
    } else if (!line) {
        status =
            mu_tool_fail("verify", MU_EXIT_NOT_AS_ASKED,
                         "MUSTER_PLAN is not set: run this as a task of a step that "
                         "Muster places (srun --muster muster verify)");
    } else if (mu_record_decode(line, plan, &err) < 0) {
        status = mu_tool_fail("verify", MU_EXIT_INPUT, "%s", err.text);
    } else {
        check_cpus(plan, v);
        check_memory(plan, v);
        check_gpu(plan, v);
        check_environment(v);
        printf("task %s on %s: %s\n", rank ? rank : "?", host ? host : "?", v->line);
        status =
            mu_tool_finish("verify", v->differs ? MU_EXIT_NOT_AS_ASKED : MU_EXIT_OK);
    }
    free(v);
    free(plan);
    return status;
}

int mu_verify_main(int argc, char **argv)
{
    static const struct option options[] = { { "help", no_argument, NULL, 'h' },
                                             { NULL, 0, NULL, 0 } };
    int c;

    opterr = 0;
    while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (c != 'h')
            return mu_tool_bad_option("verify", c, argv);
        puts("usage: srun [OPTION]... muster verify\n"
             "\n"
             "Compares the plan of this task (MUSTER_PLAN) with its actual placement:\n"
             "CPU affinity, memory policy, environment and, where CUDA is installed, "
             "the\n"
             "devices that it shows. Prints one line; exit status 1 on a difference.");
        return mu_tool_finish("verify", MU_EXIT_OK);
    }
    if (optind < argc)
        return mu_tool_usage("verify", "takes no argument, not '%s'", argv[optind]);
    return verify();
}
