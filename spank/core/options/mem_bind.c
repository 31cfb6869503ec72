/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/core/options/mem_bind.h"

#include <string.h>
#include <strings.h>

static bool is_word(const char *word, size_t n, const char *name)
{
    return strlen(name) == n && strncasecmp(word, name, n) == 0;
}

enum mu_mem mu_mem_bind_parse(const char *text)
{
    static const char *const modifiers[] = { "quiet", "q",    "verbose", "v", "prefer",
                                             "p",     "sort", "nosort",  "" };
    bool prefer = false;

    while (text && *text) {
        size_t n = strcspn(text, ","), i = 0;

        while (i < sizeof modifiers / sizeof modifiers[0] &&
               !is_word(text, n, modifiers[i]))
            i++;
        prefer |= is_word(text, n, "prefer") || is_word(text, n, "p");
        /* A list of nodes has commas, too: the type is the first of its words. */
        if (i == sizeof modifiers / sizeof modifiers[0])
            return !is_word(text, n, "local") ? MU_MEM_NONE
                   : prefer                   ? MU_MEM_PREFER
                                              : MU_MEM_STRICT;
        text += n + (text[n] == ',');
    }
    return MU_MEM_UNSET;
}
