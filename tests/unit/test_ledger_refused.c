/* SPDX-License-Identifier: BSD-3-Clause */
/* test_ledger_refused.c - ledger files of other owners: a damaged one is refused with a
 * sentence, and none can harm the one that reads it
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
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/printed.h"
#include "tests/unit/two_ledgers.h"

static void truncate_to_the_head(struct image *m)
{
    m->head.records = 2 * RECORDS;
}

static void other_format(struct image *m)
{
    memcpy(m->head.magic, "muster-ledger-9", 16);
}

static void other_order(struct image *m)
{
    m->head.order = 0x04030201;
}

static void no_power(struct image *m)
{
    m->head.records = 65;
}

static void foreign(struct image *m)
{
    memcpy(m, "#!/bin/sh", 9);
}

static void endless_name(struct image *m)
{
    memset(m->call[1].algo, 'x', sizeof m->call[5].algo);
}

static void foreign_comm(struct image *m)
{
    m->call[1].comm = MU_LEDGER_COMMS;
}

static void negative_size(struct image *m)
{
    m->comm[3].size = -5;
}

static void huge_rank(struct image *m)
{
    m->comm[0].rank = INT32_MAX;
}

static void a_bad_file_is_one_sentence_and_the_rest_is_shown(void **state)
{
    static const struct {
        const char *name, *sentence;
        void (*spoil)(struct image *);
    } cases[] = {
        { "truncated", "the file is truncated: 41216 of 49408 bytes are there",
          truncate_to_the_head },
        { "another format", "this ledger has format 'muster-ledger-9'", other_format },
        { "byte order", "another byte order", other_order },
        { "records", "the head is damaged (65 records)", no_power },
        { "foreign", "this is no ledger file of Muster", foreign },
        { "a name", "a record is damaged", endless_name },
        { "a communicator", "a record is damaged", foreign_comm },
        { "a size", "communicator 3 is damaged (rank 0 of -5)", negative_size },
        { "a rank", "communicator 0 is damaged (rank 2147483647 of 2)", huge_rank },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char said[1024] = "", *text;
        struct mu_profile p;

        fill(1);
        cases[i].spoil(&image[1]);
        save(1, sizeof image[1]);
        assert_int_equal(load(&p, said, sizeof said), 0);
        has(said, path[1]);
        has(said, cases[i].sentence);
        assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
        assert_int_equal(p.faults, 1);
        assert_int_equal(p.nrecords, 2);
        text = printed(mu_profile_text, &p);
        has(text, "2 ranks on 1 node; 1 without a file, the first is rank 1");
        free(text);
        mu_profile_clear(&p);
    }
}

static void short_files_are_refused(void **state)
{
    static const size_t sizes[] = { 0, 1, 15, 16, 255, 256, sizeof image[1] - 1 };

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char said[1024] = "";
        struct mu_profile p;

        save(1, sizes[i]);
        assert_int_equal(load(&p, said, sizeof said), 0);
        assert_int_equal(p.faults, 1);
        has(said, path[1]);
        mu_profile_clear(&p);
    }
}

/* What the owner of rank 1's file does while another user's muster report has it: it
 * has other names in all places, then it ends.
 */
static void spoil_the_own_file(void)
{
    int fd = open(path[1], O_RDWR);
    bool ok = fd >= 0;

    memset(image[1].comm, 'x', sizeof image[1].comm);
    memset(image[1].call, 'x', sizeof image[1].call);
    ok = ok && pwrite(fd, &image[1], sizeof image[1], 0) == sizeof image[1] &&
         ftruncate(fd, 1) == 0;
    _exit(ok ? 0 : 1);
}

static void an_owner_cannot_change_what_is_being_read(void **state)
{
    char said[1024] = "", *before, *after;
    struct mu_profile p;
    int status;
    pid_t pid;

    chmod(folder, 0755);
    if (geteuid() == 0)
        assert_int_equal(chown(path[1], 65534, 65534), 0);
    load(&p, said, sizeof said);
    before = printed(mu_profile_text, &p);
    pid = fork();
    if (pid == 0) {
        if (geteuid() == 0 && setuid(65534) < 0)
            _exit(2);
        spoil_the_own_file();
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    after = printed(mu_profile_text, &p);
    assert_string_equal(before, after);
    has(after, "group");
    free(before);
    free(after);
    mu_profile_clear(&p);
}

/* Whoever could shorten the file would end the training by SIGBUS. */
static void only_the_owner_can_write_a_ledger(void **state)
{
    struct mu_ledger_out out = { 0 };
    mode_t before = umask(0);
    char name[160] = "";
    struct mu_err err = { 0 };
    struct dirent *entry;
    struct stat st;
    DIR *dir;

    unlink(path[0]);
    unlink(path[1]);
    if (mu_ledger_open(&out, folder, 64, false, &err) < 0)
        fail_msg("%s", err.text);
    umask(before);
    dir = opendir(folder);
    while ((entry = readdir(dir)))
        if (strstr(entry->d_name, MU_LEDGER_SUFFIX))
            snprintf(name, sizeof name, "%s/%.80s", folder, entry->d_name);
    closedir(dir);
    mu_ledger_close(&out);
    assert_int_equal(stat(name, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0644);
    unlink(name);
}

static void names_have_no_control_bytes(void **state)
{
    char said[1024] = "", *text;
    struct mu_profile p;

    strcpy(image[1].comm[0].name, "\033[2J\r\177");
    strcpy(image[0].comm[0].name, "\033[2J\r\177");
    strcpy(image[0].call[0].func, "\aAllReduce");
    save(0, sizeof image[0]);
    save(1, sizeof image[1]);
    load(&p, said, sizeof said);
    text = printed(mu_profile_text, &p);
    has(text, " ?[2J??:");
    has(text, " ?AllReduce ");
    free(text);
    mu_profile_clear(&p);
}

/* In a user's folder may be a link to a device that acts when root opens it. */
static void what_is_no_regular_file_is_not_opened(void **state)
{
    int watch = inotify_init1(IN_NONBLOCK);
    struct mu_profile p = { 0 };
    char said[1024] = "", event[512];

    save(1, sizeof image[1]);
    unlink(path[0]);
    assert_int_equal(mkfifo(path[0], 0666), 0);
    assert_true(inotify_add_watch(watch, path[0], IN_OPEN) >= 0);
    load(&p, said, sizeof said);
    has(said, "this is no regular file");
    assert_int_equal(read(watch, event, sizeof event), -1);
    close(watch);
    mu_profile_clear(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        TEST(a_bad_file_is_one_sentence_and_the_rest_is_shown),
        TEST(short_files_are_refused),
        TEST(an_owner_cannot_change_what_is_being_read),
        TEST(only_the_owner_can_write_a_ledger),
        TEST(what_is_no_regular_file_is_not_opened),
        TEST(names_have_no_control_bytes),
    };

    return cmocka_run_group_tests_name("ledger_refused", tests, NULL, NULL);
}
