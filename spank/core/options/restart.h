/* SPDX-License-Identifier: BSD-3-Clause */
/* restart.h - the command line with which srun starts anew
 *
 *   srun -n2 --gpu-bind=single:1 ./train -x
 *   srun -n2 --gpu-bind=single:1 --gpu-bind=none --muster=gpu-bind=single:1 ./train -x
 *
 * A binding on srun's own command line beats its environment, and older releases carry
 * it out by device cgroup (takeover.h). Slurm takes the last value of an option. So the
 * neutral request and Muster's option follow the user's options, and no word of the
 * user's is changed.
 *
 * A heterogeneous step has several components, each with options and a command, and ':'
 * between them. srun calls the plugin for each component in turn, and more than once
 * for a component that --het-group sends to several parts of the job. Slurm sends one
 * --muster to all components: they must ask for the same binding.
 */
#ifndef MU_RESTART_H
#define MU_RESTART_H

#include <stdbool.h>
#include <stddef.h>

#include "spank/core/gpubind/takeover.h"

#define MU_RESTART_PARTS 128
#define MU_RESTART_OPTION 4224

/* What srun's calls have shown so far. All zero before the first. */
struct mu_restart {
    int first;                      /* the component at hand: index of srun or of ':' */
    int calls;                      /* how often srun was called for it */
    int nparts;                     /* complete components */
    int command[MU_RESTART_PARTS];  /* index of the command of each */
    char gpu_bind[1024];            /* the binding that all of them ask for */
    char neutral[MU_TAKEOVER_TEXT]; /* the option that undoes it */
};

enum mu_restart_state {
    MU_RESTART_NO,   /* no binding of the command line, or a line that is not clear */
    MU_RESTART_MORE, /* srun will call for another component */
    MU_RESTART_READY,
};

/* Notes one call of srun. argv is the whole command line; optind counts from the
 * component's first word; input is that of the component (argv + r->first). After
 * MU_RESTART_NO there must be no other call.
 */
enum mu_restart_state mu_restart_note(struct mu_restart *r, int argc, char *const *argv,
                                      int optind, const struct mu_takeover_input *input,
                                      const struct mu_takeover_slurm *slurm);

/* Is argv[at] the command behind srun's options argv[1] ... argv[at - 1]? */
bool mu_restart_is_command(int argc, char *const *argv, int at);

/* Writes Muster's option with the binding: the user's text (NULL none) goes on, since
 * the last --muster replaces those before it. "" where that text has a gpu-bind of its
 * own, which beats Slurm's. -1: the text is bad or too long.
 */
int mu_restart_option(const char *text, const char *gpu_bind,
                      char option[MU_RESTART_OPTION]);

/* The new command line, whose words are borrowed and whose array the caller frees.
 * option "" is left out. NULL: out of memory.
 */
char **mu_restart_line(const struct mu_restart *r, int argc, char *const *argv,
                       const char *option);

/* Writes the words as a line for a shell; a line that does not fit ends in " ...". */
void mu_restart_print(char *const *argv, char *buf, size_t len);

#endif
