/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/core/crc32c.h"

#include <string.h>

#define POLY 0x82f63b78u /* bit reversed */

/* table[k][b]: what byte b does to the checksum when k more bytes follow it. Made on the
 * first call; two threads that race write the same values.
 */
static uint32_t table[8][256];

static void make_table(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;

        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLY : 0);
        table[0][b] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t b = 0; b < 256; b++)
            table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 255];
}

static uint32_t load32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint32_t mu_crc32c_soft(uint32_t crc, const void *data, size_t len)
{
    const uint8_t *p = data;

    /* The entry written last tells that all are there. */
    if (__atomic_load_n(&table[7][255], __ATOMIC_ACQUIRE) == 0)
        make_table();
    crc = ~crc;
    for (; len >= 8; p += 8, len -= 8) {
        uint32_t low = load32(p) ^ crc, high = load32(p + 4);

        crc = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^
              table[4][low >> 24] ^ table[3][high & 255] ^ table[2][high >> 8 & 255] ^
              table[1][high >> 16 & 255] ^ table[0][high >> 24];
    }
    for (; len; p++, len--)
        crc = crc >> 8 ^ table[0][(crc ^ *p) & 255];
    return ~crc;
}

#if defined __x86_64__
#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t crc_hard(uint32_t crc, const void *data,
                                                           size_t len)
{
    const uint8_t *p = data;
    uint64_t c = ~crc;

    for (; len >= 8; p += 8, len -= 8) {
        uint64_t word;

        memcpy(&word, p, 8);
        c = _mm_crc32_u64(c, word);
    }
    for (; len; p++, len--)
        c = _mm_crc32_u8((uint32_t)c, *p);
    return ~(uint32_t)c;
}

uint32_t mu_crc32c(uint32_t crc, const void *data, size_t len)
{
    if (__builtin_cpu_supports("sse4.2"))
        return crc_hard(crc, data, len);
    return mu_crc32c_soft(crc, data, len);
}
#else
uint32_t mu_crc32c(uint32_t crc, const void *data, size_t len)
{
    return mu_crc32c_soft(crc, data, len);
}
#endif
