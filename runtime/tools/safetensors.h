/* SPDX-License-Identifier: BSD-3-Clause */
/* safetensors.h - write a checkpoint as a file that most training programs read: 8
 * bytes with the length of a JSON header, the header, then the tensors one after the
 * other (https://github.com/huggingface/safetensors)
 */
#ifndef MU_SAFETENSORS_H
#define MU_SAFETENSORS_H

#include "runtime/tools/checkpoint_items.h"

/* Items whose name matches the pattern, with * and ?, have this element type. */
struct mu_dtype_rule {
    const char *pattern, *dtype;
};

/* Bytes of an element of "F32", "BF16" and so on; 0 for an unknown name. */
unsigned mu_safetensors_size(const char *dtype);

/* Write PATH.tmp, then rename it to path. The last rule that matches an item decides;
 * an item without one is U8, one element a byte; a rule that matches no item is an
 * error. Items of libmuster's own (muster.*) are left out. Each tensor has one
 * dimension: a checkpoint holds no shapes.
 */
int mu_safetensors_write(struct mu_ckset *set, const struct mu_dtype_rule *rules,
                         int nrules, const char *path, struct mu_err *err);

#endif
