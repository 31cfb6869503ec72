/* SPDX-License-Identifier: BSD-3-Clause */
/* variables.c - collects the variables of a step and decides which value of each wins
 */
#include "spank/core/env/variables.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/parse.h"

int mu_settings_add(struct mu_settings *settings, const char *name, const char *value,
                    const char *reason, struct mu_err *err)
{
    struct mu_setting *s = &settings->item[settings->n];

    if (mu_settings_find(settings, name))
        return 0;
    if (settings->n == MU_SETTINGS_MAX)
        return mu_err_set(err, ENOSPC, "more than %d variables to set",
                          MU_SETTINGS_MAX);
    *s = (struct mu_setting){ 0 };
    if (!mu_copy(s->name, sizeof s->name, name) ||
        !mu_copy(s->value, sizeof s->value, value))
        return mu_err_set(err, ENOSPC, "%.63s: the value is too long", name);
    mu_copy(s->reason, sizeof s->reason, reason);
    settings->n++;
    return 0;
}

const struct mu_setting *mu_settings_find(const struct mu_settings *settings,
                                          const char *name)
{
    for (int i = 0; i < settings->n; i++)
        if (strcmp(settings->item[i].name, name) == 0)
            return &settings->item[i];
    return NULL;
}

void mu_settings_resolve(struct mu_settings *settings,
                         const char *(*user)(void *arg, const char *name), void *arg,
                         const struct mu_conf *conf)
{
    for (int i = 0; i < settings->n; i++) {
        struct mu_setting *s = &settings->item[i];
        const char *own = user ? user(arg, s->name) : NULL;
        const struct mu_conf_line *line = conf ? mu_conf_find(conf, s->name) : NULL;

        s->winner = own ? MU_WINNER_USER : line ? MU_WINNER_FILE : MU_WINNER_MUSTER;
        if (own)
            snprintf(s->kept, sizeof s->kept, "%.200s from the environment", own);
        else if (line)
            snprintf(s->kept, sizeof s->kept, "%.200s from %s line %d", line->value,
                     line->file, line->line);
    }
}

void mu_settings_show(FILE *out, const struct mu_settings *settings)
{
    for (int i = 0; i < settings->n; i++) {
        const struct mu_setting *s = &settings->item[i];

        if (s->winner == MU_WINNER_MUSTER)
            fprintf(out, "%s=%s: %s\n", s->name, s->value, s->reason);
        else
            fprintf(out, "%s stays %s (Muster would set %s: %s)\n", s->name, s->kept,
                    s->value, s->reason);
    }
}
