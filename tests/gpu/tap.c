/* SPDX-License-Identifier: BSD-3-Clause */
/* tap.c - TAP output of a rank of a GPU test; comparison of values over all ranks */
#include "tests/gpu/common.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void print0(const struct rank *r, const char *fmt, ...)
{
    va_list ap;

    if (r->world->rank != 0)
        return;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    fflush(stdout);
}

/* Compares over the exchange, which is not the subject of the test. */
bool same_everywhere(struct rank *r, uint64_t mine)
{
    static unsigned round;
    const struct mu_exchange *x = &r->world->exchange;
    struct mu_err err = { 0 };
    char key[32];
    bool same = true;

    /* Four keys in turn: the newest entry counts. */
    snprintf(key, sizeof key, "test.%u", round++ % 4);
    if (x->publish(x->arg, key, &mine, sizeof mine, &err) < 0 ||
        x->fence(x->arg, 60, &err) < 0) {
        fprintf(stderr, "# rank %d: %s\n", r->world->rank, err.text);
        exit(1);
    }
    for (int i = 0; i < r->world->size; i++) {
        void *value = NULL;
        size_t len;

        if (x->fetch(x->arg, i, key, &value, &len, 60, &err) < 0)
            exit(1);
        same = same && memcmp(value, &mine, sizeof mine) == 0;
        free(value);
    }
    return same;
}

void check(struct rank *r, bool ok, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    bool all;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!ok)
        printf("# rank %d: not ok: %s\n", r->world->rank, text);
    all = same_everywhere(r, ok ? 1 : 2 + (uint64_t)r->world->rank) && ok;
    if (!all)
        r->failures++;
    r->number++;
    print0(r, "%sok %d - %s\n", all ? "" : "not ", r->number, text);
}

int ranks_wanted(int argc, char **argv, int least)
{
    int status = 0, n;
    pid_t pid = fork();

    if (pid == 0)
        _exit(mu_gpu_count());
    waitpid(pid, &status, 0);
    n = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    if (argc > 1 && atoi(argv[1]) > 0 && atoi(argv[1]) < n)
        n = atoi(argv[1]);
    if (n < least) {
        printf("1..0 # SKIP %d GPUs, %d needed\n", n, least);
        exit(0);
    }
    return n;
}
