/* SPDX-License-Identifier: BSD-3-Clause */
/* test_host_edges.c - the host backend as a guest in its process: descriptors
 * and forked children
 */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/both_transports.h"
#include "tests/unit/ranks.h"

/* Descriptors that the test was started with are none of ours. */
static bool inherited[4096];

static int count_fds(bool *all_cloexec)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *e;
    int n = 0;

    *all_cloexec = true;
    while ((e = readdir(dir))) {
        int fd = atoi(e->d_name);

        if (e->d_name[0] == '.' || fd == dirfd(dir) || inherited[fd % 4096])
            continue;
        n++;
        if (!(fcntl(fd, F_GETFD) & FD_CLOEXEC)) {
            printf("# descriptor %d would survive exec\n", fd);
            *all_cloexec = false;
        }
    }
    closedir(dir);
    return n;
}

static int descriptors(struct ranks_self *self, void *arg)
{
    struct mu_err err = { 0 };
    struct mu_backend *b;
    bool closed_on_exec;
    int before, open;
    float x = 1;

    before = count_fds(&closed_on_exec);
    for (int i = 0; i < 3; i++) {
        /* A rank that is ahead would call, and its call is a descriptor here. */
        meet_at(self, i + 1);
        RANKS_CHECK(self, host->open(&self->env, &b, &err) == 0, "%s", err.text);
        RANKS_CHECK(self, reduce(b, &x, 1, &err) == 0, "%s", err.text);
        open = count_fds(&closed_on_exec);
        RANKS_CHECK(self, closed_on_exec, "see above");
        RANKS_CHECK(self, open > before, "%d descriptors?", open);
        host->close(b);
        open = count_fds(&closed_on_exec);
        RANKS_CHECK(self, open == before, "%d descriptors before, %d after", before,
                    open);
    }
    return 0;
}

static void remember_descriptors(void)
{
    for (int fd = 0; fd < 4096; fd++)
        inherited[fd] = fcntl(fd, F_GETFD) >= 0;
}

static void descriptors_close_on_exec_and_none_is_left(void **state)
{
    in_both_transports(descriptors);
}

/* ---- children ---- */

static int child_of(struct ranks_self *self, struct mu_backend *b)
{
    struct mu_err err = { 0 };
    bool closed_on_exec;
    float x = 1;

    RANKS_CHECK(self, reduce(b, &x, 1, &err) < 0 && err.code == MUSTER_EUSAGE,
                "a child may not start anything");
    RANKS_CHECK(self, count_fds(&closed_on_exec) <= 1, "the child keeps descriptors");
    host->close(b);
    return 0;
}

/* To the next rank or from the one before; a thread of the backend moves it. */
static struct mu_request *message(struct ranks_self *self, struct mu_backend *b,
                                  const float *out, float *in)
{
    struct mu_coll coll = { .kind = MU_COLL_PAIR,
                            .dtype = MUSTER_F32,
                            .send = out,
                            .recv = in,
                            .count = 1,
                            .recv_count = 1,
                            .to = out ? (self->rank + 1) % self->size : -1,
                            .from =
                                in ? (self->rank + self->size - 1) % self->size : -1,
                            .scale = 1 };
    struct mu_request *request = NULL;
    struct mu_err err = { 0 };

    if (host->start(b, &coll, &request, &err) < 0)
        fprintf(stderr, "%s\n", err.text);
    return request;
}

static int forks(struct ranks_self *self, void *arg)
{
    struct mu_request *sent[2], *received[2];
    struct mu_err err = { 0 };
    struct mu_backend *b;
    float x, out = (float)self->rank, in[2] = { -1, -1 };

    RANKS_CHECK(self, host->open(&self->env, &b, &err) == 0, "%s", err.text);
    received[0] = message(self, b, NULL, &in[0]);
    sent[0] = message(self, b, &out, NULL);
    RANKS_CHECK(self, received[0] && sent[0], "a message does not start");
    RANKS_CHECK(self,
                host->join(b, received[0], NULL, &err) == 0 &&
                    host->join(b, sent[0], NULL, &err) == 0,
                "%s", err.text);
    received[1] = NULL;
    for (int i = 0; i < 3; i++) {
        pid_t pid = fork();
        int status;

        if (pid == 0) {
            /* Not exit(): a leak checker there would wait for the parent's threads. */
            status = child_of(self, b);
            fflush(NULL);
            _exit(status);
        }
        waitpid(pid, &status, 0);
        RANKS_CHECK(self, status == 0, "the child ended with %x", (unsigned)status);
        x = 1;
        RANKS_CHECK(self, reduce(b, &x, 1, &err) == 0 && x == 3, "%g %s", x, err.text);
        if (i == 1) /* the last child finds a message in flight */
            received[1] = message(self, b, NULL, &in[1]);
    }
    sent[1] = message(self, b, &out, NULL);
    RANKS_CHECK(self,
                received[1] && sent[1] && host->join(b, sent[1], NULL, &err) == 0 &&
                    host->join(b, received[1], NULL, &err) == 0 && in[0] == in[1] &&
                    in[0] == (float)((self->rank + self->size - 1) % self->size),
                "%g %g %s", in[0], in[1], err.text);
    host->close(b);
    return 0;
}

static void forked_children_are_harmless(void **state)
{
    in_both_transports(forks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_close_on_exec_and_none_is_left),
        cmocka_unit_test(forked_children_are_harmless),
    };

    remember_descriptors();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
