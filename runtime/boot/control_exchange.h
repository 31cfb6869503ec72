/* SPDX-License-Identifier: BSD-3-Clause */
/* control_exchange.h - an exchange over control connections that are open */
#ifndef MU_CONTROL_EXCHANGE_H
#define MU_CONTROL_EXCHANGE_H

#include "runtime/boot/control.h"
#include "runtime/boot/published.h"

struct mu_control_exchange {
    struct mu_control *control; /* borrowed */
    const char *what;           /* the call, for messages; borrowed */
    struct mu_published published;
};

/* world (borrowed): of those connections. The exchange borrows x until
 * mu_published_clear(&x->published).
 */
struct mu_exchange mu_control_exchange(struct mu_control_exchange *x,
                                       struct mu_control *control, const char *what,
                                       const struct mu_world *world);

#endif
