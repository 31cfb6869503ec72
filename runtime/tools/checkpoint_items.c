/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/tools/checkpoint_items.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/array.h"

#define RUN (16u * MU_CKFILE_BLOCK)

struct found {
    struct mu_ckitem item;
    uint64_t got; /* bytes that its parts hold */
    int order;    /* of its first part */
};

struct parts {
    struct found *part;
    int n;
};

static int add_parts(struct parts *parts, const struct mu_ckfile *file,
                     struct mu_err *err)
{
    int n = mu_ckfile_nparts(file);

    if (mu_array_extend(&parts->part, sizeof *parts->part, parts->n, parts->n + n) < 0)
        return mu_err_set(err, ENOMEM, "no memory for %d items", parts->n + n);
    for (int i = 0; i < n; i++) {
        const struct mu_ckpart *p = mu_ckfile_part(file, i);
        struct found *f = &parts->part[parts->n];

        memcpy(f->item.name, p->name, sizeof f->item.name);
        f->item.bytes = p->total;
        f->got = p->bytes;
        f->order = parts->n++;
    }
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    int names = strcmp(x->item.name, y->item.name);

    return names ? names : x->order - y->order;
}

static int by_order(const void *a, const void *b)
{
    return ((const struct found *)a)->order - ((const struct found *)b)->order;
}

/* The parts of one item become one entry. */
static int join_parts(const struct mu_ckset *set, struct parts *parts,
                      struct mu_err *err)
{
    int n = 0;

    qsort(parts->part, (size_t)parts->n, sizeof *parts->part, by_name);
    for (int i = 0; i < parts->n; i++) {
        struct found *f = &parts->part[i], *last = n > 0 ? &parts->part[n - 1] : NULL;

        if (!last || strcmp(last->item.name, f->item.name) != 0)
            parts->part[n++] = *f;
        else if (last->item.bytes != f->item.bytes)
            return mu_err_set(err, EIO,
                              "%s: the shards disagree on the size of '%s': %llu and "
                              "%llu bytes",
                              set->path, f->item.name,
                              (unsigned long long)last->item.bytes,
                              (unsigned long long)f->item.bytes);
        else
            last->got += f->got;
    }
    parts->n = n;
    for (int i = 0; i < n; i++)
        if (parts->part[i].got != parts->part[i].item.bytes)
            return mu_err_set(err, EIO, "%s holds %llu of %llu bytes of '%s'",
                              set->path, (unsigned long long)parts->part[i].got,
                              (unsigned long long)parts->part[i].item.bytes,
                              parts->part[i].item.name);
    qsort(parts->part, (size_t)n, sizeof *parts->part, by_order);
    return 0;
}

int mu_ckitems_list(struct mu_ckset *set, struct mu_ckitem **out, struct mu_err *err)
{
    struct parts parts = { 0 };
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < set->nfiles; i++) {
        struct mu_ckfile *file = mu_ckset_file(set, i, err);

        rc = file ? add_parts(&parts, file, err) : -1;
        mu_ckset_release(set, file);
    }
    if (rc == 0)
        rc = join_parts(set, &parts, err);
    if (rc == 0) {
        *out = calloc((size_t)parts.n + 1, sizeof **out);
        if (!*out)
            rc = mu_err_set(err, ENOMEM, "no memory for %d items", parts.n);
        for (int i = 0; rc == 0 && i < parts.n; i++)
            (*out)[i] = parts.part[i].item;
    }
    free(parts.part);
    return rc < 0 ? -1 : parts.n;
}

static int read_file(struct mu_ckfile *file, void *buffer,
                     int (*run)(void *arg, const char *name, uint64_t at,
                                const void *data, uint64_t len, struct mu_err *err),
                     void *arg, struct mu_err *err)
{
    for (int i = 0; i < mu_ckfile_nparts(file); i++) {
        const struct mu_ckpart *p = mu_ckfile_part(file, i);

        for (uint64_t at = 0; at < p->bytes; at += RUN) {
            uint64_t len = p->bytes - at < RUN ? p->bytes - at : RUN;

            if (mu_ckfile_read(file, i, at, len, buffer, err) < 0 ||
                (run && run(arg, p->name, p->offset + at, buffer, len, err) < 0))
                return -1;
        }
    }
    return 0;
}

int mu_ckitems_read(struct mu_ckset *set,
                    int (*run)(void *arg, const char *name, uint64_t at,
                               const void *data, uint64_t len, struct mu_err *err),
                    void *arg, struct mu_err *err)
{
    void *buffer = malloc(RUN);
    int rc = buffer ? 0 : mu_err_set(err, ENOMEM, "no memory for %u bytes", RUN);

    for (uint32_t i = 0; rc == 0 && i < set->nfiles; i++) {
        struct mu_ckfile *file = mu_ckset_file(set, i, err);

        rc = file ? read_file(file, buffer, run, arg, err) : -1;
        mu_ckset_release(set, file);
    }
    free(buffer);
    return rc;
}
