/* SPDX-License-Identifier: BSD-3-Clause */
/* container.c - a task that another plugin (pyxis) put into a container: Muster keeps
 * what the image sets in its environment or nccl.conf, as it keeps the user's settings.
 * The task's process decides, because it sees the container's files.
 */
#include <stdlib.h>
#include <sys/stat.h>

#include "spank/hw/live/nccl_conf_files.h"
#include "spank/plugin/plugin.h"

static bool mount_namespace(struct stat *ns)
{
    return stat("/proc/self/ns/mnt", ns) == 0;
}

void mu_container_remember(struct mu_state *st)
{
    struct stat ns;

    if (mount_namespace(&ns)) {
        st->host_ns.dev = ns.st_dev;
        st->host_ns.ino = ns.st_ino;
    }
}

/* Prints a line for each variable that Muster would have set on the host. */
static void print_changes(const struct mu_state *st, const struct mu_settings *before)
{
    for (int i = 0; i < before->n; i++) {
        const struct mu_setting *now = &st->network.settings.item[i];

        if (before->item[i].winner == MU_WINNER_MUSTER &&
            now->winner != MU_WINNER_MUSTER)
            mu_info(st, "in the container %s stays %s (Muster would set %s: %s)",
                    now->name, now->kept, now->value, now->reason);
    }
}

void mu_container_settle(struct mu_state *st, spank_t sp, int task)
{
    struct mu_user_lookup lookup = { .st = st, .sp = sp };
    struct mu_settings *before;
    struct mu_conf conf = { 0 };
    char home[1024], conf_file[1024];
    struct stat ns;

    if (!st->have_network || !st->host_ns.ino || !mount_namespace(&ns) ||
        (ns.st_dev == st->host_ns.dev && ns.st_ino == st->host_ns.ino))
        return;
    before = malloc(sizeof *before);
    if (before && mu_conf_load_live(
                      mu_item_env(sp, "NCCL_CONF_FILE", conf_file, sizeof conf_file),
                      mu_item_env(sp, "HOME", home, sizeof home), "/etc/nccl.conf",
                      &conf, NULL) == 0) {
        *before = st->network.settings;
        mu_settings_resolve(&st->network.settings, mu_users_value, &lookup, &conf);
        if (task == 0 && st->opts.verbose == MU_FLAG_YES)
            print_changes(st, before);
    }
    mu_conf_clear(&conf);
    free(before);
}
