/* SPDX-License-Identifier: BSD-3-Clause */
/* node_facts.c - parses the facts of nodes, and groups nodes by value */
#include "spank/core/doctor/node_facts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/array.h"
#include "runtime/base/parse.h"

void mu_node_facts_clear(struct mu_node_facts *facts)
{
    free(facts->text);
    free(facts->fact);
    mu_hostlist_clear(&facts->nodes);
    *facts = (struct mu_node_facts){ 0 };
}

/* A node's lines follow each other, so that the last one's node is tried first. */
static int node_index(struct mu_node_facts *f, const char *name, struct mu_err *err)
{
    int at = f->n ? f->fact[f->n - 1].node : -1;

    if (at >= 0 && strcmp(f->nodes.name[at], name) == 0)
        return at;
    at = mu_hostlist_find(&f->nodes, name);
    if (at >= 0)
        return at;
    return mu_hostlist_add(&f->nodes, name, err) < 0 ? -1 : f->nodes.n - 1;
}

/* "n1 driver.nvidia=550.54.15" */
static int add_fact(struct mu_node_facts *f, char *line, int number, struct mu_err *err)
{
    char *key = strchr(line, ' '), *value = key ? strchr(key, '=') : NULL;
    int node;

    if (!value || key == line || value == key + 1)
        return mu_err_set(err, EINVAL, "line %d is no fact of a node: '%.80s'", number,
                          line);
    *key++ = '\0';
    *value++ = '\0';
    node = node_index(f, line, err);
    if (node < 0)
        return -1;
    f->fact[f->n++] = (struct mu_node_fact){ .key = key, .value = value, .node = node };
    return 0;
}

static int by_key(const void *a, const void *b)
{
    const struct mu_node_fact *x = a, *y = b;
    int order = strcmp(x->key, y->key);

    if (!order)
        order = strcmp(x->value, y->value);
    return order ? order : x->node - y->node;
}

static void drop_repeated(struct mu_node_facts *f)
{
    int n = 0;

    for (int i = 0; i < f->n; i++)
        if (n == 0 || by_key(&f->fact[n - 1], &f->fact[i]) != 0)
            f->fact[n++] = f->fact[i];
    f->n = n;
}

static int copy_nodes(const struct mu_hostlist *from, struct mu_hostlist *to,
                      struct mu_err *err)
{
    for (int i = 0; from && i < from->n; i++)
        if (mu_hostlist_add(to, from->name[i], err) < 0)
            return -1;
    return 0;
}

int mu_node_facts_parse(const char *text, const struct mu_hostlist *expected,
                        struct mu_node_facts *out, struct mu_err *err)
{
    struct mu_node_facts f = { .text = strdup(text) };
    char *rest = f.text, *line;
    int lines = 1, rc;

    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    f.fact = calloc((size_t)lines, sizeof *f.fact);
    rc = f.text && f.fact ? copy_nodes(expected, &f.nodes, err)
                          : mu_err_set(err, ENOMEM, "facts: out of memory");
    for (int number = 1; rc == 0 && (line = mu_parse_next(&rest, '\n')); number++)
        if (strncmp(line, MU_NODE_FACT, sizeof MU_NODE_FACT - 1) == 0) {
            mu_make_printable(line);
            rc = add_fact(&f, line + sizeof MU_NODE_FACT - 1, number, err);
        }
    if (rc < 0) {
        mu_node_facts_clear(&f);
        return -1;
    }
    qsort(f.fact, (size_t)f.n, sizeof *f.fact, by_key);
    drop_repeated(&f);
    *out = f;
    return 0;
}

void mu_comparison_clear(struct mu_comparison *c)
{
    for (int i = 0; i < c->n; i++) {
        for (int g = 0; g < c->difference[i].n; g++)
            free(c->difference[i].group[g].nodes);
        free(c->difference[i].group);
    }
    free(c->difference);
    free(c->silent);
    free(c->away);
    *c = (struct mu_comparison){ 0 };
}

/* The marked nodes as a text. NULL: out of memory. */
static char *marked_nodes(const struct mu_hostlist *nodes, const bool *mark, int *count)
{
    struct mu_hostlist some = { 0 };
    bool whole = true;
    char *text;

    for (int i = 0; i < nodes->n; i++)
        if (mark[i])
            whole &= mu_hostlist_add(&some, nodes->name[i], NULL) == 0;
    *count = some.n;
    text = whole ? mu_hostlist_format(&some) : NULL;
    mu_hostlist_clear(&some);
    return text;
}

static int by_size(const void *a, const void *b)
{
    const struct mu_fact_group *x = a, *y = b;

    if (x->count != y->count)
        return y->count - x->count;
    if (!x->value || !y->value)
        return !x->value - !y->value;
    return strcmp(x->value, y->value);
}

/* What one comparison works with: marks of nodes. */
struct marks {
    bool *has;    /* the node has facts at all */
    bool *absent; /* it has facts, but not this one */
    bool *group;
};

static int add_group(const struct mu_hostlist *nodes, const bool *mark,
                     const char *value, struct mu_fact_difference *d)
{
    struct mu_fact_group *group;

    if (mu_array_extend(&d->group, sizeof *group, d->n, d->n + 1) < 0)
        return -1;
    group = &d->group[d->n];
    group->value = value;
    group->nodes = marked_nodes(nodes, mark, &group->count);
    if (!group->nodes)
        return -1;
    d->n++;
    return 0;
}

/* Groups the facts first ... end - 1, which have one key. */
static int group_nodes(const struct mu_node_facts *f, int first, int end,
                       struct marks *m, struct mu_fact_difference *d)
{
    size_t n = (size_t)f->nodes.n;
    int absent = 0;

    memcpy(m->absent, m->has, n * sizeof *m->has);
    for (int i = first, next; i < end; i = next) {
        memset(m->group, 0, n * sizeof *m->group);
        for (next = i; next < end && strcmp(f->fact[next].value, f->fact[i].value) == 0;
             next++) {
            m->group[f->fact[next].node] = true;
            m->absent[f->fact[next].node] = false;
        }
        if (add_group(&f->nodes, m->group, f->fact[i].value, d) < 0)
            return -1;
    }
    for (size_t i = 0; i < n; i++)
        absent += m->absent[i];
    if (absent && add_group(&f->nodes, m->absent, NULL, d) < 0)
        return -1;
    qsort(d->group, (size_t)d->n, sizeof *d->group, by_size);
    return 0;
}

/* Counts the nodes that are not in the group of most. */
static void count_away(const struct mu_node_facts *f, int first, int end,
                       const struct mu_fact_difference *d, const struct marks *m,
                       struct mu_comparison *c)
{
    const char *most = d->group[0].value;

    if (2 * d->group[0].count <= c->nnodes)
        return;
    for (int i = first; i < end; i++)
        c->away[f->fact[i].node] += !most || strcmp(f->fact[i].value, most) != 0;
    for (int i = 0; most && i < f->nodes.n; i++)
        c->away[i] += m->absent[i];
}

static int compare_keys(const struct mu_node_facts *f, struct marks *m,
                        struct mu_comparison *c)
{
    for (int i = 0, end; i < f->n; i = end) {
        struct mu_fact_difference *d = &c->difference[c->n];

        for (end = i; end < f->n && strcmp(f->fact[end].key, f->fact[i].key) == 0;)
            end++;
        c->nfacts++;
        d->key = f->fact[i].key;
        c->n++;
        if (group_nodes(f, i, end, m, d) < 0)
            return -1;
        if (d->n > 1) {
            count_away(f, i, end, d, m, c);
            continue;
        }
        free(d->group[0].nodes);
        free(d->group);
        *d = (struct mu_fact_difference){ 0 };
        c->n--;
    }
    return 0;
}

int mu_node_facts_compare(const struct mu_node_facts *facts, struct mu_comparison *out,
                          struct mu_err *err)
{
    size_t n = (size_t)facts->nodes.n + 1;
    struct mu_comparison c = { .nodes = &facts->nodes };
    bool *mark = calloc(3 * n, sizeof *mark);
    struct marks m = { mark, mark + n, mark + 2 * n };
    int silent, rc = -1;

    c.away = calloc(n, sizeof *c.away);
    c.difference = calloc((size_t)facts->n + 1, sizeof *c.difference);
    if (mark && c.away && c.difference) {
        for (int i = 0; i < facts->n; i++)
            m.has[facts->fact[i].node] = true;
        for (int i = 0; i < facts->nodes.n; i++) {
            c.nnodes += m.has[i];
            m.group[i] = !m.has[i];
        }
        c.silent = marked_nodes(&facts->nodes, m.group, &silent);
        rc = c.silent ? compare_keys(facts, &m, &c) : -1;
    }
    free(mark);
    if (rc < 0) {
        mu_comparison_clear(&c);
        return mu_err_set(err, ENOMEM, "facts: out of memory");
    }
    *out = c;
    return 0;
}
