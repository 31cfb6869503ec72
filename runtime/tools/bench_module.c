/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_module.c - the functions of the NCCL backend that are measured directly */
#include "runtime/tools/bench.h"

#include <dlfcn.h>

#include "runtime/api/impl.h" /* for the backend, which is measured directly */

static void *symbol(const struct muster *m, const char *name)
{
    return m->comm.module ? dlsym(m->comm.module, name) : NULL;
}

void bench_module_open(struct bench *b)
{
    *(void **)&b->module.force = symbol(b->m, "mu_nccl_force");
    *(void **)&b->module.peer = symbol(b->m, "mu_nccl_peer");
    *(void **)&b->module.sendrecv = symbol(b->m, "mu_nccl_sendrecv");
    *(void **)&b->module.plain = symbol(b->m, "mu_nccl_plain");
    *(void **)&b->module.table = symbol(b->m, "mu_nccl_table");
}

int bench_force(const struct bench *b, const char *path)
{
    return b->module.force ? b->module.force(b->m->comm.backend, path) : 0;
}
