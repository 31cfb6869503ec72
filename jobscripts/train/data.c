/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobscripts/train/data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define IMAGES_MAGIC 0x803u
#define LABELS_MAGIC 0x801u

struct idx {
    char path[4096];
    gzFile file;
};

static int idx_open(struct idx *idx, const char *folder, const char *part,
                    const char *what, struct mu_err *err)
{
    snprintf(idx->path, sizeof idx->path, "%s/%s-%s-ubyte.gz", folder, part, what);
    if (access(idx->path, F_OK) < 0) {
        idx->path[strlen(idx->path) - 3] = '\0';
        if (access(idx->path, F_OK) < 0)
            strcat(idx->path, ".gz");
    }
    errno = 0;
    idx->file = gzopen(idx->path, "rbe");
    if (!idx->file)
        return mu_err_set(err, errno ? errno : ENOMEM,
                          "%s cannot be read: %s; install the package "
                          "dataset-fashion-mnist or name another folder with --data",
                          idx->path, strerror(errno ? errno : ENOMEM));
    gzbuffer(idx->file, 128 * 1024);
    return 0;
}

/* Read exactly len bytes; the error distinguishes a short file from a damaged one. */
static int idx_read(struct idx *idx, void *to, uint64_t len, struct mu_err *err)
{
    uint64_t done = 0;

    while (done < len) {
        unsigned chunk = len - done > (1u << 30) ? 1u << 30 : (unsigned)(len - done);
        int n = gzread(idx->file, (uint8_t *)to + done, chunk), code;
        const char *why = gzerror(idx->file, &code);

        if (n < 0 || (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR))
            return mu_err_set(err, EIO, "%s is damaged: %s; fetch it again", idx->path,
                              code == Z_ERRNO ? strerror(errno) : why);
        if (n == 0)
            return mu_err_set(err, EIO,
                              "%s is truncated: %llu bytes of data are missing; fetch "
                              "it again",
                              idx->path, (unsigned long long)(len - done));
        done += (unsigned)n;
    }
    return 0;
}

static int idx_read_u32(struct idx *idx, uint32_t *out, struct mu_err *err)
{
    uint8_t b[4];

    if (idx_read(idx, b, sizeof b, err) < 0)
        return -1;
    *out = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    return 0;
}

/* Check magic number and sizes; want is the magic, ndims the number of sizes. */
static int idx_header(struct idx *idx, uint32_t want, uint32_t *dims, int ndims,
                      struct mu_err *err)
{
    uint32_t magic;

    if (idx_read_u32(idx, &magic, err) < 0)
        return -1;
    if (magic != want)
        return mu_err_set(err, EINVAL,
                          "%s is not an idx file of this kind: it starts with 0x%08x, "
                          "not 0x%08x",
                          idx->path, magic, want);
    for (int i = 0; i < ndims; i++)
        if (idx_read_u32(idx, &dims[i], err) < 0)
            return -1;
    if (dims[0] < 1 || dims[0] > 100000000u)
        return mu_err_set(err, EINVAL, "%s has an impossible header: %u samples",
                          idx->path, dims[0]);
    return 0;
}

/* The whole stream has been read: now zlib compares its checksum. */
static int idx_finish(struct idx *idx, struct mu_err *err)
{
    uint8_t more;
    int code, n = gzread(idx->file, &more, 1);

    gzerror(idx->file, &code);
    if (n != 0 || (code != Z_OK && code != Z_STREAM_END))
        return mu_err_set(err, EIO, "%s is damaged: %s; fetch it again", idx->path,
                          n > 0 ? "data behind its end" : "its checksum is wrong");
    return 0;
}

static int load_images(struct dataset *data, struct idx *idx, uint64_t limit,
                       uint32_t *total, struct mu_err *err)
{
    uint32_t dims[3];
    uint64_t bytes;

    if (idx_header(idx, IMAGES_MAGIC, dims, 3, err) < 0)
        return -1;
    if (dims[1] < 1 || dims[1] > 4096 || dims[2] < 1 || dims[2] > 4096)
        return mu_err_set(err, EINVAL,
                          "%s has an impossible header: images of %u x %u pixels",
                          idx->path, dims[1], dims[2]);
    *total = dims[0];
    data->rows = (int)dims[1];
    data->cols = (int)dims[2];
    data->n = limit && limit < dims[0] ? limit : dims[0];
    bytes = data->n * dims[1] * dims[2];
    data->images = malloc(bytes);
    if (!data->images)
        return mu_err_set(err, ENOMEM, "no memory for %llu bytes of images",
                          (unsigned long long)bytes);
    if (idx_read(idx, data->images, bytes, err) < 0)
        return -1;
    return data->n == dims[0] ? idx_finish(idx, err) : 0;
}

static int load_labels(struct dataset *data, struct idx *idx, uint32_t images,
                       struct mu_err *err)
{
    uint32_t n = 0;

    if (idx_header(idx, LABELS_MAGIC, &n, 1, err) < 0)
        return -1;
    if (n != images)
        return mu_err_set(err, EINVAL, "%s has %u labels for %u images", idx->path, n,
                          images);
    data->labels = malloc(data->n);
    if (!data->labels)
        return mu_err_set(err, ENOMEM, "no memory for the labels");
    if (idx_read(idx, data->labels, data->n, err) < 0)
        return -1;
    for (uint64_t i = 0; i < data->n; i++)
        if (data->labels[i] >= DATA_CLASSES)
            return mu_err_set(err, EINVAL, "%s: label %u of sample %llu is above %d",
                              idx->path, data->labels[i], (unsigned long long)i,
                              DATA_CLASSES - 1);
    return data->n == n ? idx_finish(idx, err) : 0;
}

int dataset_load(struct dataset *data, const char *folder, const char *part,
                 uint64_t limit, struct mu_err *err)
{
    struct idx images = { .file = NULL }, labels = { .file = NULL };
    uint32_t total = 0;
    int rc = -1;

    memset(data, 0, sizeof *data);
    if (idx_open(&images, folder, part, "images-idx3", err) == 0 &&
        idx_open(&labels, folder, part, "labels-idx1", err) == 0 &&
        load_images(data, &images, limit, &total, err) == 0 &&
        load_labels(data, &labels, total, err) == 0)
        rc = 0;
    if (images.file)
        gzclose(images.file);
    if (labels.file)
        gzclose(labels.file);
    if (rc < 0)
        dataset_clear(data);
    return rc;
}

void dataset_clear(struct dataset *data)
{
    free(data->images);
    free(data->labels);
    memset(data, 0, sizeof *data);
}
