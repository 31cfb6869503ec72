/* SPDX-License-Identifier: BSD-3-Clause */
/* slurm_files.h - slurm.conf or gres.conf with the files that it includes */
#ifndef MU_SLURM_FILES_H
#define MU_SLURM_FILES_H

#include "spank/core/slurm/conf_lines.h"

/* Read path and what it includes; a relative name starts at path's folder, as in Slurm.
 * file[0] is path itself. At most 4 MiB of each.
 */
void mu_slurm_files_load(const char *path, struct mu_slurm_files *files);
void mu_slurm_files_clear(struct mu_slurm_files *files);

/* slurmd's own slurm.conf: SLURM_CONF of slurmstepd is slurmd's, not the job's. */
const char *mu_slurm_conf_path(void);

#endif
