/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_facts.h - gather what the doctor's checks look at */
#ifndef MU_DOCTOR_FACTS_H
#define MU_DOCTOR_FACTS_H

#include "spank/core/doctor/doctor.h"
#include "spank/hw/live/slurm_files.h"

/* Everything owned; pointers in `facts` go into the other fields. */
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
    bool command_launches; /* the command line is a launcher's */
    char site_path[512]; /* muster.conf, as plugstack.conf says or where it is usual */
};

/* Look at this machine: each part that cannot be read is left out. topology: a saved
 * machine in place of this one, or NULL; gres_conf: a file in place of
 * /etc/slurm/gres.conf, or NULL. Fails only when a named file cannot be read.
 */
int mu_doctor_gather(const char *topology, const char *gres_conf,
                     struct mu_doctor_input *out, struct mu_err *err);

/* doctor_tasks.c: fill facts.command_line and command_tasks. */
void mu_doctor_tasks(struct mu_doctor_input *in);

/* doctor_files.c: check the topology and graph files that NCCL would read, against this
 * machine or the saved one (topology, NULL none).
 */
void mu_doctor_files(const struct mu_doctor_input *in, const char *topology,
                     struct mu_findings *out);

/* doctor_site.c: fill facts.plugin_* and site_path from plugstack.conf and what it
 * includes.
 */
void mu_doctor_plugstack(struct mu_doctor_input *in, const char *path);
/* The site file, as a step would read it, and what it names. */
void mu_doctor_site(const struct mu_doctor_input *in, struct mu_findings *out);

/* A key's value in slurm.conf and what it includes; false: it has no such key. */
bool mu_doctor_slurm_key(const struct mu_slurm_files *conf, const char *key, char *buf,
                         size_t len);

/* The first file of this pattern (glob) in the folders of Slurm's plugins, the
 * configured one first; false: none has it.
 */
bool mu_doctor_plugin_dir(const struct mu_doctor_input *in, const char *pattern,
                          char *file, size_t len);

void mu_doctor_release(struct mu_doctor_input *input);

#endif
