/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_mask.c - explains the CPU sets in lines of a log, in any of their forms:
 *
 *   0x3f  0x3,0xc        masks of Slurm, one or several
 *   ff,ffffffff          32-bit words of NCCL and /proc, 8 digits but for the first
 *   0-15,128-143  3,7    lists of newer NCCL, /proc and taskset
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/core/doctor/doctor.h"

#define SETS " \t\r\"'."

enum form { MASK, LIST, EITHER };

static void describe(const char *text, const struct mu_cpuset *set,
                     const struct mu_node *node, char *buf, size_t len)
{
    struct mu_cpuset numas = { 0 };
    char cpus[1024], nodes[256];

    mu_cpuset_format(set, cpus, sizeof cpus);
    for (int i = 0; node && i < node->nnumas; i++)
        if (mu_cpuset_intersects(&node->numas[i].cpus, set))
            mu_cpuset_add(&numas, node->numas[i].os_index);
    mu_cpuset_format(&numas, nodes, sizeof nodes);
    if (nodes[0])
        snprintf(buf, len, "%s selects CPUs %s, on NUMA node%s %s of this machine",
                 text, cpus, mu_plural(mu_cpuset_count(&numas)), nodes);
    else
        snprintf(buf, len, "%s selects CPUs %s", text, cpus[0] ? cpus : "none");
}

/* Words of a mask behind the first have eight digits. NCCL writes whole bytes, so its
 * masks have an even number of digits.
 */
static enum form form_of(const char *text, bool bytes)
{
    size_t first = strcspn(text, ",");

    if (strncasecmp(text, "0x", 2) == 0)
        return MASK;
    if (strchr(text, '-') || strchr(text, ':'))
        return LIST;
    if (text[strspn(text, "0123456789,")])
        return MASK;
    for (const char *p = text + first; *p; p += strcspn(p + 1, ",") + 1)
        if (strcspn(p + 1, ",") != 8)
            return LIST;
    if (text[first])
        return MASK;
    return bytes && first % 2 ? LIST : first <= 4 ? EITHER : MASK;
}

static int explain(const char *text, enum form form, const struct mu_node *node,
                   char *buf, size_t len, struct mu_err *err)
{
    struct mu_cpuset set;
    size_t at;

    if (form == LIST ? mu_cpuset_parse(text, &set, err) < 0
                     : mu_cpuset_parse_mask(text, &set, err) < 0)
        return -1;
    describe(text, &set, node, buf, len);
    at = strlen(buf);
    if (form == EITHER && atoi(text) < MU_CPUSET_MAX)
        snprintf(buf + at, len - at, "; if it is a list, as newer NCCL writes, CPU %s",
                 text);
    return 0;
}

int mu_doctor_explain_mask(const char *mask, const struct mu_node *node, char *buf,
                           size_t len, struct mu_err *err)
{
    return explain(mask, form_of(mask, false), node, buf, len, err);
}

/* One walk over a text. */
struct walk {
    const struct mu_node *node;
    void (*print)(void *arg, const char *sentence);
    void *arg;
    int n; /* sentences */
    struct mu_err *err;
};

/* Explains one set, or each of "0x3,0xc". */
static int explain_sets(struct walk *w, const char *label, char *sets, enum form form)
{
    char *rest = sets, *item, sentence[2048];
    bool several = strncasecmp(sets, "0x", 2) == 0;

    while ((item = several ? mu_parse_next(&rest, ',') : sets)) {
        size_t at = (size_t)snprintf(sentence, sizeof sentence, "%s", label);

        if (explain(item, form, w->node, sentence + at, sizeof sentence - at, w->err) <
            0)
            return -1;
        w->print(w->arg, sentence);
        w->n++;
        if (!several)
            break;
    }
    return 0;
}

/* What precedes a set in a line, up to its blanks. */
static const struct marker {
    const char *text;
    enum form form; /* EITHER: by its digits */
} markers[] = {
    { "Cpus_allowed_list:", LIST },
    { "Cpus_allowed:", MASK },
    { "affinity list:", LIST },
    { "affinity mask:", MASK },
    { "affinity=\"", MASK },
    { "mask_cpu:", MASK },
    { "mask_cpu=", MASK },
    { "CPU_BIND_LIST=", MASK },
    { "mask 0x", MASK },
};

/* "... Setting affinity for GPU 3 to 0-15,128-143", or since NCCL 2.28
 * "... Affinity for GPU 3 is 0-7. (GPU affinity = 0-15 ; CPU affinity = 0-7).": true if
 * the line is one.
 */
static bool nccl_line(char *line, char *label, size_t len, char **sets, enum form *form)
{
    static const char before[] = "ffinity for GPU ";
    char *at = strstr(line, before), *behind;

    if (!at)
        return false;
    at += strlen(before);
    behind = at + strspn(at, "0123456789");
    if (strncmp(behind, " to ", 4) != 0 && strncmp(behind, " is ", 4) != 0)
        return false;
    *sets = behind + 4;
    *form = strstr(behind, "(GPU affinity = ") ? LIST : EITHER;
    snprintf(label, len, "GPU %d: ", atoi(at));
    return true;
}

/* "... is empty, ignoring. (GPU affinity = 0-15 ; CPU affinity = 16-17)." */
static void explain_empty(struct walk *w, const char *label, const char *line)
{
    const char *own = strstr(line, "CPU affinity = "), *near = strstr(line, "GPU aff");
    char sentence[2048], cpus[512], gpu[512];

    near = near ? near + strlen("GPU affinity = ") : "";
    snprintf(gpu, sizeof gpu, "%.*s", (int)strcspn(near, " ;)"), near);
    own = own ? own + strlen("CPU affinity = ") : "";
    snprintf(cpus, sizeof cpus, "%.*s", (int)strcspn(own, " ;)"), own);
    if (gpu[0] && cpus[0])
        snprintf(sentence, sizeof sentence,
                 "%sNCCL sets no affinity: the process may use CPUs %s, and those near "
                 "the GPU are %s",
                 label, cpus, gpu);
    else
        snprintf(sentence, sizeof sentence,
                 "%sNCCL sets no affinity: it found no CPU near the GPU", label);
    w->print(w->arg, sentence);
    w->n++;
}

static int explain_line(struct walk *w, char *line)
{
    char label[32] = "", *sets = NULL;
    enum form form = EITHER;
    bool nccl = nccl_line(line, label, sizeof label, &sets, &form);
    const char *task = strstr(line, ", task ");

    for (size_t i = 0; !sets && i < sizeof markers / sizeof markers[0]; i++) {
        char *at = strstr(line, markers[i].text);

        if (!at)
            continue;
        sets = at + strlen(markers[i].text);
        sets -= markers[i].text[strlen(markers[i].text) - 1] == 'x' ? 2 : 0;
        form = markers[i].form;
    }
    if (!sets)
        return 0;
    if (!nccl && task)
        snprintf(label, sizeof label, "task %d: ", atoi(task + strlen(", task ")));
    if (nccl && strncmp(sets, "empty", 5) == 0) {
        explain_empty(w, label, sets);
        return 0;
    }
    sets += strspn(sets, SETS);
    sets[strcspn(sets, SETS)] = '\0';
    if (!sets[0])
        return 0;
    return explain_sets(w, label, sets, form == EITHER ? form_of(sets, nccl) : form);
}

int mu_doctor_explain_text(const char *text, const struct mu_node *node,
                           void (*print)(void *arg, const char *sentence), void *arg,
                           struct mu_err *err)
{
    struct walk w = { .node = node, .print = print, .arg = arg, .err = err };
    char *copy = strdup(text), *rest = copy, *line;
    int rc = 0;

    if (!copy)
        return mu_err_set(err, ENOMEM, "out of memory");
    text += strspn(text, " \t\r\n");
    while (rc == 0 && (line = mu_parse_next(&rest, '\n')))
        rc = explain_line(&w, line);
    if (rc == 0 && w.n == 0) { /* no line of a log: a set alone */
        copy = strcpy(copy, text);
        copy[strcspn(copy, " \t\r\n")] = '\0';
        if (text[strspn(text + strlen(copy), " \t\r\n") + strlen(copy)])
            rc = mu_err_set(err, EINVAL,
                            "no CPU mask was found: use a mask, a list, or lines of a "
                            "log such as \"Setting affinity for GPU 0 to ...\"");
        else
            rc = explain_sets(&w, "", copy, form_of(copy, false));
    }
    free(copy);
    return rc;
}
