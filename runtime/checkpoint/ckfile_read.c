/* SPDX-License-Identifier: BSD-3-Clause */
/* ckfile_read.c - read a checkpoint file; nothing is used before its checksum is right
 */
#include "runtime/checkpoint/ckformat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "runtime/core/crc32c.h"

struct mu_ckfile {
    int fd;
    char *path;
    struct mu_ckheader header;
    struct mu_ckmeta meta;
    struct mu_ckpart *parts;
    uint64_t *at; /* offset of each part in the data */
    uint32_t *sums, sums_crc;
    uint8_t *block;       /* the last block read, checked */
    uint64_t block_index; /* index of that block; UINT64_MAX: none */
};

void mu_ckfile_close(struct mu_ckfile *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    free(file->parts);
    free(file->at);
    free(file->sums);
    free(file->block);
    free(file);
}

static int get(const struct mu_ckfile *file, void *to, uint64_t len, uint64_t at,
               struct mu_err *err)
{
    uint8_t *p = to;

    while (len > 0) {
        ssize_t n =
            pread(file->fd, p, len > 1u << 30 ? 1u << 30 : (size_t)len, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return mu_err_set(err, EIO, "%s cannot be read: %s", file->path,
                              strerror(errno));
        if (n == 0)
            return mu_err_set(err, EIO, "%s is truncated", file->path);
        p += n;
        at += (uint64_t)n;
        len -= (uint64_t)n;
    }
    return 0;
}

static int damaged(const struct mu_ckfile *file, const char *what, struct mu_err *err)
{
    return mu_err_set(err, EIO, "%s is damaged: %s", file->path, what);
}

static int read_header(struct mu_ckfile *file, struct mu_err *err)
{
    struct mu_ckheader *h = &file->header;
    struct stat st;

    if (fstat(file->fd, &st) < 0)
        return mu_err_set(err, EIO, "%s cannot be read: %s", file->path,
                          strerror(errno));
    if (!S_ISREG(st.st_mode))
        return mu_err_set(err, EINVAL, "%s is not a checkpoint: not a regular file",
                          file->path);
    if (st.st_size < (off_t)sizeof h->magic)
        return mu_err_set(err, EIO, "%s is truncated: %lld bytes", file->path,
                          (long long)st.st_size);
    if (get(file, h->magic, sizeof h->magic, 0, err) < 0)
        return -1;
    if (memcmp(h->magic, MU_CK_MAGIC, sizeof h->magic) != 0)
        return mu_err_set(err, EINVAL, "%s is not a checkpoint of Muster", file->path);
    if (get(file, h, sizeof *h, 0, err) < 0)
        return -1;
    if (mu_crc32c(0, h, offsetof(struct mu_ckheader, header_crc)) != h->header_crc)
        return damaged(file, "the checksum of its header is wrong", err);
    if (h->version != MU_CK_VERSION || h->block_bytes != MU_CKFILE_BLOCK)
        return mu_err_set(err, EINVAL,
                          "%s has format version %u, this libmuster reads %u",
                          file->path, h->version, MU_CK_VERSION);
    if (h->nparts > MU_CK_MAX_PARTS || h->shard >= h->nshards ||
        h->file_bytes != mu_ck_file_bytes(h->nparts, h->data_bytes))
        return damaged(file, "its sizes contradict each other", err);
    if ((uint64_t)st.st_size != h->file_bytes)
        return mu_err_set(
            err, EIO, "%s is %s: %llu bytes, not %llu", file->path,
            (uint64_t)st.st_size < h->file_bytes ? "truncated" : "damaged",
            (unsigned long long)st.st_size, (unsigned long long)h->file_bytes);
    h->kind[sizeof h->kind - 1] = '\0';
    file->meta = (struct mu_ckmeta){ h->step, h->shard, h->nshards, h->world, "" };
    memcpy(file->meta.kind, h->kind, sizeof h->kind);
    return 0;
}

static int read_table(struct mu_ckfile *file, struct mu_err *err)
{
    uint32_t n = file->header.nparts;
    struct mu_ckentry *table = calloc((size_t)n + 1, sizeof *table);
    uint64_t at = 0;
    int rc = -1;

    file->parts = calloc((size_t)n + 1, sizeof *file->parts);
    file->at = calloc((size_t)n + 1, sizeof *file->at);
    if (!table || !file->parts || !file->at) {
        mu_err_set(err, ENOMEM, "%s: no memory for its table", file->path);
        goto out;
    }
    if (get(file, table, n * sizeof *table, sizeof file->header, err) < 0)
        goto out;
    rc = mu_crc32c(0, table, n * sizeof *table) == file->header.table_crc ? 0 : -1;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        struct mu_ckentry *e = &table[i];

        if (e->bytes > file->header.data_bytes - at || e->offset > e->total ||
            e->bytes > e->total - e->offset)
            rc = -1;
        e->name[sizeof e->name - 1] = '\0';
        mu_copy(file->parts[i].name, sizeof file->parts[i].name, e->name);
        file->parts[i].bytes = e->bytes;
        file->parts[i].offset = e->offset;
        file->parts[i].total = e->total;
        file->at[i] = at;
        at += e->bytes;
    }
    if (rc < 0 || at != file->header.data_bytes)
        rc = damaged(file, "its table of contents is wrong", err);
out:
    free(table);
    return rc;
}

static int read_sums(struct mu_ckfile *file, struct mu_err *err)
{
    uint64_t bytes = mu_ck_blocks(file->header.data_bytes) * sizeof *file->sums;
    uint64_t at = mu_ck_data_at(file->header.nparts) + file->header.data_bytes;
    struct mu_cktrailer trailer;

    file->sums = malloc(bytes + 1);
    file->block = malloc(MU_CKFILE_BLOCK);
    if (!file->sums || !file->block)
        return mu_err_set(err, ENOMEM, "%s: no memory to read it", file->path);
    if (get(file, file->sums, bytes, at, err) < 0 ||
        get(file, &trailer, sizeof trailer, at + bytes, err) < 0)
        return -1;
    file->sums_crc = trailer.sums_crc;
    if (memcmp(trailer.magic, MU_CK_END, sizeof trailer.magic) != 0 ||
        mu_crc32c(0, file->sums, bytes) != trailer.sums_crc)
        return damaged(file, "its end is wrong", err);
    return 0;
}

int mu_ckfile_open(const char *path, struct mu_ckfile **out, struct mu_err *err)
{
    struct mu_ckfile *file = calloc(1, sizeof *file);

    if (!file || !(file->path = strdup(path))) {
        free(file);
        return mu_err_set(err, ENOMEM, "%s: no memory to read it", path);
    }
    file->block_index = UINT64_MAX;
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0) {
        mu_err_set(err, errno == ENOENT ? ENOENT : EIO, "%s cannot be opened: %s", path,
                   strerror(errno));
        goto fail;
    }
    if (read_header(file, err) < 0 || read_table(file, err) < 0 ||
        read_sums(file, err) < 0)
        goto fail;
    *out = file;
    return 0;
fail:
    mu_ckfile_close(file);
    return -1;
}

const struct mu_ckmeta *mu_ckfile_meta(const struct mu_ckfile *file)
{
    return &file->meta;
}

struct mu_ckid mu_ckfile_id(const struct mu_ckfile *file)
{
    return (struct mu_ckid){ file->header.file_bytes, file->header.header_crc,
                             file->sums_crc };
}

int mu_ckfile_nparts(const struct mu_ckfile *file)
{
    return (int)file->header.nparts;
}

const struct mu_ckpart *mu_ckfile_part(const struct mu_ckfile *file, int i)
{
    return &file->parts[i];
}

/* Read block `index` into `to`, which has room for all of it, and check it. */
static int read_block(struct mu_ckfile *file, uint64_t index, uint8_t *to,
                      struct mu_err *err)
{
    uint64_t at = index * MU_CKFILE_BLOCK, len = file->header.data_bytes - at;

    len = len < MU_CKFILE_BLOCK ? len : MU_CKFILE_BLOCK;
    if (get(file, to, len, mu_ck_data_at(file->header.nparts) + at, err) < 0)
        return -1;
    if (mu_crc32c(0, to, len) != file->sums[index])
        return mu_err_set(err, EIO,
                          "%s is damaged: the checksum of its block %llu is wrong",
                          file->path, (unsigned long long)index);
    return 0;
}

int mu_ckfile_read(struct mu_ckfile *file, int i, uint64_t at, uint64_t len, void *to,
                   struct mu_err *err)
{
    uint8_t *p = to;

    if (at > file->parts[i].bytes || len > file->parts[i].bytes - at)
        return mu_err_set(err, EINVAL, "%s: %s has no bytes %llu to %llu", file->path,
                          file->parts[i].name, (unsigned long long)at,
                          (unsigned long long)(at + len));
    at += file->at[i];
    while (len > 0) {
        uint64_t index = at / MU_CKFILE_BLOCK, in = at % MU_CKFILE_BLOCK;
        uint64_t n = MU_CKFILE_BLOCK - in < len ? MU_CKFILE_BLOCK - in : len;

        if (n == MU_CKFILE_BLOCK) {
            if (read_block(file, index, p, err) < 0)
                return -1;
        } else {
            if (index != file->block_index) {
                file->block_index = UINT64_MAX;
                if (read_block(file, index, file->block, err) < 0)
                    return -1;
                file->block_index = index;
            }
            memcpy(p, file->block + in, n);
        }
        p += n;
        at += n;
        len -= n;
    }
    return 0;
}
