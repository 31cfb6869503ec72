/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_facts.h - gathers the facts for the doctor's checks */
#ifndef MU_DOCTOR_FACTS_H
#define MU_DOCTOR_FACTS_H

#include "spank/core/doctor/doctor.h"
#include "spank/core/options/muster_conf.h"
#include "spank/hw/live/slurm_files.h"

/* Owns all its data; pointers in `facts` point into the other fields. */
struct mu_doctor_input {
    struct mu_facts facts;
    struct mu_node node;
    struct mu_net net;
    struct mu_conf conf;
    struct mu_peer *peers;
    struct mu_link *links;
    struct mu_acs *acs;
    struct mu_library library[8];
    struct mu_slurm_files gres, slurm; /* gres.conf, slurm.conf */
    char host[256];                    /* gethostname, up to the first dot */
    char command_line[4096], command_step[32];
    bool command_launches; /* the command line starts a launcher */
    char site_path[512];   /* muster.conf: path in plugstack.conf or the default path */
};

/* Reads this machine, without parts that cannot be read. topology: a saved machine in
 * place of this one, or NULL; gres_conf: a file in place of /etc/slurm/gres.conf, or
 * NULL. Fails only when one of these two files cannot be read.
 */
int mu_doctor_gather(const char *topology, const char *gres_conf,
                     struct mu_doctor_input *out, struct mu_err *err);

/* doctor_names.c: fills facts.gres_elsewhere, unresolved and names_late from
 * slurm.conf.
 */
void mu_doctor_names(struct mu_doctor_input *in);

/* doctor_shm.c: files in /dev/shm that no process has open or mapped; of this user, or
 * of all users for root.
 */
void mu_doctor_shm(struct mu_stale_files *stale);

/* doctor_tasks.c: fills facts.command_line, command_tasks and ras, and lowers
 * facts.limits to those of the tasks.
 */
void mu_doctor_tasks(struct mu_doctor_input *in);

/* doctor_files.c: checks the topology and graph files that NCCL would read against this
 * machine or the saved one (topology, NULL none).
 */
void mu_doctor_files(const struct mu_doctor_input *in, const char *topology,
                     struct mu_findings *out);

/* doctor_site.c: fills facts.plugin_path, plugin_from, plugin_required, stack and
 * site_path from plugstack.conf and its includes.
 */
void mu_doctor_plugstack(struct mu_doctor_input *in, const char *path);
/* Loads facts.plugin_path, and fills in its release, or why it fails. */
void mu_doctor_plugin(struct mu_doctor_input *in);
/* The site file's keys for this node and partition; all zero without a readable one. */
void mu_doctor_site_keys(const struct mu_doctor_input *in, struct mu_site_keys *keys);

/* doctor_facts.c, for the other commands: fills site_path alone. in is all zero but for
 * facts.env; mu_doctor_release frees it.
 */
void mu_doctor_find_site(struct mu_doctor_input *in);
/* Checks the site file and the files that it names, as a step would read them. */
void mu_doctor_site(const struct mu_doctor_input *in, struct mu_findings *out);

/* A key's value in slurm.conf and its includes; false: the key is not set. */
bool mu_doctor_slurm_key(const struct mu_slurm_files *conf, const char *key, char *buf,
                         size_t len);

/* The first file of this pattern (glob) in the folders of Slurm's plugins, PluginDir
 * first; false: there is none.
 */
bool mu_doctor_plugin_dir(const struct mu_doctor_input *in, const char *pattern,
                          char *file, size_t len);

void mu_doctor_release(struct mu_doctor_input *input);

#endif
