/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/core/crc32c.h"

#include <string.h>

/* Four bits at a time, for a table of 16 values: speed matters less here, since most
 * CPUs have the instruction.
 */
uint32_t mu_crc32c_soft(uint32_t crc, const void *data, size_t len)
{
    static const uint32_t table[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };
    const uint8_t *p = data;

    crc = ~crc;
    for (; len; p++, len--) {
        crc ^= *p;
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

#if defined __x86_64__
#include <nmmintrin.h>
#define HARD __attribute__((target("sse4.2")))
#define STEP8(crc, word) (uint32_t) _mm_crc32_u64(crc, word)
#define STEP1(crc, byte) _mm_crc32_u8(crc, byte)

static int have_instruction(void)
{
    return __builtin_cpu_supports("sse4.2");
}
#elif defined __aarch64__ && defined __linux__
#include <arm_acle.h>
#include <sys/auxv.h>
#define HARD __attribute__((target("+crc")))
#define STEP8(crc, word) __crc32cd(crc, word)
#define STEP1(crc, byte) __crc32cb(crc, byte)

static int have_instruction(void)
{
    return getauxval(AT_HWCAP) >> 7 & 1; /* HWCAP_CRC32 */
}
#endif

#ifdef HARD
HARD static uint32_t crc_hard(uint32_t crc, const void *data, size_t len)
{
    const uint8_t *p = data;

    crc = ~crc;
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t word;

        memcpy(&word, p, 8);
        crc = STEP8(crc, word);
    }
    for (; len; p++, len--)
        crc = STEP1(crc, *p);
    return ~crc;
}

uint32_t mu_crc32c(uint32_t crc, const void *data, size_t len)
{
    return have_instruction() ? crc_hard(crc, data, len)
                              : mu_crc32c_soft(crc, data, len);
}
#else
uint32_t mu_crc32c(uint32_t crc, const void *data, size_t len)
{
    return mu_crc32c_soft(crc, data, len);
}
#endif
