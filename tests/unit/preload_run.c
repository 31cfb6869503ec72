/* SPDX-License-Identifier: BSD-3-Clause */
/* preload_run.c - one run of a program with libmuster-nccl and a made-up NCCL */
#include "tests/unit/preload_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/folder.h"

#define LIBS BUILD "/.libs/"

char folder[256];

void run(struct run *r)
{
    const char *how = r->how ? r->how : "global";
    bool by_name = strcmp(how, "by-name") == 0;
    char command[2048];
    size_t at = 0;
    FILE *out;

    /* Of a build with sanitizers, the preloaded library is in front of theirs. */
    snprintf(command, sizeof command,
             "exec 2>&1; F=%s; env -u MUSTER_LOG -u MUSTER_NCCL "
             "ASAN_OPTIONS=verify_asan_link_order=0 MUSTER_NCCL_TIMES=$F/times "
             "%s %s%s %s %s %s %s %d %s",
             folder, r->env ? r->env : "", r->nccl ? "MUSTER_NCCL=" : "",
             r->nccl ? r->nccl : "",
             by_name    ? "LD_LIBRARY_PATH=$F/nccl:$F/real"
             : r->alone ? "LD_PRELOAD=$F/alone/lib/libmuster-nccl.so"
                        : "LD_PRELOAD=$F/libmuster-nccl.so",
             BUILD "/tests/unit/nccl_program", how,
             by_name ? "libnccl.so.2" : "$F/real/libnccl.so.2", r->ranks ? r->ranks : 2,
             r->steps);
    out = popen(command, "r");
    assert_non_null(out);
    while (at < sizeof r->text - 1) {
        size_t n = fread(r->text + at, 1, sizeof r->text - 1 - at, out);

        if (n == 0)
            break;
        at += n;
    }
    r->text[at] = '\0';
    assert_int_equal(pclose(out), 0);
}

void expect(const struct run *r, int rank, const char *expected)
{
    char got[4096] = "", key[8];

    snprintf(key, sizeof key, "r%d ", rank);
    for (const char *line = r->text; *line;) {
        size_t len = strcspn(line, "\n");

        if (strncmp(line, key, 3) == 0)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s%.*s",
                     got[0] ? " | " : "", (int)len - 3, line + 3);
        line += len + (line[len] == '\n');
    }
    if (strcmp(got, expected) != 0)
        print_error("all of it:\n%s", r->text);
    assert_string_equal(got, expected);
}

void both(const struct run *r, const char *expected)
{
    expect(r, 0, expected);
    expect(r, 1, expected);
}

void has(const struct run *r, const char *text)
{
    if (!strstr(r->text, text))
        fail_msg("'%s' is not in:\n%s", text, r->text);
}

int lines(const struct run *r, const char *end)
{
    int n = 0;

    for (const char *at = r->text; (at = strstr(at, end)); at++)
        n++;
    return n;
}

void link_to(const char *target, const char *name)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(symlink(target, path), 0);
}

int clear(void **state)
{
    return folder_remove(folder);
}

int lay_out(void **state)
{
    static const char *const folders[] = { "/muster", "/nccl", "/alone", "/alone/lib",
                                           "/real" };

    snprintf(folder, sizeof folder, "/tmp/test_preload.XXXXXX");
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 5; i++) {
        char path[512];

        snprintf(path, sizeof path, "%s%s", folder, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    link_to(LIBS "libmuster-nccl.so", "libmuster-nccl.so");
    link_to(LIBS "libmuster-nccl.so", "alone/lib/libmuster-nccl.so");
    link_to(LIBS "libmuster-nccl-all.so", "nccl/libnccl.so.2");
    link_to(FAKES "libfake-backend.so", "muster/backend_nccl.so");
    link_to(FAKES "libfake-backend.so", "backend_nccl.so");
    link_to(FAKES "../fakes/.libs/libnccl.so.2", "real/libnccl.so.2");
    return 0;
}
