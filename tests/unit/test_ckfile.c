/* SPDX-License-Identifier: BSD-3-Clause */
/* test_ckfile.c - a checkpoint file is whole, or refused by name */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/checkpoint/ckfile.h"
#include "runtime/core/crc32c.h"

#define BIG (MU_CKFILE_BLOCK * 2 + 4321)

static char folder[64] = "/tmp/muster-ckfile-XXXXXX", path[128], temporary[160];
static uint8_t big[BIG], small[100], back[BIG];

static const struct mu_ckmeta meta = {
    .step = 1204, .nshards = 1, .world = 4, .kind = "test"
};
static const struct mu_ckpart parts[] = {
    { .name = "small", .data = small, .bytes = sizeof small, .total = sizeof small },
    { .name = "big", .data = big, .bytes = BIG, .total = BIG },
    { .name = "empty" },
    { .name = "tail", .data = small, .bytes = 7, .total = 100, .offset = 50 },
};
enum { PARTS = sizeof parts / sizeof parts[0] };

static int setup(void **state)
{
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/a.muster", folder);
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    for (size_t i = 0; i < BIG; i++)
        big[i] = (uint8_t)(i * 2654435761u >> 13);
    for (size_t i = 0; i < sizeof small; i++)
        small[i] = (uint8_t)(200 - i);
    return 0;
}

static int teardown(void **state)
{
    unlink(path);
    return rmdir(folder);
}

static void crc32c_has_the_published_values(void **state)
{
    uint8_t zeros[32] = { 0 }, rising[32];

    for (int i = 0; i < 32; i++)
        rising[i] = (uint8_t)i;
    /* RFC 3720, B.4, and the usual check string */
    assert_int_equal(mu_crc32c(0, zeros, 32), 0x8a9136aau);
    assert_int_equal(mu_crc32c(0, rising, 32), 0x46dd794eu);
    assert_int_equal(mu_crc32c(0, "123456789", 9), 0xe3069283u);
    for (size_t len = 0; len < 300; len++) {
        assert_int_equal(mu_crc32c(0, big, len), mu_crc32c_soft(0, big, len));
        assert_int_equal(
            mu_crc32c(mu_crc32c(0, big, len / 3), big + len / 3, len - len / 3),
            mu_crc32c(0, big, len));
    }
}

static void write_it(void)
{
    struct mu_err err = { 0 };

    if (mu_ckfile_write(path, &meta, parts, PARTS, NULL, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(access(temporary, F_OK), -1);
}

/* Open, and read every part; 0 when all is as it was written. */
static int read_it(struct mu_err *err)
{
    struct mu_ckfile *file;
    int rc = mu_ckfile_open(path, &file, err);

    if (rc < 0)
        return -1;
    for (int i = 0; rc == 0 && i < mu_ckfile_nparts(file); i++) {
        const struct mu_ckpart *part = mu_ckfile_part(file, i);

        rc = mu_ckfile_read(file, i, 0, part->bytes, back, err);
        if (rc == 0)
            assert_memory_equal(back, parts[i].data ? parts[i].data : back,
                                parts[i].bytes);
    }
    mu_ckfile_close(file);
    return rc;
}

static void what_was_written_is_read(void **state)
{
    struct mu_err err = { 0 };
    struct mu_ckfile *file;
    struct mu_ckid id;

    assert_int_equal(mu_ckfile_write(path, &meta, parts, PARTS, &id, &err), 0);
    if (read_it(&err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(mu_ckfile_open(path, &file, &err), 0);
    assert_int_equal(mu_ckfile_meta(file)->step, 1204);
    assert_int_equal(mu_ckfile_meta(file)->world, 4);
    assert_string_equal(mu_ckfile_meta(file)->kind, "test");
    assert_int_equal(mu_ckfile_nparts(file), PARTS);
    assert_string_equal(mu_ckfile_part(file, 3)->name, "tail");
    assert_int_equal(mu_ckfile_part(file, 3)->offset, 50);
    assert_int_equal(mu_ckfile_part(file, 3)->total, 100);
    assert_int_equal(mu_ckfile_id(file).header_crc, id.header_crc);
    assert_int_equal(mu_ckfile_id(file).data_crc, id.data_crc);
    assert_int_equal(mu_ckfile_id(file).bytes, id.bytes);
    mu_ckfile_close(file);
}

static void any_range_of_a_part_is_read(void **state)
{
    static const struct {
        uint64_t at, len;
    } ranges[] = { { 0, 1 },
                   { BIG - 1, 1 },
                   { MU_CKFILE_BLOCK - 150, 300 },
                   { 5, MU_CKFILE_BLOCK },
                   { MU_CKFILE_BLOCK - 100, MU_CKFILE_BLOCK + 1 },
                   { BIG, 0 } };
    struct mu_err err = { 0 };
    struct mu_ckfile *file;

    write_it();
    assert_int_equal(mu_ckfile_open(path, &file, &err), 0);
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        assert_int_equal(
            mu_ckfile_read(file, 1, ranges[i].at, ranges[i].len, back, &err), 0);
        assert_memory_equal(back, big + ranges[i].at, ranges[i].len);
    }
    assert_int_equal(mu_ckfile_read(file, 1, BIG, 1, back, &err), -1);
    assert_int_equal(mu_ckfile_read(file, 3, UINT64_MAX, 2, back, &err), -1);
    mu_ckfile_close(file);
}

static void expect_refused(const char *what, uint64_t at, int code)
{
    struct mu_err err = { 0 };

    if (read_it(&err) == 0)
        fail_msg("%s at byte %llu: accepted", what, (unsigned long long)at);
    if (strncmp(err.text, path, strlen(path)) != 0)
        fail_msg("%s at byte %llu: '%s' does not name the file", what,
                 (unsigned long long)at, err.text);
    if (err.code != EIO && err.code != code)
        fail_msg("%s at byte %llu: code %d: %s", what, (unsigned long long)at, err.code,
                 err.text);
}

static void one_flipped_bit_anywhere_is_found(void **state)
{
    struct stat st;
    int fd;

    write_it();
    fd = open(path, O_RDWR);
    fstat(fd, &st);
    for (off_t at = 0; at < st.st_size;
         at += at < 2000 || at > st.st_size - 40 ? 1 : 9973) {
        uint8_t byte, wrong;

        assert_int_equal(pread(fd, &byte, 1, at), 1);
        wrong = byte ^ (uint8_t)(1u << (at % 8));
        assert_int_equal(pwrite(fd, &wrong, 1, at), 1);
        /* four bytes of the trailer are reserved and mean nothing yet */
        if (at < st.st_size - 12 || at >= st.st_size - 8)
            expect_refused("a flipped bit", (uint64_t)at, EINVAL);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
    assert_int_equal(read_it(NULL), 0);
}

static void a_file_cut_anywhere_is_found(void **state)
{
    struct stat st;

    write_it();
    stat(path, &st);
    for (off_t len = st.st_size - 1; len >= 0;
         len -= len < 2000 || len > st.st_size - 100 ? 1 : 31337) {
        assert_int_equal(truncate(path, len), 0);
        expect_refused("cut", (uint64_t)len, EINVAL);
        if (len < 31337 && len > 2000)
            len = 2001;
    }
}

static void a_longer_file_is_found(void **state)
{
    int fd;

    write_it();
    fd = open(path, O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
    expect_refused("one byte more", 0, EIO);
}

static void a_file_of_something_else_is_foreign(void **state)
{
    struct mu_err err = { 0 };
    FILE *f = fopen(path, "w");

    for (int i = 0; i < 1000; i++)
        fputs("not a checkpoint ", f);
    fclose(f);
    assert_int_equal(read_it(&err), -1);
    assert_int_equal(err.code, EINVAL);
    unlink(path);
    assert_int_equal(read_it(&err), -1);
    assert_int_equal(err.code, ENOENT);
    mkdir(path, 0777);
    assert_int_equal(read_it(&err), -1);
    rmdir(path);
    /* A fifo that another user left is not waited for. */
    assert_int_equal(mkfifo(path, 0666), 0);
    alarm(10);
    assert_int_equal(read_it(&err), -1);
    alarm(0);
    assert_int_equal(err.code, EINVAL);
    unlink(path);
}

static void a_write_that_fails_leaves_the_old_file(void **state)
{
    struct mu_err err = { 0 };
    struct mu_ckmeta next = meta;

    write_it();
    /* A folder in the way of the temporary name makes the write fail. */
    assert_int_equal(mkdir(temporary, 0777), 0);
    next.step = 9999;
    assert_int_equal(mu_ckfile_write(path, &next, parts, PARTS, NULL, &err), -1);
    assert_non_null(strstr(err.text, temporary));
    rmdir(temporary);
    assert_int_equal(read_it(&err), 0);
}

/* Who else may write in the folder can guess the temporary name. */
static void a_link_in_the_folder_is_not_followed(void **state)
{
    char precious[160];
    struct mu_ckid id;
    struct stat st;
    int fd;

    snprintf(precious, sizeof precious, "%s/precious", folder);
    fd = open(precious, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_int_equal(write(fd, "12345", 5), 5);
    close(fd);
    assert_int_equal(symlink(precious, temporary), 0);
    assert_int_equal(mu_ckfile_write(path, &meta, parts, PARTS, &id, NULL), 0);
    assert_int_equal(stat(precious, &st), 0);
    assert_int_equal(st.st_size, 5);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    unlink(precious);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc32c_has_the_published_values),
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(any_range_of_a_part_is_read),
        cmocka_unit_test(one_flipped_bit_anywhere_is_found),
        cmocka_unit_test(a_file_cut_anywhere_is_found),
        cmocka_unit_test(a_longer_file_is_found),
        cmocka_unit_test(a_file_of_something_else_is_foreign),
        cmocka_unit_test(a_write_that_fails_leaves_the_old_file),
        cmocka_unit_test(a_link_in_the_folder_is_not_followed),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
