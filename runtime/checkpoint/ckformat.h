/* SPDX-License-Identifier: BSD-3-Clause */
/* ckformat.h - the bytes of a checkpoint file; shared by its writer and its reader */
#ifndef MU_CKFORMAT_H
#define MU_CKFORMAT_H

#include <stdint.h>

#include "runtime/checkpoint/ckfile.h"

#define MU_CK_MAGIC "MUSTERCK"
#define MU_CK_END "CKMUSTER"
#define MU_CK_VERSION 1
#define MU_CK_MAX_PARTS (1u << 20)

struct mu_ckheader {
    char magic[8];
    uint32_t version, block_bytes;
    uint64_t step;
    uint32_t shard, nshards, world, nparts;
    uint64_t data_bytes, file_bytes;
    char kind[MU_CKFILE_KIND];
    uint32_t table_crc;
    uint32_t header_crc; /* CRC32C of all fields before it */
};

struct mu_ckentry {
    char name[MU_CKFILE_NAME];
    uint64_t total, offset, bytes;
};

struct mu_cktrailer {
    uint32_t sums_crc, reserved;
    char magic[8];
};

_Static_assert(sizeof(struct mu_ckheader) == 192 && sizeof(struct mu_ckentry) == 152 &&
                   sizeof(struct mu_cktrailer) == 16,
               "structs on disk have no padding");

static inline uint64_t mu_ck_blocks(uint64_t data_bytes)
{
    return (data_bytes + MU_CKFILE_BLOCK - 1) / MU_CKFILE_BLOCK;
}

static inline uint64_t mu_ck_data_at(uint32_t nparts)
{
    return sizeof(struct mu_ckheader) + nparts * (uint64_t)sizeof(struct mu_ckentry);
}

static inline uint64_t mu_ck_file_bytes(uint32_t nparts, uint64_t data_bytes)
{
    return mu_ck_data_at(nparts) + data_bytes + mu_ck_blocks(data_bytes) * 4 +
           sizeof(struct mu_cktrailer);
}

#endif
