/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/tools/safetensors.h"

#include <endian.h>
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/fresh.h"
#include "runtime/base/parse.h"
#include "runtime/core/item.h"

#define METADATA "__metadata__" /* the one key of the header that is no tensor */

struct tensor {
    const char *name; /* borrowed from the items */
    uint64_t at;      /* of its first byte in the file */
};

struct output {
    int fd;
    const char *path;
    struct tensor *tensor; /* sorted by name */
    size_t n;
};

unsigned mu_safetensors_size(const char *dtype)
{
    static const struct {
        const char *name;
        unsigned bytes;
    } types[] = { { "BOOL", 1 },    { "U8", 1 },  { "I8", 1 },   { "F8_E4M3", 1 },
                  { "F8_E5M2", 1 }, { "F16", 2 }, { "BF16", 2 }, { "I16", 2 },
                  { "U16", 2 },     { "F32", 4 }, { "I32", 4 },  { "U32", 4 },
                  { "F64", 8 },     { "I64", 8 }, { "U64", 8 } };

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, dtype) == 0)
            return types[i].bytes;
    return 0;
}

static bool is_ours(const char *name)
{
    return strncmp(name, MU_ITEM_RESERVED, strlen(MU_ITEM_RESERVED)) == 0;
}

/* fnmatch(3) would take the brackets of a name such as layer[0].weight for a set. */
static bool matches(const char *pattern, const char *name)
{
    for (; *pattern && *pattern != '*'; pattern++, name++)
        if (!*name || (*pattern != '?' && *pattern != *name))
            return false;
    if (!*pattern)
        return !*name;
    while (!matches(pattern + 1, name))
        if (!*name++)
            return false;
    return true;
}

static const char *dtype_of(const char *name, const struct mu_dtype_rule *rules,
                            int nrules)
{
    for (int i = nrules - 1; i >= 0; i--)
        if (matches(rules[i].pattern, name))
            return rules[i].dtype;
    return "U8";
}

/* A name that no item has is a mistake in writing: its item would be bytes. */
static int check_rules(const struct mu_ckitem *items, int n,
                       const struct mu_dtype_rule *rules, int nrules,
                       struct mu_err *err)
{
    for (int r = 0; r < nrules; r++) {
        bool used = strcmp(rules[r].pattern, "*") == 0;

        for (int i = 0; !used && i < n; i++)
            used = !is_ours(items[i].name) && matches(rules[r].pattern, items[i].name);
        if (!used)
            return mu_err_set(err, EINVAL,
                              "--dtype '%s=%s' matches no item: muster checkpoint ls "
                              "prints their names",
                              rules[r].pattern, rules[r].dtype);
    }
    return 0;
}

/* Add the item to the header; its bytes begin at *at of the data. */
static int describe(json_t *header, const struct mu_ckitem *item, const char *dtype,
                    uint64_t *at, struct mu_err *err)
{
    unsigned size = mu_safetensors_size(dtype);
    json_t *entry;

    if (item->bytes % size != 0)
        return mu_err_set(err, EINVAL,
                          "'%s' has %llu bytes, which is no whole number of %s: give "
                          "--dtype '%s=TYPE' with another type",
                          item->name, (unsigned long long)item->bytes, dtype,
                          item->name);
    if (strcmp(item->name, METADATA) == 0)
        return mu_err_set(err, EINVAL,
                          "an item has the name '" METADATA "', which safetensors "
                          "reserves: save it with another name");
    entry = json_pack("{s:s, s:[I], s:[I, I]}", "dtype", dtype, "shape",
                      (json_int_t)(item->bytes / size), "data_offsets", (json_int_t)*at,
                      (json_int_t)(*at + item->bytes));
    *at += item->bytes;
    if (!entry || json_object_set_new(header, item->name, entry) < 0)
        return mu_err_set(err, EINVAL, "'%s' is no UTF-8 text, which JSON needs",
                          item->name);
    return 0;
}

/* The header's text, padded to a multiple of 8 as the format's readers expect; caller
 * frees. NULL on failure.
 */
static char *make_header(const struct mu_ckset *set, const struct mu_ckitem *items,
                         int n, const struct mu_dtype_rule *rules, int nrules,
                         struct mu_err *err)
{
    const struct mu_ckmeta *meta = mu_ckfile_meta(set->record);
    char step[24], kind[MU_CKFILE_NAME], *text = NULL, *padded = NULL;
    json_t *header;
    uint64_t at = 0;
    int rc = 0;

    mu_copy(kind, sizeof kind, meta->kind);
    mu_make_printable(kind);
    snprintf(step, sizeof step, "%llu", (unsigned long long)meta->step);
    header = json_pack("{s:{s:s, s:s}}", METADATA, "step", step, "kind", kind);
    for (int i = 0; header && rc == 0 && i < n; i++)
        if (!is_ours(items[i].name))
            rc = describe(header, &items[i], dtype_of(items[i].name, rules, nrules),
                          &at, err);
    if (header && rc == 0)
        text = json_dumps(header, JSON_COMPACT);
    if (text && asprintf(&padded, "%-*s", (int)((strlen(text) + 7) / 8 * 8), text) < 0)
        padded = NULL;
    if (!padded && rc == 0)
        mu_err_set(err, ENOMEM, "no memory for the header of %d items", n);
    free(text);
    json_decref(header);
    return padded;
}

static int write_at(const struct output *out, uint64_t at, const void *data,
                    uint64_t len, struct mu_err *err)
{
    for (uint64_t done = 0; done < len;) {
        ssize_t n =
            pwrite(out->fd, (const char *)data + done, len - done, (off_t)(at + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return mu_err_set(err, errno, "%s cannot be written: %s", out->path,
                              strerror(errno));
        done += (uint64_t)n;
    }
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

static int write_run(void *arg, const char *name, uint64_t at, const void *data,
                     uint64_t len, struct mu_err *err)
{
    const struct output *out = arg;
    struct tensor key = { .name = name };
    const struct tensor *t =
        bsearch(&key, out->tensor, out->n, sizeof *out->tensor, by_name);

    return t ? write_at(out, t->at + at, data, len, err) : 0;
}

static int write_all(struct mu_ckset *set, struct output *out, const char *header,
                     const struct mu_ckitem *items, int n, struct mu_err *err)
{
    uint64_t length = htole64(strlen(header)), at = sizeof length + strlen(header);

    for (int i = 0; i < n; i++)
        if (!is_ours(items[i].name)) {
            out->tensor[out->n++] = (struct tensor){ items[i].name, at };
            at += items[i].bytes;
        }
    qsort(out->tensor, out->n, sizeof *out->tensor, by_name);
    if (write_at(out, 0, &length, sizeof length, err) < 0 ||
        write_at(out, sizeof length, header, strlen(header), err) < 0 ||
        mu_ckitems_read(set, write_run, out, err) < 0)
        return -1;
    if (fsync(out->fd) < 0)
        return mu_err_set(err, errno, "%s cannot be written: %s", out->path,
                          strerror(errno));
    return 0;
}

int mu_safetensors_write(struct mu_ckset *set, const struct mu_dtype_rule *rules,
                         int nrules, const char *path, struct mu_err *err)
{
    struct mu_ckitem *items = NULL;
    struct output out = { .fd = -1, .path = path };
    char temporary[PATH_MAX], *header = NULL;
    struct stat there;
    int n, rc = -1;

    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return mu_err_set(err, EINVAL, "%s cannot be written: it is no plain file",
                          path);
    n = mu_ckitems_list(set, &items, err);
    if (n < 0)
        return -1;
    if (check_rules(items, n, rules, nrules, err) == 0)
        header = make_header(set, items, n, rules, nrules, err);
    out.tensor = calloc((size_t)n + 1, sizeof *out.tensor);
    if (!header || !out.tensor)
        goto out;
    if (snprintf(temporary, sizeof temporary, "%s.tmp", path) >= (int)sizeof temporary)
        errno = ENAMETOOLONG;
    else
        out.fd = mu_fresh_open(temporary);
    if (out.fd < 0) {
        mu_err_set(err, errno, "%s cannot be written: %s", path, strerror(errno));
        goto out;
    }
    rc = write_all(set, &out, header, items, n, err);
    close(out.fd);
    if (rc == 0 && rename(temporary, path) < 0)
        rc = mu_err_set(err, errno, "%s cannot be written: %s", path, strerror(errno));
    if (rc < 0)
        unlink(temporary);
out:
    free(out.tensor);
    free(header);
    free(items);
    return rc;
}
