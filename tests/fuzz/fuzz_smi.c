/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_smi.c - the text of nvidia-smi topo -m, and the list of CPUs by NUMA node */
#include "spank/hw/machine/machine.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct mu_machine machine;
    struct mu_err err = { 0 };

    memset(&machine, 0, sizeof machine);
    if (mu_read_smi("file", text, size, &machine, &err) == 0)
        mu_machine_clear(&machine);
    free(text);
    return 0;
}
