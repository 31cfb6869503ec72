/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_site.c - checks the site's configuration: the line for muster.so in
 * plugstack.conf and its includes, the site file, and the profiles beside it
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "spank/core/options/muster_conf.h"
#include "spank/core/options/plugstack.h"
#include "spank/hw/load/node_load.h"
#include "spank/hw/live/platform_live.h"
#include "spank/hw/live/plugstack_lines.h"
#include "spank/hw/io/sysfile.h"
#include "spank/tools/doctor_facts.h"

#define AREA "slurm"
#define TEXT_MAX (256 * 1024)
#define RUN ": run " /* before the command that corrects a file, as mu_refuse_foreign */

/* Reads the Slurm release of muster.so from its symbol plugin_version. Loads it lazily,
 * because Slurm's symbols are missing here; muster.so runs no code on load.
 */
static void check_plugin(struct mu_facts *facts)
{
    void *lib = dlopen(facts->plugin_path, RTLD_LAZY | RTLD_LOCAL);
    const unsigned *version = lib ? dlsym(lib, "plugin_version") : NULL;
    const char *why = version ? "" : lib ? "it is not a Slurm plugin" : dlerror();
    size_t n = strlen(facts->plugin_path);

    if (strncmp(why, facts->plugin_path, n) == 0 && why[n] == ':')
        why += n + 1 + (why[n + 1] == ' ');
    mu_copy(facts->plugin_fault, sizeof facts->plugin_fault, why);
    facts->plugin_version[0] = '\0';
    if (version)
        snprintf(facts->plugin_version, sizeof facts->plugin_version, "%u.%02u.%u",
                 *version >> 16 & 0xff, *version >> 8 & 0xff, *version & 0xff);
    if (lib)
        dlclose(lib);
}

/* The next fault, or one that is thrown away after the last. */
static struct mu_stack_fault *add_fault(struct mu_facts *facts, const char *file,
                                        int number, const char *text)
{
    static struct mu_stack_fault surplus;
    struct mu_stack_fault *fault =
        facts->nstack < MU_STACK_FAULTS ? &facts->stack[facts->nstack++] : &surplus;

    *fault = (struct mu_stack_fault){ .line = number };
    mu_copy(fault->file, sizeof fault->file, file ? file : "");
    mu_copy(fault->text, sizeof fault->text, text);
    return fault;
}

static void read_unread(void *arg, const char *path, const char *from, int number,
                        int error)
{
    struct mu_doctor_input *in = arg;
    struct mu_stack_fault *fault = add_fault(&in->facts, from, number, path);

    fault->kind = MU_STACK_UNREAD;
    fault->error = error;
    mu_copy(fault->why, sizeof fault->why, strerror(error));
}

static void read_line(void *arg, const char *file, int number,
                      const struct mu_plugstack_line *line)
{
    struct mu_doctor_input *in = arg;
    struct mu_facts *facts = &in->facts;
    struct mu_err err = { 0 };
    bool muster = line->path && strstr(line->path, "muster.so");

    if (line->kind == MU_PLUGSTACK_INVALID) {
        struct mu_stack_fault *fault = add_fault(facts, file, number, line->word);

        fault->has_path = line->path;
        fault->muster = muster;
        return;
    }
    if (!muster)
        return;
    if (facts->plugin_path[0]) {
        add_fault(facts, file, number, line->path)->kind = MU_STACK_SECOND;
        return;
    }
    if (line->path[0] == '/' ||
        !mu_doctor_plugin_dir(in, line->path, facts->plugin_path,
                              sizeof facts->plugin_path))
        mu_copy(facts->plugin_path, sizeof facts->plugin_path, line->path);
    snprintf(facts->plugin_from, sizeof facts->plugin_from, "%.400s line %d", file,
             number);
    facts->plugin_required = line->kind == MU_PLUGSTACK_REQUIRED;
    mu_plugin_arguments(line->nargs, line->arg, in->site_path, sizeof in->site_path,
                        &err);
    mu_copy(facts->plugin_refused, sizeof facts->plugin_refused, err.text);
}

void mu_doctor_plugstack(struct mu_doctor_input *in, const char *path)
{
    struct mu_plugstack_reader reader = { read_line, read_unread, in };

    mu_copy(in->site_path, sizeof in->site_path, MU_SITE_FILE);
    mu_plugstack_lines(path, &reader);
}

void mu_doctor_plugin(struct mu_doctor_input *in)
{
    if (in->facts.plugin_path[0])
        check_plugin(&in->facts);
}

void mu_doctor_site_keys(const struct mu_doctor_input *in, struct mu_site_keys *keys)
{
    const char *host = mu_facts_env(&in->facts, "SLURMD_NODENAME");
    const char *partition = mu_facts_env(&in->facts, "SLURM_JOB_PARTITION");
    /* Refused arguments of plugstack.conf: the plugin reads no site file. */
    char *text = NULL, own[256] = "";
    struct mu_site site = { 0 };

    memset(keys, 0, sizeof *keys);
    gethostname(own, sizeof own - 1);
    own[strcspn(own, ".")] = '\0';
    if (!in->facts.plugin_refused[0] &&
        mu_sysfile_text(in->site_path, TEXT_MAX, &text, NULL) == 0 &&
        mu_site_parse(text, in->site_path, &site, NULL) == 0)
        mu_site_resolve(&site, partition, host ? host : own, keys);
    mu_site_clear(&site);
    free(text);
}

/* Checks the recorded machine that the site file names for this node, and the site's
 * profiles. */
static int check_named(const struct mu_doctor_input *in, const struct mu_site *site,
                       struct mu_err *err)
{
    const char *slash = strrchr(in->site_path, '/');
    struct mu_site_keys *keys = calloc(1, sizeof *keys);
    struct mu_profiles profiles = { 0 };
    struct mu_node node = { 0 };
    struct stat st;
    char dir[600];
    int rc = 0;

    snprintf(dir, sizeof dir, "%.*s/muster.d", slash ? (int)(slash - in->site_path) : 0,
             in->site_path);
    if (keys)
        mu_site_resolve(site, mu_facts_env(&in->facts, "SLURM_JOB_PARTITION"),
                        in->facts.host, keys);
    if (keys && keys->topology[0] &&
        (mu_check_owner(keys->topology, err) < 0 ||
         mu_node_load_site(keys->topology, &node, err) < 0))
        rc = mu_err_context(err, "topology");
    if (rc == 0 && stat(dir, &st) == 0 &&
        (mu_refuse_foreign(dir, &st, err) < 0 ||
         mu_profiles_load(dir, &profiles, err) < 0))
        rc = -1;
    mu_node_clear(&node);
    mu_profiles_clear(&profiles);
    free(keys);
    return rc;
}

/* Checks that the plugin can read the site file with any user's rights. */
static int check_file(const struct mu_doctor_input *in, const struct stat *st,
                      struct mu_err *err)
{
    struct mu_site site = { 0 };
    char *text = NULL;
    int rc = -1;

    if (mu_check_owner(in->site_path, err) < 0)
        goto out;
    if (!(st->st_mode & S_IROTH)) {
        mu_err_set(
            err, EACCES,
            "%s is not readable by everybody, but a step reads it with its user's "
            "rights" RUN "chmod a+r %s",
            in->site_path, in->site_path);
        goto out;
    }
    if (st->st_size > TEXT_MAX) {
        mu_err_set(err, EFBIG, "%s: larger than %d bytes", in->site_path, TEXT_MAX);
        goto out;
    }
    if (mu_sysfile_text(in->site_path, TEXT_MAX, &text, err) == 0 &&
        mu_site_parse(text, in->site_path, &site, err) == 0)
        rc = check_named(in, &site, err);
out:
    mu_site_clear(&site);
    free(text);
    return rc;
}

void mu_doctor_site(const struct mu_doctor_input *in, struct mu_findings *out)
{
    struct mu_err err = { 0 };
    struct stat st;

    if (in->facts.plugin_refused[0])
        return; /* reported; no site file is read */
    if (stat(in->site_path, &st) < 0) {
        if (strcmp(in->site_path, MU_SITE_FILE) != 0)
            mu_findings_add(out, MU_ERROR, AREA, "make the file, or correct the line",
                            "%s names %s: %s; steps run without Muster",
                            in->facts.plugin_from, in->site_path, strerror(errno));
        else if (in->facts.plugin_path[0])
            mu_findings_add(out, MU_OK, AREA, "",
                            "%s does not exist: Muster is on for steps with GPUs",
                            in->site_path);
    } else if (check_file(in, &st, &err) < 0) {
        const char *command = strstr(err.text, RUN);

        mu_findings_add(out, MU_ERROR, AREA,
                        command ? command + strlen(RUN)
                                : "correct it; see muster.conf(5)",
                        "%.*s; steps run without Muster, or without a plan",
                        (int)(command ? command - err.text : MU_ERR_TEXT), err.text);
    } else {
        mu_findings_add(out, MU_OK, AREA, "", "%s can be read and is well formed",
                        in->site_path);
    }
}
