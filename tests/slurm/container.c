/* SPDX-License-Identifier: BSD-3-Clause */
/* container.c - what pyxis does to a task, as far as Muster sees it, for settings.bats:
 * a SPANK plugin ahead of Muster's that gives the task another root's /etc (the folder
 * in its plugstack.conf line) in a mount namespace of its own, and the image's
 * environment. Only for steps with TEST_IMAGE in their environment.
 */
#include <sched.h>
#include <slurm/spank.h>
#include <sys/mount.h>

SPANK_PLUGIN(container, 1);

static int wanted(spank_t sp)
{
    char value[8];

    return spank_remote(sp) == 1 &&
           spank_getenv(sp, "TEST_IMAGE", value, sizeof value) == ESPANK_SUCCESS;
}

/* As root, in the task's process. */
int slurm_spank_task_init_privileged(spank_t sp, int ac, char **av)
{
    if (!wanted(sp) || ac < 1)
        return 0;
    if (unshare(CLONE_NEWNS) < 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount(av[0], "/etc", NULL, MS_BIND, NULL) < 0)
        return -1;
    return 0;
}

int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
    if (wanted(sp))
        spank_setenv(sp, "NCCL_SITE_ENV", "image", 1);
    return 0;
}
