/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_nccl_xml.c - NCCL topology files: read, judged, judged against themselves,
 * written */
#include <stdio.h>

#include "spank/hw/machine/machine.h"
#include "tests/fuzz/fuzz.h"

static void count(void *arg, const struct mu_nccl_finding *finding)
{
    *(size_t *)arg += strlen(finding->text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), *written = NULL;
    struct mu_nccl_verdict verdict;
    struct mu_machine machine;
    struct mu_err err = { 0 };
    size_t told = 0, len = 0;
    FILE *out;

    memset(&machine, 0, sizeof machine);
    mu_nccl_check(text, size, NULL, false, count, &told, &verdict);
    if (mu_read_nccl_xml("file", text, size, NULL, &machine, &err) == 0) {
        mu_nccl_check(text, size, &machine, true, count, &told, &verdict);
        out = open_memstream(&written, &len);
        if (out) {
            mu_nccl_write(out, &machine, &err);
            fclose(out);
        }
        free(written);
        mu_machine_clear(&machine);
    }
    free(text);
    return 0;
}
