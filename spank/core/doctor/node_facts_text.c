/* SPDX-License-Identifier: BSD-3-Clause */
/* node_facts_text.c - writes the comparison of nodes for people */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/core/doctor/node_facts.h"

#define WIDTH_MAX 44
#define AWAY_MAX 5 /* nodes that differ from most, each in a line */

static const char *value_of(const struct mu_fact_group *group)
{
    return !group->value ? "absent" : group->value[0] ? group->value : "empty";
}

/* The nodes that lack the fact where all others agree, else NULL. */
static const char *lacking(const struct mu_fact_difference *d)
{
    if (d->n != 2)
        return NULL;
    return !d->group[0].value   ? d->group[0].nodes
           : !d->group[1].value ? d->group[1].nodes
                                : NULL;
}

static bool same_area(const char *a, const char *b)
{
    size_t n = strcspn(a, ".");

    return n == strcspn(b, ".") && strncmp(a, b, n) == 0;
}

/* Number of facts behind d of its area that the same nodes lack. */
static int also_lacking(const struct mu_comparison *c, int d)
{
    const struct mu_fact_difference *first = &c->difference[d];
    const char *nodes = lacking(first);
    int n = 0;

    for (int i = d + 1; nodes && i < c->n; i++, n++) {
        const char *other = lacking(&c->difference[i]);

        if (!other || strcmp(nodes, other) != 0 ||
            !same_area(first->key, c->difference[i].key))
            break;
    }
    return n;
}

static int grow(int width, const char *text)
{
    int n = (int)strlen(text);

    return n > WIDTH_MAX ? width : n > width ? n : width;
}

static void put_differences(FILE *out, const struct mu_comparison *c)
{
    int key = 0, value = 0, more;

    for (int i = 0; i < c->n; i += 1 + also_lacking(c, i)) {
        key = grow(key, c->difference[i].key);
        for (int g = 0; g < c->difference[i].n; g++)
            value = grow(value, value_of(&c->difference[i].group[g]));
    }
    for (int i = 0; i < c->n; i += 1 + more) {
        const struct mu_fact_difference *d = &c->difference[i];

        for (int g = 0; g < d->n; g++)
            fprintf(out, "%-*s  %-*s  %s\n", key, g ? "" : d->key, value,
                    value_of(&d->group[g]), d->group[g].nodes);
        more = also_lacking(c, i);
        if (more)
            fprintf(out, "%-*s  and %d more fact%s of %.*s\n", key, "", more,
                    mu_plural(more), (int)strcspn(d->key, "."), d->key);
    }
}

/* The node that differs in most facts, behind those of index `last` with `count`. */
static int next_away(const struct mu_comparison *c, int last, int count)
{
    int best = -1;

    for (int i = 0; i < c->nodes->n; i++) {
        bool behind = c->away[i] < count || (c->away[i] == count && i > last);

        if (c->away[i] > 0 && behind && (best < 0 || c->away[i] > c->away[best]))
            best = i;
    }
    return best;
}

static void put_away(FILE *out, const struct mu_comparison *c)
{
    struct mu_hostlist list = { 0 };
    char *nodes;
    int n = 0;

    for (int i = next_away(c, -1, c->nfacts); i >= 0; i = next_away(c, i, c->away[i]))
        if (n++ < AWAY_MAX)
            fprintf(out, "%s differs from most nodes in %d fact%s\n", c->nodes->name[i],
                    c->away[i], mu_plural(c->away[i]));
    if (n > AWAY_MAX)
        fprintf(out, "and %d more node%s\n", n - AWAY_MAX, mu_plural(n - AWAY_MAX));
    for (int i = 0; i < c->nodes->n; i++)
        if (c->away[i] > 0)
            mu_hostlist_add(&list, c->nodes->name[i], NULL);
    nodes = n ? mu_hostlist_format(&list) : NULL;
    if (nodes)
        fprintf(out, "-> make them alike, or leave them out: --exclude=%s\n", nodes);
    free(nodes);
    mu_hostlist_clear(&list);
}

void mu_comparison_text(FILE *out, const struct mu_comparison *c)
{
    if (c->silent[0])
        fprintf(out, "%s: no facts came back from there\n", c->silent);
    fprintf(out, "%d node%s, %d fact%s: ", c->nnodes, mu_plural(c->nnodes), c->nfacts,
            mu_plural(c->nfacts));
    if (c->n == 0)
        fputs("all alike\n", out);
    else
        fprintf(out, "%d differ%s\n", c->n, c->n == 1 ? "s" : "");
    put_differences(out, c);
    put_away(out, c);
}
