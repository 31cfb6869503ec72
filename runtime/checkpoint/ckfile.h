/* SPDX-License-Identifier: BSD-3-Clause */
/* ckfile.h - one checkpoint file: written whole or not at all; every byte read is
 * checked
 *
 *   header     what it is: step, kind, shard, sizes; its own CRC32C
 *   table      an entry per part: name, which bytes of the item, where in the data
 *   data       the parts one after the other
 *   checksums  CRC32C of each block of MU_CKFILE_BLOCK bytes of the data
 *   trailer    CRC32C of the checksums, and a mark that the file is complete
 *
 * Numbers are little endian; a file in another byte order is refused.
 */
#ifndef MU_CKFILE_H
#define MU_CKFILE_H

#include <stdint.h>

#include "runtime/base/err.h"

#define MU_CKFILE_BLOCK (1u << 20)
#define MU_CKFILE_NAME 128 /* with the final NUL */
#define MU_CKFILE_KIND 128

/* What the header holds beside sizes. A checkpoint in one file is shard 0 of 1. */
struct mu_ckmeta {
    uint64_t step;
    uint32_t shard, nshards;
    uint32_t world; /* number of ranks that trained */
    char kind[MU_CKFILE_KIND];
};

/* Bytes offset .. offset + bytes - 1 of an item of `total` bytes. */
struct mu_ckpart {
    char name[MU_CKFILE_NAME];
    const void *data; /* read when writing; unused when reading */
    uint64_t bytes, offset, total;
};

/* Identifies one version of a file: a commit record holds it for each shard. */
struct mu_ckid {
    uint64_t bytes;
    uint32_t header_crc, data_crc;
};

/* Write to PATH.tmp, fsync, rename to path, fsync the folder. On failure path is
 * unchanged and the temporary file is removed. id may be NULL.
 */
int mu_ckfile_write(const char *path, const struct mu_ckmeta *meta,
                    const struct mu_ckpart *parts, int nparts, struct mu_ckid *id,
                    struct mu_err *err);

struct mu_ckfile;

/* Check header, table, length and trailer. err->code is ENOENT when there is no such
 * file, EINVAL when it is not a checkpoint file, EIO when it is damaged or cannot be
 * read. The sentence starts with the path.
 */
int mu_ckfile_open(const char *path, struct mu_ckfile **out, struct mu_err *err);
void mu_ckfile_close(struct mu_ckfile *file);

const struct mu_ckmeta *mu_ckfile_meta(const struct mu_ckfile *file);
struct mu_ckid mu_ckfile_id(const struct mu_ckfile *file);
int mu_ckfile_nparts(const struct mu_ckfile *file);
const struct mu_ckpart *mu_ckfile_part(const struct mu_ckfile *file, int i);

/* Read bytes at .. at + len - 1 of part i (counted from the start of the part) into
 * `to`. Every block that is read is compared with its checksum.
 */
int mu_ckfile_read(struct mu_ckfile *file, int i, uint64_t at, uint64_t len, void *to,
                   struct mu_err *err);

#endif
