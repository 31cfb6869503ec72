/* SPDX-License-Identifier: BSD-3-Clause */
/* command_line.h - reads command lines: srun's own options, and launchers inside a step
 */
#ifndef MU_COMMAND_LINE_H
#define MU_COMMAND_LINE_H

/* The value of the long option `name` on srun's command line; argv[0] is srun. Of
 * several the last counts. "": the option has no value; NULL: it is absent. An
 * abbreviation of at least `least` characters counts, as in getopt_long.
 * The program that srun starts and its arguments are not read. Where an unknown option
 * hides the start of the program, one word too many is read rather than one too few.
 */
const char *mu_args_srun(int argc, char *const *argv, const char *name, int least);
/* The same for an option that also has a letter and always takes a value: -w LIST,
 * -wLIST.
 */
const char *mu_args_srun_letter(int argc, char *const *argv, const char *name,
                                int least, char letter);

/* How many of the words behind it an option word of srun takes as its value: 0, 1, or
 * -1 for an option that is not known here, which takes one or none.
 */
int mu_args_words_behind(const char *word);

enum mu_launcher {
    MU_LAUNCHER_NONE,
    MU_LAUNCHER_TORCH, /* torchrun, accelerate, deepspeed: starts its own ranks */
    MU_LAUNCHER_MPI,   /* the daemon of an mpirun: its ranks are not Slurm's tasks */
};

/* The kind of launcher that a task of a step runs. *nproc is the number of processes
 * that each starts, 0 if not given. argv is the command line of the task.
 */
enum mu_launcher mu_args_launcher(int argc, char *const *argv, int *nproc);

#endif
