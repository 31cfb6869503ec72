/* SPDX-License-Identifier: BSD-3-Clause */
/* plan_notes.c - adds warnings, facts and the notes of a task to a plan */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "spank/core/plan/place.h"

static void append_sentence(char **list, int *n, const char *fmt, va_list ap)
{
    if (*n < MU_PLAN_WARNINGS && vasprintf(&list[*n], fmt, ap) >= 0)
        (*n)++;
}

void mu_plan_warn(struct mu_plan *plan, const char *fmt, ...)
{
    va_list ap;

    plan->as_asked = false;
    va_start(ap, fmt);
    append_sentence(plan->warning, &plan->nwarnings, fmt, ap);
    va_end(ap);
}

void mu_plan_inform(struct mu_plan *plan, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    append_sentence(plan->info, &plan->ninfos, fmt, ap);
    va_end(ap);
}

void mu_slot_note(struct mu_slot *slot, const char *word)
{
    size_t used = strlen(slot->note);
    const char *at = strstr(slot->note, word);

    if (at && (at == slot->note || at[-1] == '+'))
        return;
    if (used + strlen(word) + 2 <= sizeof slot->note)
        snprintf(slot->note + used, sizeof slot->note - used, "%s%s", used ? "+" : "",
                 word);
}
