/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor.c - the list of findings, and functions that several checks call */
#include "spank/core/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/array.h"
#include "runtime/base/parse.h"

void mu_findings_clear(struct mu_findings *findings)
{
    free(findings->item);
    *findings = (struct mu_findings){ 0 };
}

void mu_findings_add(struct mu_findings *findings, enum mu_severity severity,
                     const char *area, const char *todo, const char *what, ...)
{
    struct mu_finding *f;
    va_list ap;

    if (mu_array_extend(&findings->item, sizeof *f, findings->n, findings->n + 1) < 0) {
        findings->dropped = true;
        return;
    }
    f = &findings->item[findings->n++];
    f->severity = severity;
    mu_copy(f->area, sizeof f->area, area);
    mu_copy(f->todo, sizeof f->todo, todo);
    va_start(ap, what);
    vsnprintf(f->what, sizeof f->what, what, ap);
    va_end(ap);
    mu_make_printable(f->what);
}

enum mu_severity mu_findings_worst(const struct mu_findings *findings)
{
    enum mu_severity worst = MU_OK;

    for (int i = 0; i < findings->n; i++)
        if (findings->item[i].severity > worst)
            worst = findings->item[i].severity;
    return worst;
}

const char *mu_severity_name(enum mu_severity severity)
{
    static const char *const names[] = { "ok", "hint", "warning", "error" };

    return names[severity];
}

const char *mu_facts_env(const struct mu_facts *facts, const char *name)
{
    size_t len = strlen(name);

    for (char *const *e = facts->env; e && *e; e++)
        if (strncmp(*e, name, len) == 0 && (*e)[len] == '=')
            return *e + len + 1;
    return NULL;
}

const struct mu_nic *mu_facts_verbs(const struct mu_facts *facts)
{
    const struct mu_node *node = facts->node;

    for (int i = 0; node && i < node->nnics; i++) {
        const struct mu_nic *nic = &node->nics[i];

        if (nic->active && nic->name[0] && mu_nic_has_verbs(nic))
            return nic;
    }
    return NULL;
}
