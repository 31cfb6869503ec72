/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_conf.c - a key of slurm.conf, and the folder of Slurm's plugins */
#include <glob.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/tools/doctor_facts.h"

bool mu_doctor_slurm_key(const struct mu_slurm_files *conf, const char *key, char *buf,
                         size_t len)
{
    for (int i = 0; i < conf->n; i++)
        if (conf->file[i].text &&
            mu_slurm_text_value(conf->file[i].text, key, buf, len))
            return true;
    return false;
}

bool mu_doctor_plugin_dir(const struct mu_doctor_input *in, const char *pattern,
                          char *file, size_t len)
{
    static const char *const usual[] = { "/usr/lib/x86_64-linux-gnu/slurm-wlm",
                                         "/usr/lib/x86_64-linux-gnu/slurm",
                                         "/usr/lib64/slurm", "/usr/local/lib/slurm",
                                         NULL };
    char dir[512], full[1100];
    glob_t found;

    for (int i = -1; i < 0 || usual[i]; i++) {
        if (i >= 0)
            mu_copy(dir, sizeof dir, usual[i]);
        else if (!mu_doctor_slurm_key(&in->slurm, "PluginDir", dir, sizeof dir))
            continue;
        snprintf(full, sizeof full, "%s/%s", dir, pattern);
        if (glob(full, 0, NULL, &found) != 0)
            continue;
        mu_copy(file, len, found.gl_pathv[0]);
        globfree(&found);
        return true;
    }
    return false;
}
