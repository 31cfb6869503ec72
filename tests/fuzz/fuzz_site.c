/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_site.c - muster.conf */
#include "spank/core/options/muster_conf.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct mu_site_keys keys;
    struct mu_site site = { 0 };
    char *text = fuzz_text(data, size);
    struct mu_err err;

    if (mu_site_parse(text, "muster.conf", &site, &err) == 0)
        mu_site_resolve(&site, "gpu", "n17", &keys);
    mu_site_clear(&site);
    free(text);
    return 0;
}
