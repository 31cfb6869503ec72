/* SPDX-License-Identifier: BSD-3-Clause */
/* data.h - Fashion-MNIST (or any set in the same idx files) in memory */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include <stdint.h>

#include "runtime/base/err.h"

#define DATA_FOLDER "/usr/share/datasets/fashion-mnist"
#define DATA_CLASSES 10

struct dataset {
    uint64_t n;
    int rows, cols;
    uint8_t *images; /* n * rows * cols, 0 black .. 255 white */
    uint8_t *labels; /* n, each below DATA_CLASSES */
};

/* Read FOLDER/PART-images-idx3-ubyte[.gz] and FOLDER/PART-labels-idx1-ubyte[.gz], part
 * "train" or "t10k", at most `limit` samples (0: all). A missing, truncated or damaged
 * file is an error that names it.
 */
int dataset_load(struct dataset *data, const char *folder, const char *part,
                 uint64_t limit, struct mu_err *err);
void dataset_clear(struct dataset *data);

#endif
