/* SPDX-License-Identifier: BSD-3-Clause */
/* ckfile_write.c - write a checkpoint file; one rename makes it visible */
#include "runtime/checkpoint/ckformat.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/fresh.h"
#include "runtime/base/parse.h"
#include "runtime/core/crc32c.h"

/* Parts follow each other in the data without gaps, so a block may hold pieces of
 * several parts: `sum` is the checksum of the current block.
 */
struct writer {
    int fd;
    uint32_t *sums, sum;
    uint64_t block, fill; /* index of the current block, bytes in it */
};

static int put(int fd, const void *data, uint64_t len)
{
    const uint8_t *p = data;

    while (len > 0) {
        ssize_t n = write(fd, p, len > MU_CKFILE_BLOCK ? MU_CKFILE_BLOCK : (size_t)len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        p += n;
        len -= (uint64_t)n;
    }
    return 0;
}

static int put_data(struct writer *w, const uint8_t *data, uint64_t len)
{
    while (len > 0) {
        uint64_t n = MU_CKFILE_BLOCK - w->fill;

        n = len < n ? len : n;
        w->sum = mu_crc32c(w->sum, data, n);
        if (put(w->fd, data, n) < 0)
            return -1;
        data += n;
        len -= n;
        w->fill += n;
        if (w->fill == MU_CKFILE_BLOCK) {
            w->sums[w->block++] = w->sum;
            w->sum = 0;
            w->fill = 0;
        }
    }
    return 0;
}

static void fill_header(struct mu_ckheader *h, const struct mu_ckmeta *meta,
                        const struct mu_ckpart *parts, int nparts,
                        struct mu_ckentry *table)
{
    memset(h, 0, sizeof *h);
    memset(table, 0, (size_t)nparts * sizeof *table);
    memcpy(h->magic, MU_CK_MAGIC, sizeof h->magic);
    h->version = MU_CK_VERSION;
    h->block_bytes = MU_CKFILE_BLOCK;
    h->step = meta->step;
    h->shard = meta->shard;
    h->nshards = meta->nshards;
    h->world = meta->world;
    h->nparts = (uint32_t)nparts;
    mu_copy(h->kind, sizeof h->kind, meta->kind);
    for (int i = 0; i < nparts; i++) {
        mu_copy(table[i].name, sizeof table[i].name, parts[i].name);
        table[i].total = parts[i].total;
        table[i].offset = parts[i].offset;
        table[i].bytes = parts[i].bytes;
        h->data_bytes += parts[i].bytes;
    }
    h->file_bytes = mu_ck_file_bytes(h->nparts, h->data_bytes);
    h->table_crc = mu_crc32c(0, table, (size_t)nparts * sizeof *table);
    h->header_crc = mu_crc32c(0, h, offsetof(struct mu_ckheader, header_crc));
}

static int write_all(int fd, const struct mu_ckheader *h,
                     const struct mu_ckentry *table, const struct mu_ckpart *parts,
                     uint32_t *sums, uint32_t *sums_crc)
{
    struct writer w = { .fd = fd, .sums = sums };
    struct mu_cktrailer trailer = { 0 };
    size_t sums_bytes = mu_ck_blocks(h->data_bytes) * sizeof *sums;

    if (put(fd, h, sizeof *h) < 0 || put(fd, table, h->nparts * sizeof *table) < 0)
        return -1;
    for (uint32_t i = 0; i < h->nparts; i++)
        if (put_data(&w, parts[i].data, parts[i].bytes) < 0)
            return -1;
    if (w.fill > 0)
        sums[w.block] = w.sum;
    *sums_crc = trailer.sums_crc = mu_crc32c(0, sums, sums_bytes);
    memcpy(trailer.magic, MU_CK_END, sizeof trailer.magic);
    if (put(fd, sums, sums_bytes) < 0 || put(fd, &trailer, sizeof trailer) < 0)
        return -1;
    return fsync(fd);
}

/* The rename must reach the disk too. */
static int sync_folder(const char *path)
{
    char copy[PATH_MAX];
    int fd, rc;

    mu_copy(copy, sizeof copy, path);
    fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    rc = fsync(fd);
    close(fd);
    /* Some network file systems cannot sync a folder and need not. */
    return rc < 0 && errno != EINVAL && errno != ENOTSUP ? -1 : 0;
}

static int replace(const char *path, const char *temporary, const struct mu_ckheader *h,
                   const struct mu_ckentry *table, const struct mu_ckpart *parts,
                   uint32_t *sums, struct mu_ckid *id, struct mu_err *err)
{
    int fd = mu_fresh_open(temporary), saved;

    if (fd < 0)
        return mu_err_set(err, errno, "%s cannot be created: %s", temporary,
                          strerror(errno));
    if (write_all(fd, h, table, parts, sums, &id->data_crc) < 0)
        goto fail;
    if (close(fd) < 0) {
        fd = -1;
        goto fail;
    }
    fd = -1;
    if (rename(temporary, path) < 0)
        goto fail;
    if (sync_folder(path) < 0)
        return mu_err_set(err, errno, "the folder of %s cannot be synced: %s", path,
                          strerror(errno));
    id->bytes = h->file_bytes;
    id->header_crc = h->header_crc;
    return 0;
fail:
    saved = errno;
    if (fd >= 0)
        close(fd);
    unlink(temporary);
    return mu_err_set(err, saved, "%s cannot be written: %s (it needs %llu bytes)",
                      path, strerror(saved), (unsigned long long)h->file_bytes);
}

int mu_ckfile_write(const char *path, const struct mu_ckmeta *meta,
                    const struct mu_ckpart *parts, int nparts, struct mu_ckid *id,
                    struct mu_err *err)
{
    char temporary[PATH_MAX];
    struct mu_ckheader header;
    struct mu_ckentry *table = calloc((size_t)nparts + 1, sizeof *table);
    struct mu_ckid unused;
    uint32_t *sums = NULL;
    int rc = -1, n = snprintf(temporary, sizeof temporary, "%s.tmp", path);

    if (n >= (int)sizeof temporary) {
        mu_err_set(err, ENAMETOOLONG, "%s: the path is too long", path);
        goto out;
    }
    if (table) {
        fill_header(&header, meta, parts, nparts, table);
        sums = calloc(mu_ck_blocks(header.data_bytes) + 1, sizeof *sums);
    }
    if (!table || !sums)
        mu_err_set(err, ENOMEM, "%s: no memory for its table", path);
    else
        rc = replace(path, temporary, &header, table, parts, sums, id ? id : &unused,
                     err);
out:
    free(sums);
    free(table);
    return rc;
}
