/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_tune.c - tables of the tuner: what is read gives ordered spans */
#include "runtime/core/tune_table.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mu_tune_span *spans = NULL;
    char *text = fuzz_text(data, size);
    struct mu_err err = { 0 };
    struct mu_tune table;

    if (mu_tune_parse(&table, text, "table", &err) == 0) {
        int n = mu_tune_spans(&table, table.rows[0].ranks, table.rows[0].nodes, &spans);

        for (int i = 0; i < n; i++)
            if (spans[i].first > spans[i].last || spans[i].algo < 0 ||
                spans[i].proto < 0 || spans[i].channels > 64 ||
                !mu_tune_find(spans, n, spans[i].func, spans[i].last))
                abort();
        free(spans);
        mu_tune_clear(&table);
    }
    free(text);
    return 0;
}
