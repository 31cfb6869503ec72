/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_slurm_conf.c - what is read to find a meeting place: lines of slurm.conf,
 * SLURM_NODE_ALIASES, the kernel's list of reserved ports
 */
#include <string.h>

#include "spank/core/slurm/node_addr.h"
#include "spank/core/network/port.h"
#include "spank/core/slurm/conf_lines.h"
#include "tests/fuzz/fuzz.h"

static void lines(char *text, struct mu_node_addr *list, int n)
{
    char file[64], *line, *end;

    mu_slurm_conf_join(text);
    for (line = text; line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        mu_node_addrs_of_line(line, list, n);
        if (mu_slurm_include_of_line(line, file, sizeof file) && !file[0])
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mu_node_addr list[2] = { { "n1", "" }, { "n2", "" } };
    struct mu_port_set ports, skip;
    char *text = fuzz_text(data, size);

    if (mu_port_set_parse(text, &ports, NULL) == 0) {
        int port;

        mu_port_skip(23000, 23099, 32768, 60999, &ports, &skip);
        port = mu_port_hash(1, 2, 3, 0, 23000, 23099, &skip);
        if (port < 23000 || port > 23099 || mu_port_set_has(&skip, port))
            abort();
    }
    mu_node_addrs_of_aliases(text, list, 2);
    list[0].addr[0] = list[1].addr[0] = '\0';
    lines(text, list, 2);
    free(text);
    return 0;
}
