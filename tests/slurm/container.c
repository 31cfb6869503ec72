/* SPDX-License-Identifier: BSD-3-Clause */
/* container.c - what pyxis does to a task, as far as Muster sees it, for settings.bats:
 * a SPANK plugin ahead of Muster's that gives the task another root's /etc (the folder
 * in its plugstack.conf line) in a mount namespace of its own, and the image's
 * environment. Only for steps with TEST_IMAGE in their environment. TEST_TMP is a
 * folder that is another, empty one in the task, as /tmp is under job_container/tmpfs;
 * with ":ro" behind it nobody can write there.
 */
#include <sched.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>

SPANK_PLUGIN(container, 1);

static int wanted(spank_t sp)
{
    char value[8];

    return spank_remote(sp) == 1 &&
           spank_getenv(sp, "TEST_IMAGE", value, sizeof value) == ESPANK_SUCCESS;
}

/* What is mounted here is seen nowhere else. In a chroot "/" may be no mount point, so
 * that it cannot be made private; it is then where nothing is shared.
 */
static int private_mounts(void)
{
    char line[4096];
    int shared = 0;
    FILE *f;

    if (unshare(CLONE_NEWNS) < 0)
        return -1;
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
        return 0;
    f = fopen("/proc/self/mountinfo", "r");
    while (f && fgets(line, sizeof line, f))
        shared |= strstr(line, " shared:") != NULL;
    if (f)
        fclose(f);
    return f && !shared ? 0 : -1;
}

static int other_tmp(spank_t sp)
{
    char folder[1024], *mode;

    if (spank_getenv(sp, "TEST_TMP", folder, sizeof folder) != ESPANK_SUCCESS)
        return 0;
    mode = strstr(folder, ":ro");
    if (mode)
        *mode = '\0';
    return mount("none", folder, "tmpfs", mode ? MS_RDONLY : 0, "mode=1777");
}

/* As root, in the task's process. */
int slurm_spank_task_init_privileged(spank_t sp, int ac, char **av)
{
    if (!wanted(sp) || ac < 1)
        return 0;
    if (private_mounts() < 0 || other_tmp(sp) < 0)
        return -1;
    return mount(av[0], "/etc", NULL, MS_BIND, NULL);
}

int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
    if (wanted(sp))
        spank_setenv(sp, "NCCL_SITE_ENV", "image", 1);
    return 0;
}
