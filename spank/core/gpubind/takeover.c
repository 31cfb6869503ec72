/* SPDX-License-Identifier: BSD-3-Clause */
/* takeover.c - decides what Slurm gets in place of a GPU binding; the text of the
 * request
 */
#include "spank/core/gpubind/takeover.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/core/gpubind/gpu_bind.h"
#include "spank/core/gpubind/gpu_counts.h"

/* The kind of a binding, or -1 if Slurm will refuse the text. */
static int kind_of(const char *text)
{
    struct mu_gpu_bind bind;

    return mu_gpu_bind_parse(text, &bind, NULL) == 0 ? (int)bind.kind : -1;
}

/* Copy the GPU part of a stored binding; false if there is none or it does not fit. */
static bool gpu_part(const char *text, char *out, size_t len)
{
    char copy[MU_TAKEOVER_TEXT], *part;

    if (!text || !mu_copy(copy, sizeof copy, text))
        return false;
    part = mu_gpu_bind_part(copy);
    return part && *part && mu_copy(out, len, part);
}

/* Copy a --tres-bind list with "gres/gpu:none" in place of its GPU part. */
static void neutral_tres(const char *text, char *out, size_t len)
{
    char copy[MU_TAKEOVER_TEXT], *rest = copy, *item;
    size_t at = 0;

    if (!text || !mu_copy(copy, sizeof copy, text))
        copy[0] = '\0';
    while ((item = mu_parse_next(&rest, '+')))
        if (*item && !mu_gpu_bind_skip_prefix(item) && at + strlen(item) + 16 < len)
            at += (size_t)snprintf(out + at, len - at, "%s+", item);
    snprintf(out + at, len - at, "gres/gpu:none");
}

bool mu_takeover_neutral_list(const char *text, char *out, size_t len)
{
    char part[MU_TAKEOVER_TEXT];

    if (!gpu_part(text, part, sizeof part))
        return false;
    neutral_tres(text, out, len);
    return true;
}

/* Write the binding "kind:N", where N is the number of GPUs in `text`; false without a
 * number.
 */
static bool implied(const char *kind, const char *text, struct mu_bind_request *out)
{
    int n;

    if (!text || mu_gpu_count_parse(text, &n, NULL) < 0 || n < 1)
        return false;
    snprintf(out->gpu_bind, sizeof out->gpu_bind, "%s:%d", kind, n);
    out->implicit = true;
    return true;
}

static bool implied_by_srun(const struct mu_takeover_input *in,
                            struct mu_bind_request *out)
{
    return implied("single", in->ntasks_per_gpu, out) ||
           implied("per_task", in->gpus_per_task, out) ||
           implied("per_task", in->tres_per_task, out);
}

static bool implied_by_env(const struct mu_takeover_input *in,
                           struct mu_bind_request *out)
{
    return implied("single", in->env_ntasks_per_gpu, out) ||
           implied("per_task", in->env_gpus_per_task, out) ||
           implied("per_task", in->env_tres_per_task, out);
}

static void add_change(struct mu_takeover_change *changes, int *n, const char *name,
                       const char *value)
{
    changes[*n].name = name;
    mu_copy(changes[*n].value, sizeof changes[*n].value, value);
    (*n)++;
}

static void neutralise(const struct mu_takeover_input *in,
                       const struct mu_takeover_slurm *s,
                       struct mu_takeover_change *changes, int *n)
{
    char text[MU_TAKEOVER_TEXT];

    /* A mask of the step's GPUs in place of `none` was rejected: it fails on nodes with
     * unequal numbers of GPUs and in a step smaller than its job. Under `none` Slurm
     * does not set CUDA_VISIBLE_DEVICES; the plugin sets it in any case.
     */
    add_change(changes, n, "SLURM_GPU_BIND", "none");
    if (s->tres_bind) {
        neutral_tres(in->env_tres_bind, text, sizeof text);
        add_change(changes, n, "SLURM_TRES_BIND", text);
    }
}

/* A binding on srun's command line, which overrides the environment. Slurm 23.11.4 and
 * later can keep all devices open on request; older releases confine each task by
 * cgroup.
 */
static void decide_by_option(const struct mu_takeover_input *in,
                             const struct mu_takeover_slurm *s,
                             struct mu_bind_request *out,
                             struct mu_takeover_change *changes, int *n)
{
    const char *flags = in->gres_flags ? in->gres_flags : in->env_gres_flags;
    int kind = kind_of(out->gpu_bind);
    char text[MU_TAKEOVER_TEXT];

    out->slurm_binds = kind != MU_GPU_BIND_NONE;
    if (!out->slurm_binds || kind < 0 || !s->task_sharing)
        return;
    if (flags && strstr(flags, "allow-task-sharing")) {
        out->slurm_binds = false;
    } else if (!in->gres_flags) {
        snprintf(text, sizeof text, "%.1000s%sallow-task-sharing", flags ? flags : "",
                 flags && *flags ? "," : "");
        add_change(changes, n, "SLURM_GRES_FLAGS", text);
        out->slurm_binds = false;
    }
}

/* No binding on the command line: take the one of the environment, or the one that
 * follows from the numbers of GPUs and tasks.
 */
static void decide_by_environment(const struct mu_takeover_input *in,
                                  const struct mu_takeover_slurm *s,
                                  struct mu_bind_request *out,
                                  struct mu_takeover_change *changes, int *n)
{
    struct mu_bind_request before;
    bool env = (s->tres_bind &&
                gpu_part(in->env_tres_bind, out->gpu_bind, sizeof out->gpu_bind)) ||
               gpu_part(in->env_gpu_bind, out->gpu_bind, sizeof out->gpu_bind);
    int kind = env ? kind_of(out->gpu_bind) : -1;

    if (env && kind == MU_GPU_BIND_NONE) {
        /* Muster wrote this `none` at an outer level if a request was kept; otherwise
         * the user asked for it.
         */
        out->gpu_bind[0] = '\0';
        if (!in->env_request ||
            mu_takeover_decode(in->env_request, &before, NULL) < 0 ||
            !before.gpu_bind[0])
            return;
        if (!before.implicit || !implied_by_srun(in, out)) {
            mu_copy(out->gpu_bind, sizeof out->gpu_bind, before.gpu_bind);
            out->implicit = before.implicit;
        }
    } else if (env && kind < 0) {
        out->gpu_bind[0] = '\0'; /* Slurm refuses it and prints the reason */
    } else if (env || implied_by_srun(in, out) || implied_by_env(in, out)) {
        /* sbatch 23.11 and later exports an implicit binding like an explicit one. */
        if (env && kind == MU_GPU_BIND_PER_TASK)
            out->implicit = in->env_gpus_per_task || in->env_tres_per_task;
        if (env && kind == MU_GPU_BIND_SINGLE)
            out->implicit = in->env_ntasks_per_gpu != NULL;
        neutralise(in, s, changes, n);
    }
}

/* Does a list of --gres or --tres-per-task have one of these? The last one is NULL. */
static bool has_any(const char *list, const char *const *names)
{
    for (const char *item = list; item && *item; item += strspn(item, ",")) {
        size_t len;

        if (strncmp(item, "gres", 4) == 0 && strchr(":/", item[4]))
            item += 5;
        len = strcspn(item, ":=,");
        for (int i = 0; names[i]; i++)
            if (strlen(names[i]) == len && strncmp(item, names[i], len) == 0)
                return true;
        item += strcspn(item, ",");
    }
    return false;
}

static bool has_parts(const char *list)
{
    return has_any(list, (const char *const[]){ "shard", "mps", NULL });
}

static bool has_gpus(const char *list)
{
    return has_any(list, (const char *const[]){ "gpu", NULL });
}

bool mu_takeover_asks_for_parts(const struct mu_takeover_input *in)
{
    if (in->gres)
        return has_parts(in->gres);
    return has_parts(in->tres_per_task) || has_parts(in->env_tres_per_task) ||
           has_parts(in->env_gres) || (in->env_shards && *in->env_shards) ||
           (in->env_mps && *in->env_mps);
}

static bool may_have_parts(const struct mu_takeover_input *in)
{
    return mu_takeover_asks_for_parts(in) ||
           (in->foreign_job && !in->gpus_per_task && !in->ntasks_per_gpu &&
            !has_gpus(in->gres) && !has_gpus(in->tres_per_task));
}

void mu_takeover_decide(const struct mu_takeover_input *input,
                        const struct mu_takeover_slurm *slurm,
                        struct mu_bind_request *out,
                        struct mu_takeover_change changes[MU_TAKEOVER_CHANGES],
                        int *nchanges)
{
    *nchanges = 0;
    memset(out, 0, sizeof *out);
    /* Slurm exports SLURM_CPU_BIND together with SLURM_CPU_BIND_TYPE; a user sets only
     * SLURM_CPU_BIND.
     */
    out->cpu_bind_inherited =
        !input->cpu_bind && input->env_cpu_bind_type && *input->env_cpu_bind_type;
    out->cpu_bind = input->cpu_bind || (input->env_cpu_bind && *input->env_cpu_bind &&
                                        !out->cpu_bind_inherited);
    if (may_have_parts(input))
        return;
    if (gpu_part(input->tres_bind, out->gpu_bind, sizeof out->gpu_bind) ||
        gpu_part(input->gpu_bind, out->gpu_bind, sizeof out->gpu_bind))
        decide_by_option(input, slurm, out, changes, nchanges);
    else
        decide_by_environment(input, slurm, out, changes, nchanges);
}

bool mu_takeover_repeats_cpus(const struct mu_takeover_input *input,
                              const char *cpus_per_task)
{
    const char *tres = input->env_tres_per_task;

    return (input->ntasks_per_gpu || input->env_ntasks_per_gpu) && cpus_per_task &&
           tres && (strncmp(tres, "cpu=", 4) == 0 || strncmp(tres, "cpu:", 4) == 0) &&
           strcmp(tres + 4, cpus_per_task) == 0;
}

void mu_takeover_encode(const struct mu_bind_request *request,
                        char text[MU_TAKEOVER_TEXT])
{
    snprintf(text, MU_TAKEOVER_TEXT, "v=1;cpu-bind=%s;from=%s;by=%s;gpu-bind=%s",
             request->cpu_bind             ? "yes"
             : request->cpu_bind_inherited ? "inherited"
                                           : "no",
             request->implicit ? "implicit" : "explicit",
             request->slurm_binds  ? "slurm"
             : request->own_option ? "muster;option=muster"
                                   : "muster",
             request->gpu_bind);
}

int mu_takeover_decode(const char *text, struct mu_bind_request *out,
                       struct mu_err *err)
{
    struct mu_bind_request work = { 0 };
    char copy[MU_TAKEOVER_TEXT], *rest = copy, *item;

    if (!mu_copy(copy, sizeof copy, text))
        return mu_err_set(err, ENAMETOOLONG,
                          "%s has %zu characters, at most %d are allowed",
                          MU_TAKEOVER_VARIABLE, strlen(text), MU_TAKEOVER_TEXT - 1);
    if (strncmp(copy, "v=1;", 4) != 0)
        return mu_err_set(err, EINVAL, "%s: '%.80s' does not begin with v=1",
                          MU_TAKEOVER_VARIABLE, text);
    while ((item = mu_parse_next(&rest, ';'))) {
        if (strncmp(item, "gpu-bind=", 9) == 0) {
            if (!mu_copy(work.gpu_bind, sizeof work.gpu_bind, item + 9))
                return mu_err_set(err, ENAMETOOLONG, "%s: gpu-bind is too long",
                                  MU_TAKEOVER_VARIABLE);
        } else if (strcmp(item, "cpu-bind=yes") == 0) {
            work.cpu_bind = true;
        } else if (strcmp(item, "cpu-bind=inherited") == 0) {
            work.cpu_bind_inherited = true;
        } else if (strcmp(item, "from=implicit") == 0) {
            work.implicit = true;
        } else if (strcmp(item, "by=slurm") == 0) {
            work.slurm_binds = true;
        } else if (strcmp(item, "option=muster") == 0) {
            work.own_option = true;
        }
    }
    *out = work;
    return 0;
}
