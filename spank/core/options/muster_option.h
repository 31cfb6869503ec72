/* SPDX-License-Identifier: BSD-3-Clause */
/* muster_option.h - parses the text of --muster; see muster(7) */
#ifndef MU_MUSTER_OPTION_H
#define MU_MUSTER_OPTION_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/err.h"

/* Value 0 means "not given": the site file or the default then fills it. */
enum mu_mode { MU_MODE_UNSET, MU_MODE_ON, MU_MODE_OFF, MU_MODE_DRY_RUN };
enum mu_bind { MU_BIND_UNSET, MU_BIND_AUTO, MU_BIND_NONE };
enum mu_cpus { MU_CPUS_UNSET, MU_CPUS_LOCAL, MU_CPUS_ALL };
enum mu_mem { MU_MEM_UNSET, MU_MEM_PREFER, MU_MEM_STRICT, MU_MEM_NONE };
enum mu_visible { MU_VISIBLE_UNSET, MU_VISIBLE_AUTO, MU_VISIBLE_OWN, MU_VISIBLE_ALL };
enum mu_share { MU_SHARE_UNSET, MU_SHARE_WARN, MU_SHARE_YES, MU_SHARE_NO };
enum mu_auto { MU_AUTO_UNSET, MU_AUTO_AUTO, MU_AUTO_NONE };
enum mu_rdzv { MU_RDZV_UNSET, MU_RDZV_AUTO, MU_RDZV_NONE, MU_RDZV_RANKS };
enum mu_topo { MU_TOPO_UNSET, MU_TOPO_AUTO, MU_TOPO_NONE, MU_TOPO_FILE };
enum mu_profile_key {
    MU_PROFILE_UNSET,
    MU_PROFILE_NO,
    MU_PROFILE_YES, /* in the working directory */
    MU_PROFILE_FOLDER,
};
enum mu_tuner_key { MU_TUNER_UNSET, MU_TUNER_NONE, MU_TUNER_FILE };
enum mu_flag { MU_FLAG_UNSET, MU_FLAG_NO, MU_FLAG_YES };

struct mu_opts {
    enum mu_mode mode;
    enum mu_flag verbose, strict, accelerate;
    enum mu_bind bind;
    enum mu_cpus cpus;
    enum mu_mem mem;
    enum mu_visible visible;
    enum mu_share share;
    enum mu_auto nccl, omp;
    enum mu_rdzv rdzv;
    enum mu_topo topo;
    char topo_file[4096];
    enum mu_profile_key profile;
    char profile_folder[1024];
    enum mu_tuner_key tuner;
    char tuner_file[4096];
    char gpu_bind[1024]; /* "" not given; with Slurm's commas, not '+' */
};

/* Parse the comma-separated text of --muster ("", NULL and "(null)" are "on") into
 * *opts; a key in the text overrides the value in *opts. A text without a mode turns
 * Muster on. Unknown keys and values fail with a sentence that lists the possible ones,
 * and leave *opts unchanged.
 */
int mu_opts_parse(const char *text, struct mu_opts *opts, struct mu_err *err);

/* Set one key; value is NULL for a switch without a value. A switch also takes yes and
 * no, because a line of a site file always has a value.
 */
int mu_opts_set(struct mu_opts *opts, const char *key, const char *value,
                struct mu_err *err);

/* Is this word a key of --muster? */
bool mu_opts_is_key(const char *word);

/* Unset a key (each of on, off and dry-run unsets the mode); false if it was not set.
 */
bool mu_opts_unset(struct mu_opts *opts, const char *key);

/* Fill the unset fields of *opts from *lower. */
void mu_opts_merge(struct mu_opts *opts, const struct mu_opts *lower);

/* The built-in defaults, every field set. */
void mu_opts_defaults(struct mu_opts *opts);

#endif
