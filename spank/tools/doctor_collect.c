/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_collect.c - writes one fact of this node */
#include "spank/tools/doctor_collect.h"

#include <stdarg.h>

#include "runtime/base/parse.h"
#include "spank/core/doctor/node_facts.h"
#include "spank/hw/io/sysfile.h"

/* slurmstepd sends lines of at most 1 KiB in one piece */
#define KEY_MAX 300
#define VALUE_MAX 600

/* A key may have the name of a user's folder: it stays in its line too. */
static void put(const struct mu_collector *c, const char *value, const char *key,
                va_list ap)
{
    char name[KEY_MAX];

    vsnprintf(name, sizeof name, key, ap);
    mu_make_printable(name);
    fprintf(c->out, MU_NODE_FACT "%s %s=", c->node, name);
    for (int i = 0; i < VALUE_MAX && value[i]; i++)
        fputc((unsigned char)value[i] < ' ' ? ' ' : value[i], c->out);
    fputc('\n', c->out);
}

void mu_collect(const struct mu_collector *c, const char *value, const char *key, ...)
{
    va_list ap;

    if (!value || !*value)
        return;
    va_start(ap, key);
    put(c, value, key, ap);
    va_end(ap);
}

void mu_collect_file(const struct mu_collector *c, const char *path, const char *key,
                     ...)
{
    char value[VALUE_MAX + 1];
    va_list ap;

    if (mu_sysfile_read(c->root, value, sizeof value, "%s", path) <= 0)
        return;
    va_start(ap, key);
    put(c, value, key, ap);
    va_end(ap);
}
