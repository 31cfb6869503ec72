/* SPDX-License-Identifier: BSD-3-Clause */
/* crc32c.h - the Castagnoli checksum (RFC 3720), with the CPU's instruction if any */
#ifndef MU_CRC32C_H
#define MU_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Start with crc = 0; pass the result of one piece as the crc of the next. */
uint32_t mu_crc32c(uint32_t crc, const void *data, size_t len);

/* The same with a table, on any CPU. */
uint32_t mu_crc32c_soft(uint32_t crc, const void *data, size_t len);

#endif
