/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/core/gres_conf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/parse.h"

/* One line's keys, borrowed from a copy of the line. */
struct keys {
    const char *name, *file, *cores, *nodes, *autodetect;
};

static void take_keys(char *line, struct keys *keys)
{
    char *save = NULL;

    *keys = (struct keys){ 0 };
    for (char *word = strtok_r(line, " \t\r", &save); word;
         word = strtok_r(NULL, " \t\r", &save)) {
        char *value = strchr(word, '=');

        if (!value)
            continue;
        *value++ = '\0';
        if (strcasecmp(word, "Name") == 0)
            keys->name = value;
        else if (strcasecmp(word, "File") == 0 ||
                 strcasecmp(word, "MultipleFiles") == 0)
            keys->file = value;
        else if (strcasecmp(word, "Cores") == 0 || strcasecmp(word, "CPUs") == 0)
            keys->cores = value;
        else if (strcasecmp(word, "NodeName") == 0)
            keys->nodes = value;
        else if (strcasecmp(word, "AutoDetect") == 0)
            keys->autodetect = value;
    }
}

/* The numbers at the end of a file's name: /dev/nvidia3 or /dev/gpu[0-3]; false: none.
 */
static bool file_numbers(const char *file, struct mu_cpuset *out)
{
    const char *p = strchr(file, '[');
    char list[128];
    size_t len;

    if (p)
        p++;
    else
        for (p = file + strlen(file); p > file && p[-1] >= '0' && p[-1] <= '9';)
            p--;
    if (!mu_copy(list, sizeof list, p))
        return false;
    len = strlen(list);
    if (len && list[len - 1] == ']')
        list[len - 1] = '\0';
    return mu_cpuset_parse(list, out, NULL) == 0 && !mu_cpuset_empty(out);
}

/* The numbers of NVIDIA's own device files are minors; those of MIG's capabilities are
 * not.
 */
static bool are_minors(const char *file)
{
    static const char prefix[] = "/dev/nvidia";
    const char *end = file + sizeof prefix - 1;

    return strncmp(file, prefix, sizeof prefix - 1) == 0 &&
           (*end == '[' || (*end >= '0' && *end <= '9'));
}

static int add(struct mu_gres_conf *out, const struct mu_gres *gres, struct mu_err *err)
{
    if (out->n == MU_GRES_MAX)
        return mu_err_set(err, ENOSPC, "more than %d devices", MU_GRES_MAX);
    out->gres[out->n++] = *gres;
    return 0;
}

static int take_line(char *line, int number, struct mu_gres_conf *out,
                     struct mu_err *err)
{
    struct mu_gres gres = { .line = number, .minor = -1 };
    struct mu_cpuset numbers = { 0 };
    struct keys keys;

    take_keys(line, &keys);
    if (keys.autodetect && strcasecmp(keys.autodetect, "off") != 0)
        out->autodetect = true;
    if (!keys.name || strcasecmp(keys.name, "gpu") != 0)
        return 0;
    if (keys.cores) {
        gres.cores_given = true;
        mu_copy(gres.cores_text, sizeof gres.cores_text, keys.cores);
        if (mu_cpuset_parse(keys.cores, &gres.cores, err) < 0)
            return mu_err_context(err, "line %d: Cores", number);
    }
    if (keys.nodes)
        mu_copy(gres.nodes, sizeof gres.nodes, keys.nodes);
    gres.has_file = keys.file != NULL;
    if (!keys.file || !file_numbers(keys.file, &numbers))
        return add(out, &gres, err);
    for (int k = mu_cpuset_next(&numbers, -1); k >= 0;
         k = mu_cpuset_next(&numbers, k)) {
        gres.minor = are_minors(keys.file) ? k : -1;
        if (add(out, &gres, err) < 0)
            return mu_err_context(err, "line %d", number);
    }
    return 0;
}

int mu_gres_conf_parse(const char *file, const char *text, struct mu_gres_conf *out,
                       struct mu_err *err)
{
    char *copy = strdup(text), *rest = copy, *line;
    int number = 0, rc = 0;

    *out = (struct mu_gres_conf){ 0 };
    if (!copy)
        return mu_err_set(err, ENOMEM, "%s: out of memory", file);
    while (rc == 0 && (line = mu_parse_next(&rest, '\n'))) {
        number++;
        line[strcspn(line, "#")] = '\0';
        if (take_line(line, number, out, err) < 0)
            rc = mu_err_context(err, "%s", file);
    }
    free(copy);
    return rc;
}
