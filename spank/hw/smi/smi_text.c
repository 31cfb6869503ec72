/* SPDX-License-Identifier: BSD-3-Clause */
/* smi_text.c - reads cells from text that people paste: tabs or blanks, empty cells,
 * escape codes, columns that do not line up with their titles.
 *
 * Device cells are never empty, so they are counted; behind them come up to three
 * affinity columns of which any may be empty.
 */
#include "spank/hw/smi/smi_text.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

struct parser {
    const char *file;
    struct mu_smi_table *table;
    bool cpu_column, numa_column, gpu_numa_column;
    int rows;     /* device rows read */
    int affinity; /* words behind the cells of the last GPU's row */
    bool unended; /* no line end behind this line: the file may be cut off */
    struct mu_err *err;
};

static bool is_gpu_name(const char *word)
{
    return strncmp(word, "GPU", 3) == 0 && isdigit((unsigned char)word[3]) &&
           strspn(word + 3, "0123456789") == strlen(word + 3);
}

/* The next word of *p into buf; false at the end of the line. */
static bool next_word(const char **p, char *buf, size_t len)
{
    size_t n;

    *p += strspn(*p, " \t");
    n = strcspn(*p, " \t");
    snprintf(buf, len, "%.*s", (int)(n < len ? n : len - 1), *p);
    *p += n;
    return n > 0;
}

/* A title behind the devices: "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"; in other
 * languages "CPU-..." too.
 */
static bool is_affinity(const char *word)
{
    return strncmp(word, "CPU", 3) == 0 || strncmp(word, "NUMA", 4) == 0 ||
           strcmp(word, "GPU") == 0 || strcmp(word, "CP") == 0 ||
           strcmp(word, "C") == 0; /* cut off at the end of a line */
}

bool mu_smi_is_header(const char *line)
{
    char first[MU_NAME_LEN], second[MU_NAME_LEN];
    const char *p = line;

    if (!next_word(&p, first, sizeof first) || !is_gpu_name(first))
        return false;
    if (!next_word(&p, second, sizeof second))
        return false;
    return is_gpu_name(second) || is_affinity(second) ||
           ((line[0] == ' ' || line[0] == '\t') && strcmp(second, "X") != 0);
}

void mu_smi_table_clear(struct mu_smi_table *table)
{
    free(table->col);
    free(table->cell);
    memset(table, 0, sizeof *table);
}

/* The words in front of the X of a row, -1: it has none. */
static int cells_before_self(const char *line, char label[MU_NAME_LEN])
{
    char word[MU_NAME_LEN];
    int n = 0;

    if (!next_word(&line, label, MU_NAME_LEN))
        return -1;
    while (next_word(&line, word, sizeof word)) {
        if (strcmp(word, "X") == 0)
            return n;
        n++;
    }
    return -1;
}

/* A header that was cut among the devices: row n has X in column n, and its label is
 * that column's title.
 */
static int add_cut_titles(struct parser *s, const char *rows)
{
    struct mu_smi_table *t = s->table;
    char label[MU_NAME_LEN];

    for (int row = 0; rows && *rows && row < MU_SMI_COLS;) {
        size_t len = strcspn(rows, "\n");
        struct mu_smi_col *col = &t->col[row];
        char *line = strndup(rows, len);

        if (!line)
            return mu_err_set(s->err, ENOMEM, "%s: no memory to read it", s->file);
        rows += len + (rows[len] == '\n');
        if (cells_before_self(line, label) == row) {
            if (row >= t->ncols - 1 &&
                strncmp(label, col->name, strlen(col->name)) == 0)
                *col = (struct mu_smi_col){ .gpu = is_gpu_name(label), .gpu_numa = -1 };
            if (!col->name[0])
                mu_copy(col->name, sizeof col->name, label);
            row++;
        }
        free(line);
        t->ncols = row > t->ncols ? row : t->ncols;
    }
    return 0;
}

/* rows: the text behind the header. */
static int read_header(struct parser *s, const char *line, int number, const char *rows)
{
    struct mu_smi_table *t = s->table;
    char word[MU_NAME_LEN];
    const char *p = line;

    t->col = calloc(MU_SMI_COLS, sizeof *t->col);
    if (!t->col)
        return mu_err_set(s->err, ENOMEM, "%s: no memory to read it", s->file);
    while (next_word(&p, word, sizeof word)) {
        if (is_affinity(word))
            break;
        if (t->ncols == MU_SMI_COLS)
            return mu_err_set(s->err, EINVAL, "%s: line %d: more than %d columns",
                              s->file, number, MU_SMI_COLS);
        for (int i = 0; i < t->ncols; i++)
            if (strcmp(t->col[i].name, word) == 0)
                return mu_err_set(s->err, EINVAL,
                                  "%s: line %d: two columns are named %s", s->file,
                                  number, word);
        mu_copy(t->col[t->ncols].name, sizeof t->col[0].name, word);
        t->col[t->ncols].gpu_numa = -1;
        t->col[t->ncols++].gpu = is_gpu_name(word);
    }
    s->cpu_column = strstr(line, "CPU Aff") != NULL || strncmp(word, "CPU", 3) == 0;
    s->gpu_numa_column = strstr(line, "GPU NUMA") != NULL;
    /* The first NUMA title is the affinity's, unless it belongs to "GPU NUMA ID". */
    p = strstr(line, "NUMA");
    s->numa_column = p && !(p - line >= 4 && strncmp(p - 4, "GPU ", 4) == 0);
    if (!s->cpu_column && !s->numa_column && add_cut_titles(s, rows) < 0)
        return -1;
    t->cell = calloc((size_t)t->ncols * (size_t)t->ncols + 1, sizeof *t->cell);
    if (!t->cell)
        return mu_err_set(s->err, ENOMEM, "%s: no memory to read it", s->file);
    for (int i = 0; i < t->ncols * t->ncols; i++)
        t->cell[i].path = MU_NEAR_NONE;
    return 0;
}

/* SOC was the word for SYS until 2017. */
static bool read_cell(const char *word, struct mu_smi_cell *cell)
{
    static const struct {
        const char *word;
        enum mu_nearness path;
    } known[] = { { "X", MU_NEAR_NONE },    { "PIX", MU_NEAR_PIX },
                  { "PXB", MU_NEAR_PXB },   { "PHB", MU_NEAR_PHB },
                  { "NODE", MU_NEAR_NODE }, { "SYS", MU_NEAR_SYS },
                  { "SOC", MU_NEAR_SYS },   { "N/A", MU_NEAR_NONE } };

    cell->path = MU_NEAR_NONE;
    cell->nvlinks = 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(word, known[i].word) == 0) {
            cell->path = known[i].path;
            return true;
        }
    if (strncmp(word, "NV", 2) == 0 && isdigit((unsigned char)word[2]) &&
        strspn(word + 2, "0123456789") == strlen(word + 2) && strlen(word) <= 5) {
        cell->nvlinks = atoi(word + 2);
        return true;
    }
    return false;
}

static int find_row(struct parser *s, const char *label, int number)
{
    struct mu_smi_table *t = s->table;

    for (int i = 0; i < t->ncols; i++) {
        if (strcmp(t->col[i].name, label) != 0)
            continue;
        if (t->col[i].line)
            return mu_err_set(s->err, EINVAL,
                              "%s: line %d: a second row is labelled %s (the first is "
                              "on line %d): label each row as its column",
                              s->file, number, label, t->col[i].line);
        return i;
    }
    return mu_err_set(s->err, EINVAL, "%s: line %d: row %s has no column", s->file,
                      number, label);
}

/* A list with blanks behind its commas is one word. */
static bool next_list(const char **p, char out[512])
{
    char part[512];
    size_t used = 0;

    out[0] = '\0';
    do {
        if (!next_word(p, part, sizeof part))
            return used > 0;
        used += (size_t)snprintf(out + used, 512 - used, "%s", part);
    } while (used < 511 && out[used - 1] == ',');
    return true;
}

/* A header that was cut at a terminal's width lacks its last titles. The rows have the
 * words all the same, in their usual order.
 */
static int add_cut_columns(bool column[3], int columns, char word[3][512], int words)
{
    for (int f = 0; f < 3 && columns < words; f++) {
        const char *text = word[columns];

        if (column[f])
            continue;
        if (strcmp(text, "N/A") != 0 && text[strspn(text, "0123456789,-")])
            break; /* a remark */
        column[f] = true;
        columns++;
    }
    return columns;
}

/* The affinity columns as words: fields[0] CPU, [1] NUMA, [2] GPU NUMA ID; "" is empty.
 * rest starts right behind the last device cell.
 */
static void split_affinity(const struct parser *s, const char *rest, char field[3][512])
{
    char word[3][512] = { "", "", "" };
    bool column[3] = { s->cpu_column, s->numa_column, s->gpu_numa_column };
    int columns = column[0] + column[1] + column[2], words = 0;
    size_t gap = 0, tabs = 0;
    bool skip_cpu;

    for (const char *p = rest; *p == ' ' || *p == '\t'; p++) {
        tabs += *p == '\t';
        gap++;
    }
    for (const char *p = rest; words < 3 && next_list(&p, word[words]);)
        words++;
    columns = add_cut_columns(column, columns, word, words);
    /* Between the last cell and the CPU list there is one tab, or what fills a column
     * of eight; more is an empty CPU list.
     */
    skip_cpu = column[0] && words > 0 && words < columns && (tabs > 1 || gap > 8) &&
               !strpbrk(word[0], "-,");
    if (words == 1 && columns == 1)
        skip_cpu = false;
    for (int f = 0, w = 0; f < 3; f++) {
        field[f][0] = '\0';
        if (!column[f] || (f == 0 && skip_cpu) || w >= words)
            continue;
        memcpy(field[f], word[w++], sizeof word[0]);
    }
}

static int read_affinity(struct parser *s, struct mu_smi_col *col, const char *rest)
{
    static const char *const what[] = { "CPU Affinity", "NUMA Affinity" };
    struct mu_cpuset *set[] = { &col->cpus, &col->numas };
    bool *given[] = { &col->cpus_given, &col->numas_given };
    char field[3][512];
    int words = 0;
    long id;

    for (const char *p = rest; next_list(&p, field[0]);)
        words++;
    if (s->unended && words < s->affinity)
        return mu_err_set(s->err, EINVAL,
                          "%s: line %d: the file ends within row %s: it is cut off",
                          s->file, col->line, col->name);
    s->affinity = words;
    split_affinity(s, rest, field);
    for (int i = 0; i < 2; i++) {
        if (field[i][0] == '\0' || strcmp(field[i], "N/A") == 0)
            continue;
        if (mu_cpuset_parse(field[i], set[i], s->err) < 0)
            return mu_err_context(s->err, "%s: line %d: %s of %s", s->file, col->line,
                                  what[i], col->name);
        *given[i] = true;
    }
    if (mu_parse_int("", field[2], 0, MU_CPUSET_MAX - 1, &id, NULL) == 0)
        col->gpu_numa = (int)id;
    return 0;
}

static int read_row(struct parser *s, const char *line, int number)
{
    struct mu_smi_table *t = s->table;
    char word[MU_NAME_LEN];
    const char *p = line;
    int row;

    next_word(&p, word, sizeof word);
    row = find_row(s, word, number);
    if (row < 0)
        return -1;
    t->col[row].line = number;
    s->rows++;
    for (int c = 0; c < t->ncols; c++) {
        if (!next_word(&p, word, sizeof word))
            return mu_err_set(s->err, EINVAL,
                              "%s: line %d: row %s ends before column %s", s->file,
                              number, t->col[row].name, t->col[c].name);
        if (!read_cell(word, &t->cell[row * t->ncols + c]))
            return mu_err_set(
                s->err, EINVAL,
                "%s: line %d: '%.40s' in column %s is none of X PIX PXB PHB "
                "NODE SYS SOC NV#",
                s->file, number, word, t->col[c].name);
        if ((strcmp(word, "X") == 0) != (c == row))
            return mu_err_set(s->err, EINVAL,
                              "%s: line %d: row %s has '%.40s' in column %s; a device "
                              "has X with itself and with no other",
                              s->file, number, t->col[row].name, word, t->col[c].name);
    }
    return t->col[row].gpu ? read_affinity(s, &t->col[row], p) : 0;
}

/* "  NIC0: mlx5_0" below "NIC Legend:". */
static void read_legend(struct parser *s, const char *line)
{
    struct mu_smi_table *t = s->table;
    char key[MU_NAME_LEN], name[MU_NAME_LEN];
    const char *p = line;
    size_t n;

    if (!next_word(&p, key, sizeof key) || !next_word(&p, name, sizeof name))
        return;
    n = strlen(key);
    if (strncmp(key, "NIC", 3) != 0 || n < 2 || key[n - 1] != ':')
        return;
    key[n - 1] = '\0';
    for (int i = 0; i < t->ncols; i++)
        if (strcmp(t->col[i].name, key) == 0)
            mu_copy(t->col[i].name, sizeof t->col[i].name, name);
}

static bool is_row(const struct parser *s, const char *line)
{
    char word[MU_NAME_LEN];
    const char *p = line;

    if (!next_word(&p, word, sizeof word))
        return false;
    if (is_gpu_name(word))
        return true;
    for (int i = 0; i < s->table->ncols; i++)
        if (strcmp(s->table->col[i].name, word) == 0)
            return true;
    return false;
}

static int check_rows(const struct parser *s)
{
    const struct mu_smi_table *t = s->table;

    for (int i = 0; i < t->ncols; i++)
        if (t->col[i].gpu && !t->col[i].line)
            return mu_err_set(s->err, EINVAL,
                              "%s: %s has a column but no row: the file may be cut off",
                              s->file, t->col[i].name);
    return 0;
}

int mu_smi_table_parse(const char *file, char *text, struct mu_smi_table *table,
                       struct mu_err *err)
{
    struct parser s = { .file = file, .table = table, .err = err };
    int number = 0, rc = 0, legend = 0;
    char *rest = text, *line;

    memset(table, 0, sizeof *table);
    if (strstr(text, "ROCm System") || strstr(text, "XGMI"))
        return mu_err_set(err, EINVAL,
                          "%s: the text of AMD's tools does not list the CPUs near a "
                          "GPU: save the machine with lstopo FILE.xml",
                          file);
    while (rc == 0 && (line = mu_parse_next(&rest, '\n'))) {
        number++;
        s.unended = !rest;
        if (!table->col) {
            if (mu_smi_is_header(line))
                rc = read_header(&s, line, number, rest);
        } else if (strstr(line, "Legend")) {
            legend++;
        } else if (legend) {
            read_legend(&s, line);
        } else if (is_row(&s, line)) {
            rc = read_row(&s, line, number);
        }
    }
    if (rc == 0 && !table->col)
        rc = mu_err_set(err, EINVAL,
                        "%s: line %d: no line starts with GPU0: this is not the output "
                        "of nvidia-smi topo -m, an hwloc XML or an NCCL topology XML",
                        file, number > 1 ? number - 1 : 1);
    if (rc == 0)
        rc = check_rows(&s);
    if (rc < 0)
        mu_smi_table_clear(table);
    return rc;
}
