/* SPDX-License-Identifier: BSD-3-Clause */
/* join_file.c - the file by which a process finds a world that has begun without it */
#include "runtime/boot/join_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "runtime/boot/secret.h"
#include "runtime/muster.h"

static const char magic[] = "muster1\n"; /* in the file without its end */

int mu_join_file_write(const char *path, const struct mu_world *world,
                       struct mu_err *err)
{
    struct mu_join_file file = { .address = *mu_endpoint_address(world->endpoint) };
    char temporary[PATH_MAX];
    int fd, n = snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    bool ok;

    memcpy(file.magic, magic, sizeof file.magic);
    memcpy(file.token, world->token, sizeof file.token);
    mu_copy(file.job, sizeof file.job, world->job);
    fd = n < (int)sizeof temporary ? mkostemp(temporary, O_CLOEXEC) : -1;
    if (fd < 0)
        return mu_err_set(err, MUSTER_EIO, "cannot write MUSTER_GROW=%s: %s", path,
                          n < (int)sizeof temporary ? strerror(errno) : "too long");
    ok = write(fd, &file, sizeof file) == sizeof file;
    ok = close(fd) == 0 && ok && rename(temporary, path) == 0;
    if (ok)
        return 0;
    mu_err_set(err, MUSTER_EIO, "cannot write MUSTER_GROW=%s: %s", path,
               strerror(errno));
    unlink(temporary);
    return -1;
}

static int read_whole(const char *path, struct mu_join_file *out, int *fd,
                      struct mu_err *err)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (*fd < 0 && errno == ENOENT)
        return 1;
    if (*fd < 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "MUSTER_JOIN=%s: %s", path,
                          strerror(errno));
    if (mu_secret_check_file(*fd, "MUSTER_JOIN", path, err) < 0)
        return -1;
    if (read(*fd, out, sizeof *out) != sizeof *out ||
        memcmp(out->magic, magic, sizeof out->magic) != 0 ||
        !mu_address_read(&out->address, &out->address, sizeof out->address))
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "MUSTER_JOIN=%s is not a file that MUSTER_GROW of this "
                          "release of libmuster writes",
                          path);
    out->job[sizeof out->job - 1] = '\0';
    return 0;
}

int mu_join_file_read(const char *path, struct mu_join_file *out, struct mu_err *err)
{
    int fd, rc = read_whole(path, out, &fd, err);

    if (fd >= 0)
        close(fd);
    return rc;
}

void mu_join_file_remove(const char *path, const struct mu_world *world)
{
    const struct mu_address *mine = mu_endpoint_address(world->endpoint);
    struct mu_join_file file;

    if (mu_join_file_read(path, &file, NULL) == 0 &&
        memcmp(file.address.id, mine->id, sizeof mine->id) == 0)
        unlink(path);
}
