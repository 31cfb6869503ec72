/* SPDX-License-Identifier: BSD-3-Clause */
/* net_lines.h - the interfaces of a node from lines of text */
#ifndef TEST_NET_LINES_H
#define TEST_NET_LINES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/network/interface.h"

/* One interface per line: "name speed flags addr addr ..." with flags of U (up),
 * C (carrier), L (loopback) or '-'.
 */
static inline void net_build(struct mu_net *net, const char *const *lines)
{
    for (int i = 0; lines[i]; i++) {
        char copy[256], *rest = copy, *word;
        struct mu_iface *iface;

        snprintf(copy, sizeof copy, "%s", lines[i]);
        word = strsep(&rest, " ");
        iface = mu_net_add_iface(net, word);
        iface->mbits = atol(strsep(&rest, " "));
        word = strsep(&rest, " ");
        iface->up = strchr(word, 'U') != NULL;
        iface->carrier = strchr(word, 'C') != NULL;
        iface->loopback = strchr(word, 'L') != NULL;
        while ((word = strsep(&rest, " "))) {
            struct mu_addr addr;

            assert_int_equal(mu_addr_parse(word, &addr, NULL), 0);
            assert_int_equal(mu_iface_add_addr(iface, &addr), 0);
        }
    }
}

#define NET_LO "lo 0 UCL 127.0.0.1/8 ::1/128"

#endif
