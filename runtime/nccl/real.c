/* SPDX-License-Identifier: BSD-3-Clause */
/* real.c - NCCL's own functions: where they are
 *
 *   MUSTER_NCCL_LIBRARY  a path
 *   RTLD_NEXT            the program links NCCL
 *   already loaded       a library of the program has it out of the global scope, as
 *                        PyTorch's wheel does
 *   the search path      this library was opened under NCCL's name
 */
#include "runtime/nccl/real.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define SONAME "libnccl.so.2"

static struct {
    pthread_once_t once;
    void *handle; /* NULL: RTLD_NEXT alone */
} nccl = { .once = PTHREAD_ONCE_INIT };

static bool is_ours(const void *address)
{
    static const char here;
    Dl_info mine, its;

    return dladdr(&here, &mine) && dladdr(address, &its) &&
           mine.dli_fbase == its.dli_fbase;
}

/* Close h and return NULL unless it is an NCCL other than this library. */
static void *other(void *h)
{
    void *version = h ? dlsym(h, "ncclGetVersion") : NULL;

    if (version && !is_ours(version))
        return h;
    if (h)
        dlclose(h);
    return NULL;
}

/* By path: a name alone would find this library again. */
static void *search(void)
{
    Dl_serinfo size, *info = NULL;
    void *self = dlopen(NULL, RTLD_LAZY), *found = NULL;

    if (self && dlinfo(self, RTLD_DI_SERINFOSIZE, &size) == 0)
        info = malloc(size.dls_size);
    if (info) {
        info->dls_size = size.dls_size;
        info->dls_cnt = size.dls_cnt;
    }
    if (info && dlinfo(self, RTLD_DI_SERINFO, info) == 0)
        for (unsigned i = 0; i < info->dls_cnt && !found; i++) {
            char path[PATH_MAX];

            if (snprintf(path, sizeof path, "%s/" SONAME,
                         info->dls_serpath[i].dls_name) < (int)sizeof path)
                found = other(dlopen(path, RTLD_NOW | RTLD_LOCAL));
        }
    free(info);
    if (self)
        dlclose(self);
    return found;
}

static void find(void)
{
    const char *path = getenv("MUSTER_NCCL_LIBRARY");
    void *next;

    if (path && *path) {
        nccl.handle = other(dlopen(path, RTLD_NOW | RTLD_LOCAL));
        return;
    }
    next = dlsym(RTLD_NEXT, "ncclGetVersion");
    if (next && !is_ours(next))
        return;
    nccl.handle = other(dlopen(SONAME, RTLD_NOW | RTLD_NOLOAD));
    if (!nccl.handle)
        nccl.handle = search();
}

void *mu_real(const char *name)
{
    void *address;

    pthread_once(&nccl.once, find);
    address = dlsym(nccl.handle ? nccl.handle : RTLD_NEXT, name);
    return address && !is_ours(address) ? address : NULL;
}
