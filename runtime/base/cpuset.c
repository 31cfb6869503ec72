/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/base/cpuset.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* The kernel's bit masks are arrays of unsigned long, as is a mu_cpuset on 64 bits. */
_Static_assert(sizeof(unsigned long) == sizeof(uint64_t), "64-bit systems only");

static bool valid(int cpu)
{
    return cpu >= 0 && cpu < MU_CPUSET_MAX;
}

void mu_cpuset_add(struct mu_cpuset *set, int cpu)
{
    if (valid(cpu))
        set->word[cpu / 64] |= UINT64_C(1) << cpu % 64;
}

void mu_cpuset_add_range(struct mu_cpuset *set, int first, int last)
{
    for (int cpu = first; cpu <= last && valid(cpu); cpu++)
        mu_cpuset_add(set, cpu);
}

void mu_cpuset_remove(struct mu_cpuset *set, int cpu)
{
    if (valid(cpu))
        set->word[cpu / 64] &= ~(UINT64_C(1) << cpu % 64);
}

bool mu_cpuset_has(const struct mu_cpuset *set, int cpu)
{
    return valid(cpu) && (set->word[cpu / 64] >> cpu % 64 & 1);
}

int mu_cpuset_count(const struct mu_cpuset *set)
{
    int n = 0;

    for (int i = 0; i < MU_CPUSET_WORDS; i++)
        n += __builtin_popcountll(set->word[i]);
    return n;
}

bool mu_cpuset_empty(const struct mu_cpuset *set)
{
    return mu_cpuset_next(set, -1) < 0;
}

bool mu_cpuset_equal(const struct mu_cpuset *a, const struct mu_cpuset *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

bool mu_cpuset_intersects(const struct mu_cpuset *a, const struct mu_cpuset *b)
{
    for (int i = 0; i < MU_CPUSET_WORDS; i++)
        if (a->word[i] & b->word[i])
            return true;
    return false;
}

bool mu_cpuset_inside(const struct mu_cpuset *inner, const struct mu_cpuset *outer)
{
    for (int i = 0; i < MU_CPUSET_WORDS; i++)
        if (inner->word[i] & ~outer->word[i])
            return false;
    return true;
}

void mu_cpuset_or(struct mu_cpuset *set, const struct mu_cpuset *other)
{
    for (int i = 0; i < MU_CPUSET_WORDS; i++)
        set->word[i] |= other->word[i];
}

void mu_cpuset_and(struct mu_cpuset *set, const struct mu_cpuset *other)
{
    for (int i = 0; i < MU_CPUSET_WORDS; i++)
        set->word[i] &= other->word[i];
}

void mu_cpuset_andnot(struct mu_cpuset *set, const struct mu_cpuset *other)
{
    for (int i = 0; i < MU_CPUSET_WORDS; i++)
        set->word[i] &= ~other->word[i];
}

int mu_cpuset_next(const struct mu_cpuset *set, int cpu)
{
    int from = cpu + 1;

    if (from < 0 || from >= MU_CPUSET_MAX)
        return -1;
    for (int i = from / 64; i < MU_CPUSET_WORDS; i++) {
        uint64_t w = set->word[i];

        if (i == from / 64)
            w &= ~UINT64_C(0) << from % 64;
        if (w)
            return i * 64 + __builtin_ctzll(w);
    }
    return -1;
}

int mu_cpuset_of_process(pid_t pid, struct mu_cpuset *set)
{
    struct mu_cpuset now = { 0 };

    /* A kernel with more than 1024 CPUs refuses the size of a cpu_set_t. */
    if (sched_getaffinity(pid, sizeof now.word, (cpu_set_t *)now.word) < 0)
        return -1;
    *set = now;
    return 0;
}

/* The decimal number at *p, or -1 when there is none or it is too large. Moves *p
 * behind it.
 */
static long take_number(const char **p)
{
    long n = 0;

    if (!isdigit((unsigned char)**p))
        return -1;
    for (; isdigit((unsigned char)**p); (*p)++)
        if ((n = n * 10 + (**p - '0')) >= MU_CPUSET_MAX)
            return -1;
    return n;
}

static void skip_blanks(const char **p)
{
    while (isspace((unsigned char)**p))
        (*p)++;
}

int mu_cpuset_parse(const char *text, struct mu_cpuset *set, struct mu_err *err)
{
    struct mu_cpuset out = { 0 };
    const char *p = text;

    skip_blanks(&p);
    while (*p) {
        long first = take_number(&p), last = first, step = 1;

        if (first >= 0 && *p == '-') {
            p++;
            last = take_number(&p);
            if (last >= 0 && *p == ':') {
                p++;
                step = take_number(&p);
            }
        }
        if (first < 0 || last < first || step < 1)
            return mu_err_set(err, EINVAL,
                              "'%.80s' is not a list like 0-3,8 with numbers below %d",
                              text, MU_CPUSET_MAX);
        for (long cpu = first; cpu <= last; cpu += step)
            mu_cpuset_add(&out, (int)cpu);
        skip_blanks(&p);
        if (*p == ',') {
            p++;
            skip_blanks(&p);
            if (*p)
                continue;
        } else if (!*p) {
            break;
        }
        return mu_err_set(err, EINVAL, "'%.80s' is not a list like 0-3,8", text);
    }
    *set = out;
    return 0;
}

static int hex_digit(char c)
{
    return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

int mu_cpuset_parse_mask(const char *text, struct mu_cpuset *set, struct mu_err *err)
{
    struct mu_cpuset out = { 0 };
    const char *start = text, *end;
    int bit = 0, in_word = 0;

    skip_blanks(&start);
    if (start[0] == '0' && (start[1] == 'x' || start[1] == 'X'))
        start += 2;
    end = start + strlen(start);
    while (end > start && isspace((unsigned char)end[-1]))
        end--;
    if (end == start)
        return mu_err_set(err, EINVAL, "the CPU mask is empty");
    /* From the right: a comma ends a word of 32 bits, however few digits it has. */
    for (const char *p = end; p-- > start;) {
        if (*p == ',' && in_word) {
            bit = (bit + 31) / 32 * 32;
            in_word = 0;
            continue;
        }
        if (!isxdigit((unsigned char)*p))
            return mu_err_set(err, EINVAL, "'%.80s' is not a hexadecimal CPU mask",
                              text);
        for (int i = 0, d = hex_digit(*p); i < 4; i++)
            if (d >> i & 1) {
                if (bit + i >= MU_CPUSET_MAX)
                    return mu_err_set(err, EINVAL,
                                      "CPU mask '%.80s' has a CPU above %d", text,
                                      MU_CPUSET_MAX - 1);
                mu_cpuset_add(&out, bit + i);
            }
        bit += 4;
        in_word = 1;
    }
    *set = out;
    return 0;
}

/* snprintf at offset n of buf, which may be full. Returns the new offset. */
static int append(char *buf, size_t len, int n, const char *fmt, int a, int b)
{
    size_t room = (size_t)n < len ? len - n : 0;

    return n + snprintf(room ? buf + n : NULL, room, fmt, a, b);
}

int mu_cpuset_format(const struct mu_cpuset *set, char *buf, size_t len)
{
    int n = 0;

    if (len)
        buf[0] = '\0';
    for (int first = mu_cpuset_next(set, -1); first >= 0;) {
        int last = first;

        while (mu_cpuset_has(set, last + 1))
            last++;
        if (n)
            n = append(buf, len, n, ",", 0, 0);
        n = append(buf, len, n, first == last ? "%d" : "%d-%d", first, last);
        first = mu_cpuset_next(set, last);
    }
    return n;
}

int mu_cpuset_format_mask(const struct mu_cpuset *set, char *buf, size_t len)
{
    int n = 0;

    for (int w = MU_CPUSET_MAX / 32 - 1; w >= 0; w--) {
        uint32_t word = (uint32_t)(set->word[w / 2] >> w % 2 * 32);

        if (n)
            n = append(buf, len, n, ",%08x", (int)word, 0);
        else if (word || w == 0)
            n = append(buf, len, n, "%x", (int)word, 0);
    }
    return n;
}
