/* SPDX-License-Identifier: BSD-3-Clause */
/* plan_text.c - a plan as text, TSV or MUSTER_PLAN lines */
#include "spank/core/plan/plan_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

/* A growing comma list; one that does not fit ends in "...". */
struct list {
    char *text;
    size_t size, used;
    bool cut;
};

static void list_add(struct list *list, const char *item)
{
    static const char more[] = "...";
    size_t len = strlen(item), comma = list->used > 0;

    if (list->cut)
        return;
    if (list->used + comma + len + sizeof more + 1 > list->size) {
        list->cut = true;
        item = more;
        len = sizeof more - 1;
    }
    if (comma)
        list->text[list->used++] = ',';
    memcpy(list->text + list->used, item, len + 1);
    list->used += len;
}

static const char *nic_label(const struct mu_nic *nic)
{
    return nic->name[0] ? nic->name : nic->busid[0] ? nic->busid : "?";
}

void mu_show_record(const struct mu_node *node, const struct mu_slot *slot,
                    struct mu_record *out)
{
    struct mu_record record = { .task = slot->task };
    struct list gpus = { record.gpus, sizeof record.gpus, 0, false };
    struct list nics = { record.nics, sizeof record.nics, 0, false };

    for (int i = 0; i < slot->ngpus; i++)
        list_add(&gpus, node->gpus[slot->gpu_node[i]].label);
    for (int i = 0; i < slot->nnics; i++)
        list_add(&nics, nic_label(&node->nics[slot->nic[i]]));
    record.cpus = slot->cpus;
    record.mems = slot->mems;
    mu_copy(record.path, sizeof record.path, mu_nearness_name(slot->nic_path));
    *out = record;
}

static void put_gpus(FILE *out, const struct mu_node *node, const struct mu_slot *slot)
{
    for (int i = 0; i < slot->ngpus; i++)
        fprintf(out, "%s%s", i ? "," : "", node->gpus[slot->gpu_node[i]].label);
    if (slot->ngpus == 0)
        fputc('-', out);
}

static void put_set(FILE *out, const struct mu_cpuset *set)
{
    int need = mu_cpuset_format(set, NULL, 0);
    char *text = malloc((size_t)need + 1);

    if (need == 0 || !text) {
        fputc(need ? '?' : '-', out);
    } else {
        mu_cpuset_format(set, text, (size_t)need + 1);
        fputs(text, out);
    }
    free(text);
}

static void put_nics(FILE *out, const struct mu_node *node, const struct mu_slot *slot)
{
    for (int i = 0; i < slot->nnics; i++)
        fprintf(out, "%s%s", i ? "," : "", nic_label(&node->nics[slot->nic[i]]));
    if (slot->nnics == 0)
        fputc('-', out);
}

void mu_show_tsv(FILE *out, const struct mu_node *node, const struct mu_plan *plan)
{
    fputs("task\tgpus\tcpus\tmems\tnics\tnic_path\tnote\n", out);
    for (int t = 0; t < plan->nslots; t++) {
        const struct mu_slot *slot = &plan->slots[t];

        fprintf(out, "%d\t", slot->task);
        put_gpus(out, node, slot);
        fputc('\t', out);
        put_set(out, &slot->cpus);
        fputc('\t', out);
        put_set(out, &slot->mems);
        fputc('\t', out);
        put_nics(out, node, slot);
        fprintf(out, "\t%s\t%s\n", mu_nearness_name(slot->nic_path),
                slot->note[0] ? slot->note : "-");
    }
}

enum { COLUMNS = 8 };
static const char *const titles[COLUMNS] = { "task",   "gpu", "cpus", "cores",
                                             "memory", "nic", "path", "note" };
enum { TASK, GPU, CPUS, CORES, MEMORY, NIC, PATH, NOTE };

static void put_cell(FILE *out, const struct mu_node *node, const struct mu_slot *slot,
                     int column)
{
    switch (column) {
    case TASK:
        fprintf(out, "%d", slot->task);
        break;
    case GPU:
        put_gpus(out, node, slot);
        break;
    case CPUS:
        put_set(out, &slot->cpus);
        break;
    case CORES:
        fprintf(out, "%d", mu_node_core_count(node, &slot->cpus));
        break;
    case MEMORY:
        put_set(out, &slot->mems);
        break;
    case NIC:
        /* A list of all NICs only shows that none is near, and one switch can have
         * dozens of virtual functions. */
        if (slot->nnics > (slot->nic_path == MU_NEAR_SYS ? 2 : 16))
            fprintf(out, "any of %d", slot->nnics);
        else
            put_nics(out, node, slot);
        break;
    case PATH:
        fputs(mu_nearness_name(slot->nic_path), out);
        break;
    default:
        fputs(slot->note[0] ? slot->note : "-", out);
    }
}

/* The cell as a string; caller frees; NULL without memory. */
static char *cell(const struct mu_node *node, const struct mu_slot *slot, int column)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    if (!out)
        return NULL;
    put_cell(out, node, slot, column);
    fclose(out);
    return text;
}

static void put_row(FILE *out, char *const *cells, const int *width)
{
    for (int c = 0; c < COLUMNS; c++) {
        const char *text = cells[c] ? cells[c] : "?";

        if (c == COLUMNS - 1)
            fprintf(out, "%s\n", text);
        else if (c == TASK || c == CORES)
            fprintf(out, "%*s  ", width[c], text);
        else
            fprintf(out, "%-*s  ", width[c], text);
    }
}

void mu_show_text(FILE *out, const struct mu_node *node, const struct mu_plan *plan)
{
    int width[COLUMNS];
    char *title_row[COLUMNS];
    char **cells = calloc((size_t)plan->nslots * COLUMNS + 1, sizeof *cells);

    if (!cells)
        return;
    for (int c = 0; c < COLUMNS; c++) {
        title_row[c] = (char *)titles[c];
        width[c] = (int)strlen(titles[c]);
        for (int t = 0; t < plan->nslots; t++) {
            char *text = cell(node, &plan->slots[t], c);

            cells[t * COLUMNS + c] = text;
            if (text && (int)strlen(text) > width[c])
                width[c] = (int)strlen(text);
        }
    }
    put_row(out, title_row, width);
    for (int t = 0; t < plan->nslots; t++)
        put_row(out, cells + (size_t)t * COLUMNS, width);
    for (int i = 0; i < plan->nslots * COLUMNS; i++)
        free(cells[i]);
    free(cells);
}
