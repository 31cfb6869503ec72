/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_node_facts.c - facts of nodes from a file of another site: what is masked can be
 * read again, and has as many facts */
#include "spank/core/doctor/node_mask.h"
#include "tests/fuzz/fuzz.h"

static void mask_again(const struct mu_node_facts *facts)
{
    struct mu_node_facts again = { 0 };
    char *masked = mu_node_facts_mask(facts);
    struct mu_err err;

    if (!masked || mu_node_facts_parse(masked, NULL, &again, &err) < 0 ||
        again.n > facts->n)
        abort();
    mu_node_facts_clear(&again);
    free(masked);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mu_node_facts facts = { 0 };
    struct mu_comparison comparison = { 0 };
    char *text = fuzz_text(data, size), *report = NULL;
    size_t len;
    struct mu_err err;
    FILE *out;

    if (mu_node_facts_parse(text, NULL, &facts, &err) == 0) {
        if (mu_node_facts_compare(&facts, &comparison, &err) < 0)
            abort();
        out = open_memstream(&report, &len);
        mu_comparison_text(out, &comparison);
        fclose(out);
        mask_again(&facts);
    }
    mu_comparison_clear(&comparison);
    mu_node_facts_clear(&facts);
    free(report);
    free(text);
    return 0;
}
