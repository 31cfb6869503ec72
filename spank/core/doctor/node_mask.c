/* SPDX-License-Identifier: BSD-3-Clause */
/* node_mask.c - masks the values of facts, word by word */
#include "spank/core/doctor/node_mask.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

enum kind { ADDR, MAC, UUID, SOURCE, KINDS };

struct mask {
    FILE *out;
    const struct mu_hostlist *nodes;
    struct mu_hostlist seen[KINDS];
};

static void put_masked(struct mask *m, enum kind kind, const char *word)
{
    static const char *const names[KINDS] = { "addr", "mac", "uuid", "source" };
    int at = mu_hostlist_find(&m->seen[kind], word);

    if (at < 0 && mu_hostlist_add(&m->seen[kind], word, NULL) == 0)
        at = m->seen[kind].n - 1;
    fprintf(m->out, "%s%d", names[kind], at + 1);
}

/* Is the word like the pattern, where x is a hexadecimal digit? */
static bool is_like(const char *word, const char *pattern)
{
    for (; *pattern; word++, pattern++)
        if (*pattern == 'x' ? !isxdigit((unsigned char)*word) : *word != *pattern)
            return false;
    return !*word;
}

static bool is_uuid(const char *word)
{
    size_t n = strlen(word);

    return n >= 36 && is_like(word + n - 36, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx");
}

static bool is_address(const char *word)
{
    unsigned char bytes[16];

    return inet_pton(AF_INET, word, bytes) == 1 ||
           inet_pton(AF_INET6, word, bytes) == 1;
}

/* The node of this name, with or without a domain; -1: none. */
static int node_called(const struct mu_hostlist *nodes, const char *word)
{
    for (int i = 0; i < nodes->n; i++) {
        size_t n = strlen(nodes->name[i]);

        if (strncmp(word, nodes->name[i], n) == 0 && (!word[n] || word[n] == '.'))
            return i;
    }
    return -1;
}

static void put_word(struct mask *m, const char *word)
{
    int node = node_called(m->nodes, word);

    if (is_uuid(word))
        put_masked(m, UUID, word);
    else if (is_like(word, "xx:xx:xx:xx:xx:xx") || is_like(word, "xxxx:xxxx:xxxx:xxxx"))
        put_masked(m, MAC, word);
    else if (is_address(word))
        put_masked(m, ADDR, word);
    else if (node >= 0)
        fprintf(m->out, "node%d", node + 1);
    else
        fputs(word, m->out);
}

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || (c && strchr(":.-_", c));
}

static void put_value(struct mask *m, const char *value)
{
    char word[256];
    size_t n;

    for (; *value; value += n) {
        for (n = 0; in_word(value[n]) && n + 1 < sizeof word; n++)
            ;
        if (n == 0) {
            fputc(*value, m->out);
            n = 1;
            continue;
        }
        memcpy(word, value, n);
        word[n] = '\0';
        put_word(m, word);
    }
}

/* "nfs4 server:/home rw,hard": the second word names a server or a disk. */
static void put_mount(struct mask *m, const char *value)
{
    size_t type = strcspn(value, " "), source;
    char from[512];

    if (!value[type]) {
        put_value(m, value);
        return;
    }
    source = strcspn(value + type + 1, " ");
    snprintf(from, sizeof from, "%.*s", (int)source, value + type + 1);
    fprintf(m->out, "%.*s ", (int)type, value);
    if (strpbrk(from, ":/@"))
        put_masked(m, SOURCE, from);
    else
        fputs(from, m->out);
    put_value(m, value + type + 1 + source);
}

static void put_fact(struct mask *m, const struct mu_node_fact *fact)
{
    fprintf(m->out, MU_NODE_FACT "node%d %s=", fact->node + 1, fact->key);
    if (strncmp(fact->key, "mount.", 6) == 0)
        put_mount(m, fact->value);
    else
        put_value(m, fact->value);
    fputc('\n', m->out);
}

char *mu_node_facts_mask(const struct mu_node_facts *facts)
{
    struct mask m = { .nodes = &facts->nodes };
    char *text = NULL;
    size_t len;
    int failed;

    m.out = open_memstream(&text, &len);
    if (!m.out)
        return NULL;
    for (int node = 0; node < facts->nodes.n; node++)
        for (int i = 0; i < facts->n; i++)
            if (facts->fact[i].node == node)
                put_fact(&m, &facts->fact[i]);
    for (int kind = 0; kind < KINDS; kind++)
        mu_hostlist_clear(&m.seen[kind]);
    failed = fclose(m.out);
    if (!failed)
        return text;
    free(text);
    return NULL;
}
