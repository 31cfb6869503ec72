/* SPDX-License-Identifier: BSD-3-Clause */
/* command_line.h - the words of a command line: srun's own options, and launchers
 * inside a step
 */
#ifndef MU_COMMAND_LINE_H
#define MU_COMMAND_LINE_H

/* The value of long option `name` on srun's own command line: the last one given, ""
 * if it has none, NULL if it is not there. argv[0] is srun. An abbreviation of at least
 * `least` characters counts, as getopt_long takes it. The program that srun starts, and
 * all behind it, is not looked at; where an unknown option makes the border unclear,
 * one word too many is read rather than one too few.
 */
const char *mu_args_srun(int argc, char *const *argv, const char *name, int least);
/* The same of an option that has a letter, too, and always a value: -w LIST, -wLIST. */
const char *mu_args_srun_letter(int argc, char *const *argv, const char *name,
                                int least, char letter);

enum mu_launcher {
    MU_LAUNCHER_NONE,
    MU_LAUNCHER_TORCH, /* torchrun, accelerate, deepspeed: makes its own ranks */
    MU_LAUNCHER_MPI,   /* the daemon of an mpirun: its ranks are not Slurm's tasks */
};

/* What kind of launcher a step's task runs, and how many processes each starts
 * (*nproc; 0 not said). argv is the task's command line.
 */
enum mu_launcher mu_args_launcher(int argc, char *const *argv, int *nproc);

#endif
