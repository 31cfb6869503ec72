/* SPDX-License-Identifier: BSD-3-Clause */
/* ways.c - processes that call muster_init with an environment of their own */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/random.h"
#include "tests/unit/patience.h"
#include "tests/unit/text_file.h"
#include "tests/unit/ways.h"

struct start {
    const struct ways *w;
    int port, fd; /* of the standard error of all */
    int (*body)(struct muster *m, void *arg);
    void *arg;
};

static bool is_free(int port)
{
    struct sockaddr_in6 at = { .sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)port) };
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = bind(fd, (struct sockaddr *)&at, sizeof at) == 0;

    close(fd);
    return ok;
}

/* By a name of AF_UNIX that this process has until it ends. False: another test has it.
 */
static bool reserve(int port)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "muster-test-port-%d", port);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) == 0)
        return true;
    close(fd);
    return false;
}

/* Not an ephemeral one, so that no call of another test takes it. */
int ways_port(void)
{
    static int last;

    if (!last)
        last = 20000 + getpid() % 4500 * 2;
    do {
        last += 2;
        if (last > 29000)
            last = 20000;
    } while (!reserve(last) || !is_free(last) || !is_free(last + 1));
    return last;
}

void ways_token(char *path, size_t len)
{
    uint8_t token[MU_TOKEN_LEN];
    int fd;

    snprintf(path, len, "%s/muster-token-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    fd = mkstemp(path);
    assert_true(fd >= 0 && mu_random(token, sizeof token) == 0 &&
                write(fd, token, sizeof token) == sizeof token);
    close(fd);
}

static void set_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* The tests themselves may run in a step of Slurm. */
static void make_environment(const struct start *s, int rank)
{
    clearenv();
    setenv("MUSTER_BACKEND", "host", 1);
    setenv("MASTER_ADDR", "localhost", 1);
    set_number("MASTER_PORT", s->port);
    set_number("RANK", rank);
    set_number("WORLD_SIZE", s->w->size);
    for (int i = 0; i < WAYS_SETS && s->w->set[i].name; i++) {
        if (s->w->set[i].rank >= 0 && s->w->set[i].rank != rank)
            continue;
        if (s->w->set[i].value)
            setenv(s->w->set[i].name, s->w->set[i].value, 1);
        else
            unsetenv(s->w->set[i].name);
    }
}

static int run_rank(struct mu_fork_rank *self, void *arg)
{
    const struct start *s = arg;
    struct muster_options options = { .timeout = 20 * PATIENCE,
                                      .init_timeout = 20 * PATIENCE,
                                      .own_device = s->w->own_device };
    const struct muster_exchange exchange = { .rank = self->rank,
                                              .size = self->size,
                                              .allgather = s->w->allgather,
                                              .arg = self,
                                              .first = s->w->first };
    struct muster *m;

    if (s->w->allgather)
        options.exchange = &exchange;
    if (s->w->init_timeout > 0)
        options.init_timeout = s->w->init_timeout;
    dup2(s->fd, 2);
    make_environment(s, self->rank);
    if (s->w->dies_after > 0 && self->rank == s->w->size - 1)
        ualarm((useconds_t)(s->w->dies_after * 1e6), 0);
    if (s->w->before)
        s->w->before(self->rank, s->arg);
    if (muster_init(&m, &options) != MUSTER_OK)
        return muster_report(NULL);
    return s->body(m, s->arg);
}

int ways_allgather(void *rank, const void *mine, void *all, size_t bytes)
{
    struct mu_fork_rank *self = rank;
    const struct mu_exchange *x = &self->exchange;

    if (x->publish(x->arg, "all", mine, bytes, NULL) < 0 ||
        x->fence(x->arg, 60, NULL) < 0)
        return 1;
    for (int r = 0; r < self->size; r++) {
        void *value;
        size_t len;

        if (x->fetch(x->arg, r, "all", &value, &len, 1, NULL) < 0 || len != bytes)
            return 2;
        memcpy((char *)all + (size_t)r * bytes, value, bytes);
        free(value);
    }
    return 0;
}

static char *read_all(int fd)
{
    off_t len = lseek(fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)len + 1);

    assert_non_null(text);
    assert_int_equal(pread(fd, text, (size_t)len, 0), len);
    return text;
}

void ways_run(const struct ways *w, int port, int (*body)(struct muster *m, void *arg),
              void *arg, struct ways_result *out)
{
    struct start s = { w, port, text_file(), body, arg };
    struct mu_fork_spec spec = { .size = w->size,
                                 .skip = w->skip,
                                 .limit = 60 * PATIENCE };
    struct mu_fork_end end;
    double began = mu_clock_s();

    assert_true(s.fd >= 0);
    assert_true(mu_fork_ranks(&spec, run_rank, &s, &end) >= 0);
    out->seconds = mu_clock_s() - began;
    memcpy(out->status, end.status, sizeof out->status);
    out->text = read_all(s.fd);
    close(s.fd);
}

/* Do both stand in one line? */
bool ways_line(const char *text, const char *said, const char *named)
{
    for (const char *at = strstr(text, said); at; at = strstr(at + 1, said)) {
        size_t len = strcspn(at, "\n");
        const char *found = strstr(at, named);

        if (found && found < at + len)
            return true;
    }
    return false;
}

int ways_end(struct muster *m, void *arg)
{
    return muster_finalize(m);
}

int ways_rank(void)
{
    return atoi(getenv("RANK"));
}

void ways_join_file(char *path, size_t len)
{
    snprintf(path, len, "%s/muster-grow-%d",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
}
