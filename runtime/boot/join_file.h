/* SPDX-License-Identifier: BSD-3-Clause */
/* join_file.h - the file by which a process finds a world that has begun without it
 *
 * It has rank 0's address and the job's token, so it belongs to one user and has mode
 * 0600. Rank 0 writes it when the ranks are connected, and each rank that takes its
 * place does so again.
 */
#ifndef MU_JOIN_FILE_H
#define MU_JOIN_FILE_H

#include "runtime/boot/world.h"

struct mu_join_file {
    char magic[8];             /* changes with this struct */
    struct mu_address address; /* of rank 0 */
    char job[64];
    uint8_t token[MU_TOKEN_LEN];
};

/* Replaces the file as a whole. */
int mu_join_file_write(const char *path, const struct mu_world *world,
                       struct mu_err *err);
/* 1: there is no such file. -1: it is of no use; err names MUSTER_JOIN. */
int mu_join_file_read(const char *path, struct mu_join_file *out, struct mu_err *err);
/* Remove it, unless another rank 0 has replaced it. */
void mu_join_file_remove(const char *path, const struct mu_world *world);

#endif
