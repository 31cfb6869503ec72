/* SPDX-License-Identifier: BSD-3-Clause */
/* secret.c - the job's secret where PMIx does not bring it: a file, or a variable */
#include "runtime/boot/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/muster.h"

#define DIGITS (2 * MU_TOKEN_LEN)

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool decode(const char *text, uint8_t out[MU_TOKEN_LEN])
{
    for (int i = 0; i < MU_TOKEN_LEN; i++) {
        int high = digit(text[2 * i]), low = high < 0 ? -1 : digit(text[2 * i + 1]);

        if (low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

int mu_secret_check_file(int fd, const char *name, const char *path, struct mu_err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "%s=%s: %s", name, path,
                          strerror(errno));
    if (!S_ISREG(st.st_mode))
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "%s=%s is not a regular file", name,
                          path);
    if (st.st_uid != geteuid())
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "%s=%s belongs to user id %u, not to user id "
                          "%u: make a file of your own",
                          name, path, (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & 077)
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "%s=%s has mode %04o: others may read it, run "
                          "chmod 600 on it and make a new token",
                          name, path, (unsigned)st.st_mode & 07777);
    return 0;
}

/* 32 bytes, or 64 hexadecimal digits and perhaps the end of a line. */
static int read_file(const char *path, uint8_t out[MU_TOKEN_LEN], struct mu_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), rc = -1;
    char text[DIGITS + 2] = "";
    ssize_t n;

    if (fd < 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "MUSTER_TOKEN_FILE=%s: %s", path,
                          strerror(errno));
    if (mu_secret_check_file(fd, "MUSTER_TOKEN_FILE", path, err) < 0)
        goto out;
    n = read(fd, text, sizeof text);
    if (n == MU_TOKEN_LEN)
        memcpy(out, text, MU_TOKEN_LEN);
    else if (!(n == DIGITS || (n == DIGITS + 1 && text[DIGITS] == '\n')) ||
             !decode(text, out)) {
        mu_err_set(err, MUSTER_ERENDEZVOUS,
                   "MUSTER_TOKEN_FILE=%s holds neither 32 bytes nor 64 hexadecimal "
                   "digits: make it with `head -c32 /dev/urandom`",
                   path);
        goto out;
    }
    rc = 0;
out:
    close(fd);
    return rc;
}

int mu_secret_read(const struct mu_launch *launch, uint8_t out[MU_TOKEN_LEN],
                   struct mu_err *err)
{
    uint8_t token[MU_TOKEN_LEN];

    if (launch->token_file)
        return read_file(launch->token_file, out, err);
    if (!launch->token)
        return 1;
    if (strlen(launch->token) != DIGITS || !decode(launch->token, token))
        return mu_err_set(
            err, MUSTER_ERENDEZVOUS,
            "MUSTER_TOKEN takes 64 hexadecimal digits, not %zu characters "
            "like these",
            strlen(launch->token));
    memcpy(out, token, sizeof token);
    return 0;
}
