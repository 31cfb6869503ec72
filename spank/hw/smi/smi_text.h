/* SPDX-License-Identifier: BSD-3-Clause */
/* smi_text.h - the matrix of nvidia-smi topo -m as a table of cells */
#ifndef MU_SMI_TEXT_H
#define MU_SMI_TEXT_H

#include <stdbool.h>

#include "runtime/base/cpuset.h"
#include "runtime/base/err.h"
#include "spank/core/node/node.h"

#ifndef MU_SMI_COLS /* fuzzing has a lower one */
#define MU_SMI_COLS 512
#endif

struct mu_smi_col {
    char name[MU_NAME_LEN]; /* GPU0, mlx5_3, HSN; NICn replaced by its legend's name */
    bool gpu;
    int line; /* of its row, 0: it has none */
    /* GPU rows only */
    bool cpus_given; /* false: empty or N/A */
    struct mu_cpuset cpus;
    bool numas_given;
    struct mu_cpuset numas; /* NUMA Affinity: may name memory-only nodes too */
    int gpu_numa;           /* GPU NUMA ID, -1 */
};

struct mu_smi_cell {
    enum mu_nearness
        path; /* NONE under an NVLink cell: nvidia-smi hides the PCI path */
    int nvlinks;
};

/* Free with mu_smi_table_clear. cell[row * ncols + col]. */
struct mu_smi_table {
    int ncols;
    struct mu_smi_col *col;
    struct mu_smi_cell *cell;
};

/* text is modified. Errors name file and line. */
int mu_smi_table_parse(const char *file, char *text, struct mu_smi_table *table,
                       struct mu_err *err);
/* The header names devices only: its first word is a GPU and the second one not a cell.
 */
bool mu_smi_is_header(const char *line);

void mu_smi_table_clear(struct mu_smi_table *table);

/* Make plain lines of pasted text, in place. Removed are escape sequences, carriage
 * returns, a byte order mark, no-break blanks and the bars of a table. So are prefixes
 * of every line: ("> ") of mail, ("0: ") of `srun -l`, ("node01: ") of pdsh, ("[rank0] ")
 * of a log, ("# ") of a comment, ("+ ") of a patch.
 */
void mu_smi_strip(char *text);

#endif
