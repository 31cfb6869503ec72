/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_cpulist.c - CPU lists and masks: what is accepted survives a round trip */
#include "runtime/base/cpuset.h"
#include "runtime/base/record.h"
#include "tests/fuzz/fuzz.h"

static void round_trip(const struct mu_cpuset *set)
{
    static char list[65536], mask[4096];
    struct mu_cpuset again;

    mu_cpuset_format(set, list, sizeof list);
    if (mu_cpuset_parse(list, &again, NULL) < 0 || !mu_cpuset_equal(set, &again))
        abort();
    mu_cpuset_format_mask(set, mask, sizeof mask);
    if (mu_cpuset_parse_mask(mask, &again, NULL) < 0 || !mu_cpuset_equal(set, &again))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct mu_record record;
    struct mu_cpuset set;
    struct mu_err err;

    if (mu_cpuset_parse(text, &set, &err) == 0)
        round_trip(&set);
    if (mu_cpuset_parse_mask(text, &set, &err) == 0)
        round_trip(&set);
    mu_record_decode(text, &record, &err);
    free(text);
    return 0;
}
