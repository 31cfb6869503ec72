/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_stack.c - lines and includes of plugstack.conf that Slurm or Muster ignores */
#include <errno.h>
#include <stdio.h>

#include "spank/core/doctor/doctor.h"

#define AREA "slurm"
#define ALL_STOP "every srun, sbatch and salloc stops"

static void report_word(const struct mu_stack_fault *f, struct mu_findings *out)
{
    const char *effect = f->muster ? "; steps run without Muster" : "";
    char todo[700];

    if (f->has_path)
        snprintf(todo, sizeof todo, "sed -i '%ds/[^[:blank:]]\\+/optional/' %s",
                 f->line, f->file);
    else
        snprintf(todo, sizeof todo, "sed -i %dd %s", f->line, f->file);
    if (f->has_path)
        mu_findings_add(out, f->muster ? MU_ERROR : MU_WARNING, AREA, todo,
                        "%s line %d: the first word is '%s', not optional, required "
                        "or include: Slurm ignores the line%s",
                        f->file, f->line, f->text, effect);
    else
        mu_findings_add(out, MU_WARNING, AREA, todo,
                        "%s line %d: no file follows '%s': Slurm ignores the line",
                        f->file, f->line, f->text);
}

static void report_second(const struct mu_facts *facts, const struct mu_stack_fault *f,
                          struct mu_findings *out)
{
    char todo[700];

    snprintf(todo, sizeof todo, "sed -i %dd %s", f->line, f->file);
    mu_findings_add(out, MU_WARNING, AREA, todo,
                    "%s line %d loads muster.so again, after %s: the second line is "
                    "ignored, with its arguments",
                    f->file, f->line, facts->plugin_from);
}

/* The first file has no line that includes it. */
static void report_unread(const struct mu_stack_fault *f, struct mu_findings *out)
{
    const char *which = f->line ? "which " : "";
    char todo[700], file[1200];

    if (f->line)
        snprintf(file, sizeof file, "%s line %d includes %s, ", f->file, f->line,
                 f->text);
    else
        snprintf(file, sizeof file, "%s ", f->text);
    if (f->error == 0)
        snprintf(todo, sizeof todo, "sed -i %dd %s", f->line, f->file);
    else if (f->error == EACCES)
        snprintf(todo, sizeof todo, "chmod 644 %s", f->text);
    else if (f->error == ELOOP)
        snprintf(todo, sizeof todo, "rm %s, then write the file in its place", f->text);
    else
        snprintf(todo, sizeof todo, "ls -l %s; make it a file that all users can read",
                 f->text);
    if (f->error == 0)
        mu_findings_add(out, MU_ERROR, AREA, todo,
                        "%stoo deep: a file that includes itself never ends, "
                        "and " ALL_STOP,
                        file);
    else if (f->error == EINVAL)
        mu_findings_add(out, MU_WARNING, AREA, todo,
                        "%s%sis not a regular file: it adds no line", file, which);
    else
        mu_findings_add(out, MU_ERROR, AREA, todo, "%s%scannot be opened (%s): %s",
                        file, which, f->why, ALL_STOP);
}

void mu_doctor_stack(const struct mu_facts *facts, struct mu_findings *out)
{
    for (int i = 0; i < facts->nstack; i++) {
        const struct mu_stack_fault *f = &facts->stack[i];

        switch (f->kind) {
        case MU_STACK_WORD:
            report_word(f, out);
            break;
        case MU_STACK_SECOND:
            report_second(facts, f, out);
            break;
        case MU_STACK_UNREAD:
            report_unread(f, out);
            break;
        }
    }
}
