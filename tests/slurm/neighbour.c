/* SPDX-License-Identifier: BSD-3-Clause */
/* neighbour.c - another SPANK plugin, for restart.bats: counts in a file how often srun
 * calls it, sets a variable in srun as plugins do, has an option with a value and one
 * without, and can spoil getopt's optind before Muster reads it.
 */
#include <getopt.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SPANK_PLUGIN(neighbour, 1);

static void note(const char *hook)
{
    const char *path = getenv("NEIGHBOUR_FILE");
    FILE *f = path ? fopen(path, "a") : NULL;

    if (!f || spank_context() != S_CTX_LOCAL) {
        if (f)
            fclose(f);
        return;
    }
    fprintf(f, "%s %ld\n", hook, (long)getpid());
    fclose(f);
}

static int on_option(int val, const char *optarg, int remote)
{
    if (!remote)
        note(optarg ? optarg : "novelty");
    return 0;
}

static struct spank_option options[] = {
    { "image", "NAME", "a value, as pyxis' option", 1, 1, on_option },
    { "novelty", NULL, "no value", 0, 2, on_option },
};

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    const char *seen = getenv("NEIGHBOUR_SEEN");
    char again[64];

    note("init");
    for (int i = 0; i < 2; i++)
        spank_option_register(sp, &options[i]);
    if (spank_context() == S_CTX_LOCAL) {
        snprintf(again, sizeof again, "%.40s+", seen ? seen : "");
        setenv("NEIGHBOUR_SEEN", again, 1);
    }
    return 0;
}

int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
    note("post_opt");
    for (int i = 0; i < ac; i++)
        if (strncmp(av[i], "optind=", 7) == 0 && spank_context() == S_CTX_LOCAL)
            optind = atoi(av[i] + 7);
    return 0;
}

int slurm_spank_local_user_init(spank_t sp, int ac, char **av)
{
    note("local_user_init");
    return 0;
}
