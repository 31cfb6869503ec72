/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_hostlist.c - Slurm's compressed host names: a small text must not become a large
 * list */
#include "spank/core/slurm/hostlist.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mu_hostlist list = { 0 };
    char *text = fuzz_text(data, size);
    struct mu_err err;

    if (mu_hostlist_parse(text, &list, &err) == 0 && list.n > MU_HOSTLIST_MAX)
        abort();
    mu_hostlist_clear(&list);
    free(text);
    return 0;
}
