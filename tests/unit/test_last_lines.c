/* SPDX-License-Identifier: BSD-3-Clause */
/* test_last_lines.c - what ranks have printed before the job fails is not lost, and
 * streams that cannot be written do not keep the job from its end
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "tests/unit/forked.h"
#include "tests/unit/patience.h"
#include "tests/unit/text_file.h"

#define RANKS 4
#define LINES 60
#define SLOW_RANK 1 /* it decides after the death of rank 0 */

enum deed { ABORT, REPORT, OTHER_CALL, KILL, STAY_AWAY };
enum sink { FILE_SINK, PIPE_SINK, LOG_SINK, SLOW_LOG, FULL_PIPE, LOCKED, FULL_STDERR };

struct scene {
    const char *name;
    enum deed deed;
    bool computing; /* the other ranks are in no call of the library */
    /* stdout of every rank. LOG_SINK: a file that it has opened; SLOW_LOG: the same,
     * and that of SLOW_RANK takes a while.
     */
    enum sink sink;
    int rank, status;
    bool returns; /* on_failure=return */
    double within;
};

struct run {
    const struct scene *scene;
    double *done_at; /* shared */
    int sink[RANKS]; /* what becomes stdout */
};

static void *hold_stdout(void *arg)
{
    flockfile(stdout);
    *(volatile bool *)arg = true;
    for (;;)
        pause();
    return NULL;
}

static ssize_t write_slowly(void *cookie, const char *text, size_t len)
{
    mu_pause(0.2);
    return write(*(const int *)cookie, text, len);
}

static FILE *open_log(const struct run *run, int rank)
{
    static const cookie_io_functions_t slow = { .write = write_slowly };

    if (run->scene->sink == SLOW_LOG && rank == SLOW_RANK)
        return fopencookie((void *)&run->sink[rank], "w", slow);
    return fdopen(dup(run->sink[rank]), "w");
}

static void print_lines(const struct run *run, int rank)
{
    static volatile bool held;
    FILE *to = stdout;
    pthread_t thread;

    if (run->scene->sink == LOG_SINK || run->scene->sink == SLOW_LOG)
        to = open_log(run, rank);
    dup2(run->sink[rank], run->scene->sink == FULL_STDERR ? 2 : 1);
    if (run->scene->sink == FULL_STDERR)
        setvbuf(stderr, NULL, _IONBF, 0);
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    for (int i = 0; i < LINES && run->scene->sink != FULL_STDERR; i++)
        fprintf(to, "rank %d line %d\n", rank, i);
    if (run->scene->sink == LOCKED) {
        assert_int_equal(pthread_create(&thread, NULL, hold_stdout, (void *)&held), 0);
        while (!held)
            usleep(1000);
    }
}

static void act(struct muster *m, const struct run *run)
{
    float x[3] = { 0 };

    *run->done_at = mu_clock_s();
    switch (run->scene->deed) {
    case ABORT:
        muster_abort(m, 42, "the loss is not a number");
    case REPORT:
        muster_extend(m, -1);
        exit(muster_report(m));
    case OTHER_CALL:
        muster_allreduce(m, x, 3, MUSTER_F32, MUSTER_SUM, NULL);
        break;
    case KILL:
        kill(getpid(), SIGKILL);
        break;
    case STAY_AWAY:
        sleep(60);
        break;
    }
}

static int body(struct muster *m, int rank, void *arg)
{
    const struct run *run = arg;
    float x = 0;

    if (!m)
        return 96;
    print_lines(run, rank);
    RANK_OK(muster_barrier(m));
    if (rank == run->scene->rank)
        act(m, run);
    else if (run->scene->computing)
        sleep(60);
    if (muster_allreduce(m, &x, 1, MUSTER_F32, MUSTER_SUM, NULL) != MUSTER_OK)
        exit(muster_report(m));
    return 97;
}

/* ---- What is left ---- */

static int open_sink(enum sink sink, int *reader)
{
    static const char fill[1 << 16];
    int end[2];

    *reader = -1;
    if (sink == FILE_SINK || sink == LOG_SINK || sink == SLOW_LOG || sink == LOCKED) {
        *reader = text_file();
        return dup(*reader);
    }
    assert_int_equal(pipe2(end, O_CLOEXEC), 0);
    *reader = end[0];
    if (sink != PIPE_SINK) {
        fcntl(end[1], F_SETFL, O_NONBLOCK);
        while (write(end[1], fill, sizeof fill) > 0)
            ;
        fcntl(end[1], F_SETFL, 0);
    }
    return end[1];
}

static int count_lines(int fd, enum sink sink)
{
    char text[1 << 16];
    ssize_t len;
    int n = 0;

    if (sink == PIPE_SINK)
        len = read(fd, text, sizeof text);
    else
        len = pread(fd, text, sizeof text, 0);
    for (ssize_t i = 0; i < len; i++)
        n += text[i] == '\n';
    return n;
}

/* Seconds from the deed to the end of the last rank. */
static double seconds_to_end(const struct forked_result *r, double since)
{
    double last = 0;

    for (int k = 0; k < RANKS; k++)
        if (r->seconds[k] > last)
            last = r->seconds[k];
    return last - since;
}

static void check(const struct scene *s, const struct forked_result *r, int rank,
                  int lines, double since)
{
    bool own = rank == s->rank, counts = s->sink <= SLOW_LOG;

    if (counts && !(own && s->deed == KILL) && lines != LINES)
        fail_msg("%s: %d of %d lines of rank %d (status %d)\n%s", s->name, lines, LINES,
                 rank, r->status[rank], r->text);
    if (!(own && s->deed == KILL) && r->status[rank] != 128 + SIGKILL &&
        (s->status ? r->status[rank] != s->status : r->status[rank] == 0))
        fail_msg("%s: rank %d ended with %d\n%s", s->name, rank, r->status[rank],
                 r->text);
    if (r->seconds[rank] - since > s->within * PATIENCE)
        fail_msg("%s: rank %d ended after %.2f s, not %.2f\n%s", s->name, rank,
                 r->seconds[rank] - since, s->within, r->text);
}

static double play(const struct scene *s, double *done_at)
{
    struct forked_world w = { .size = RANKS, .nodes = 2, .return_failure = s->returns };
    struct run run = { .scene = s, .done_at = done_at };
    struct forked_result r;
    int reader[RANKS], spoken = 0;
    double start = mu_clock_s(), took;

    for (int k = 0; k < RANKS; k++)
        run.sink[k] = open_sink(s->sink, &reader[k]);
    if (s->deed == STAY_AWAY || s->deed == OTHER_CALL)
        w.timeout = 1.5;
    forked_run(&w, body, &run, 30, &r);
    for (int k = 0; k < RANKS; k++) {
        close(run.sink[k]);
        check(s, &r, k, count_lines(reader[k], s->sink), *done_at - start);
        spoken += r.status[k] == s->status;
        close(reader[k]);
    }
    if (s->status && !spoken)
        fail_msg("%s: no rank ended with %d\n%s", s->name, s->status, r.text);
    took = seconds_to_end(&r, *done_at - start);
    forked_clear(&r);
    return took;
}

static void play_all(const struct scene *scene, size_t n)
{
    double *done_at = forked_shared(sizeof *done_at);

    for (size_t i = 0; i < n; i++)
        play(&scene[i], done_at);
}

static void every_rank_keeps_what_it_has_printed(void **state)
{
    static const struct scene scenes[] = {
        { "muster_abort, others wait in a collective", ABORT, false, FILE_SINK, 2, 42,
          false, 2.5 },
        { "muster_abort, others compute", ABORT, true, FILE_SINK, 2, 42, false, 2.5 },
        { "muster_abort of rank 0, others compute", ABORT, true, FILE_SINK, 0, 42,
          false, 2.5 },
        { "muster_abort, stdout is a pipe", ABORT, true, PIPE_SINK, 1, 42, false, 2.5 },
        { "muster_abort, a file of the program", ABORT, false, LOG_SINK, 2, 42, false,
          2.5 },
        { "a rank is killed, others wait, a file of the program", KILL, false, LOG_SINK,
          3, MUSTER_EPEER, false, 3 },
        { "a rank is killed, others compute, a file of the program", KILL, true,
          LOG_SINK, 0, MUSTER_EPEER, false, 4 },
        { "a rank is killed, others compute, a slow file of the program", KILL, true,
          SLOW_LOG, 0, MUSTER_EPEER, false, 4 },
        { "the same, and another rank decides", KILL, true, SLOW_LOG, 3, MUSTER_EPEER,
          false, 3 },
        { "a rank computes past the deadline, a file of the program", STAY_AWAY, false,
          LOG_SINK, 3, MUSTER_ETIMEOUT, false, 6 },
        { "muster_abort, on_failure=return", ABORT, false, FILE_SINK, 1, 0, true, 2.5 },
        { "exit(muster_report)", REPORT, false, FILE_SINK, 1, MUSTER_EUSAGE, false,
          2.5 },
        { "exit(muster_report) of rank 0, others compute", REPORT, true, FILE_SINK, 0,
          MUSTER_EUSAGE, false, 2.5 },
        { "exit(muster_report), a file of the program", REPORT, false, LOG_SINK, 1,
          MUSTER_EUSAGE, false, 2.5 },
        { "exit(muster_report), others compute, a file of the program", REPORT, true,
          LOG_SINK, 0, MUSTER_EUSAGE, false, 2.5 },
        { "a failing collective", OTHER_CALL, false, FILE_SINK, 3, 0, false, 5 },
        { "a failing collective, a file of the program", OTHER_CALL, false, LOG_SINK, 3,
          0, false, 5 },
        { "a rank is killed, others wait", KILL, false, FILE_SINK, 3, MUSTER_EPEER,
          false, 3 },
        { "a rank is killed, others compute", KILL, true, FILE_SINK, 1, MUSTER_EPEER,
          false, 3 },
        { "a rank with a child is killed, others compute", KILL, true, FILE_SINK, 2,
          MUSTER_EPEER, false, 3 },
        { "rank 0 is killed, others compute", KILL, true, FILE_SINK, 0, MUSTER_EPEER,
          false, 4 },
        { "a rank computes past the deadline", STAY_AWAY, false, FILE_SINK, 3,
          MUSTER_ETIMEOUT, false, 6 },
    };

    play_all(scenes, sizeof scenes / sizeof scenes[0]);
}

/* ---- Processes that go on ---- */

struct going {
    int status;          /* of the call that fails */
    int out, log[RANKS]; /* files: stdout of all, the one that each rank has opened */
    _Atomic int printed; /* ranks that have */
};

static off_t bytes_of(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    return st.st_size;
}

/* An elastic world goes on after its first step. */
static void take_a_step(struct muster *m)
{
    static float weight;
    const struct muster_param param = {
        .name = "a", .count = 1, .dtype = MUSTER_F32, .data = &weight
    };
    struct muster_ddp *ddp;

    RANK_OK(muster_ddp_create(m, &param, 1, NULL, &ddp));
    RANK_OK(muster_ddp_grad_ready(ddp, 0, NULL));
    RANK_OK(muster_ddp_sync(ddp, NULL));
    muster_ddp_destroy(ddp);
}

/* Rank 3 dies. The others find stdout written, and their file as they have left it. */
static int goes_on(struct muster *m, int rank, void *arg)
{
    struct going *going = arg;
    FILE *log = fdopen(dup(going->log[rank]), "w");
    float x = 0;

    if (!m || !log)
        return 96;
    take_a_step(m);
    dup2(going->out, 1);
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    setvbuf(log, NULL, _IOFBF, 1 << 16);
    for (int i = 0; i < LINES; i++) {
        fprintf(log, "rank %d line %d\n", rank, i);
        printf("rank %d line %d\n", rank, i);
    }
    going->printed++;
    while (rank == 3 && going->printed < RANKS)
        mu_pause(0.001);
    if (rank == 3)
        kill(getpid(), SIGKILL);
    RANK_CHECK(muster_allreduce(m, &x, 1, MUSTER_F32, MUSTER_SUM, NULL) ==
               going->status);
    RANK_CHECK(__fpending(stdout) == 0);
    RANK_CHECK(muster_report(m) == going->status);
    RANK_CHECK(bytes_of(going->log[rank]) == 0);
    fputs("the last line\n", log);
    if (going->status == MUSTER_ESHRUNK)
        return muster_finalize(m);
    return 0;
}

static void check_files(const char *what, const struct forked_world *w, int status)
{
    struct going *going = forked_shared(sizeof *going);
    struct forked_result r;

    going->status = status;
    going->out = text_file();
    for (int k = 0; k < RANKS; k++)
        going->log[k] = text_file();
    forked_run(w, goes_on, going, 30, &r);
    for (int k = 0; k < RANKS; k++) {
        int lines = count_lines(going->log[k], FILE_SINK);

        if (r.status[k] != (k == 3 ? 128 + SIGKILL : 0) ||
            lines != (k == 3 ? 0 : LINES + 1))
            fail_msg("%s: rank %d ended with %d, its file has %d lines\n%s", what, k,
                     r.status[k], lines, r.text);
        close(going->log[k]);
    }
    if (count_lines(going->out, FILE_SINK) != (RANKS - 1) * LINES)
        fail_msg("%s: stdout has %d lines\n%s", what,
                 count_lines(going->out, FILE_SINK), r.text);
    close(going->out);
    forked_clear(&r);
}

static void a_process_that_goes_on_writes_its_own_files(void **state)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        const struct forked_world returns = {
            .size = RANKS, .nodes = 2, .force_tcp = tcp, .return_failure = true
        };
        const struct forked_world elastic = {
            .size = RANKS, .nodes = 2, .force_tcp = tcp, .elastic = 2
        };

        check_files("on_failure=return", &returns, MUSTER_EPEER);
        check_files("elastic", &elastic, MUSTER_ESHRUNK);
    }
}

/* No rank can be given time to write before the ranks are connected. */
static void what_a_rank_prints_before_muster_init_is_written_there(void **state)
{
    int fd = text_file();
    pid_t pid = fork();
    char text[16] = "";

    if (pid == 0) {
        const struct muster_options single = { .single = 1 };
        struct muster *m;

        dup2(fd, 1);
        setvbuf(stdout, NULL, _IOFBF, 1 << 16);
        printf("before\n");
        muster_init(&m, &single);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(pread(fd, text, sizeof text - 1, 0), 7);
    assert_string_equal(text, "before\n");
    close(fd);
}

/* The least of several: what else runs on this machine only adds. Rank 0 is the root,
 * rank 2 the parent of rank 3.
 */
static void a_death_ends_the_job_when_the_logs_are_written(void **state)
{
    double *done_at = forked_shared(sizeof *done_at);

    for (int rank = 0; rank < RANKS; rank++) {
        const struct scene s = { "a rank is killed", KILL,  true, FILE_SINK, rank,
                                 MUSTER_EPEER,       false, 4 };
        double least = 60;

        for (int i = 0; i < 60 && least >= 0.08; i++) {
            double took = play(&s, done_at);

            if (took < least)
                least = took;
        }
        if (least >= 0.08)
            fail_msg("rank %d is killed: the job ends after %.3f s", rank, least);
    }
}

static void a_stream_that_cannot_be_written_does_not_delay_the_end(void **state)
{
    static const struct scene scenes[] = {
        { "stdout is locked, muster_abort", ABORT, false, LOCKED, 2, 42, false, 3 },
        { "stdout is locked, others compute", ABORT, true, LOCKED, 0, 42, false, 3 },
        { "stdout is locked, a rank is killed", KILL, false, LOCKED, 1, MUSTER_EPEER,
          false, 3 },
        { "nobody reads stdout, muster_abort", ABORT, false, FULL_PIPE, 2, 42, false,
          4 },
        { "nobody reads stdout, others compute", ABORT, true, FULL_PIPE, 0, 42, false,
          4 },
        { "nobody reads stdout, exit(muster_report)", REPORT, true, FULL_PIPE, 2,
          MUSTER_EUSAGE, false, 5 },
        { "nobody reads stdout, a rank is killed", KILL, true, FULL_PIPE, 1,
          MUSTER_EPEER, false, 4 },
        { "nobody reads stderr, muster_abort", ABORT, true, FULL_STDERR, 2, 42, false,
          4 },
        { "nobody reads stderr, exit(muster_report)", REPORT, false, FULL_STDERR, 1,
          MUSTER_EUSAGE, false, 5 },
    };

    play_all(scenes, sizeof scenes / sizeof scenes[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_keeps_what_it_has_printed),
        cmocka_unit_test(a_process_that_goes_on_writes_its_own_files),
        cmocka_unit_test(what_a_rank_prints_before_muster_init_is_written_there),
        cmocka_unit_test(a_death_ends_the_job_when_the_logs_are_written),
        cmocka_unit_test(a_stream_that_cannot_be_written_does_not_delay_the_end),
    };

    return cmocka_run_group_tests_name("last lines", tests, NULL, NULL);
}
