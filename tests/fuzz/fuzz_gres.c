/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_gres.c - gres.conf */
#include "spank/core/slurm/gres_conf.h"
#include "spank/core/slurm/conf_lines.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct mu_gres_conf conf;
    char *text = fuzz_text(data, size);
    struct mu_err err;

    conf.n = 0;
    mu_slurm_conf_join(text);
    mu_gres_conf_parse("gres.conf", text, size % 2 ? "n1" : NULL, &conf, &err);
    free(text);
    return 0;
}
