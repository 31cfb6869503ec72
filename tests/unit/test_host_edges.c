/* SPDX-License-Identifier: BSD-3-Clause */
/* test_host_edges.c - the host backend as a guest in its process and on its machine:
 * descriptors, forked children, strangers at the door, processor time, memory
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "tests/unit/patience.h"
#include "tests/unit/ranks.h"

static const struct mu_backend_ops *const host = &mu_backend_host;

static void in_both_transports(ranks_body *body)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        struct ranks_world w = { .n = 3, .force_tcp = tcp };

        if (ranks_run(&w, body, NULL, NULL) != 0)
            fail_msg("%s", tcp ? "TCP" : "shared memory");
    }
}

static void sleep_ms(int ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

    nanosleep(&t, NULL);
}

static int reduce(struct mu_backend *b, float *p, size_t count, struct mu_err *err)
{
    struct mu_coll c = {
        .kind = MU_COLL_ALLREDUCE, .send = p, .recv = p, .count = count, .scale = 1
    };
    struct mu_request *rq;

    if (host->start(b, &c, &rq, err) < 0)
        return -1;
    return host->join(b, rq, NULL, err);
}

/* ---- descriptors ---- */

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

/* All ranks have come here for the n-th time. */
static void meet_at(struct ranks_self *self, int n)
{
    self->results[0]++;
    while (self->results[0] < n * self->size)
        sleep_ms(1);
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

/* ---- strangers ---- */

static _Atomic int dropped;

static void listen_for_drops(void *arg, enum mu_log_level level, const char *text)
{
    dropped += strstr(text, "dropped") != NULL;
}

static int tcp_to(int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
        abort();
    return fd;
}

static int unix_to(const struct mu_address *to)
{
    struct sockaddr_un a;
    socklen_t len = mu_address_local(to, &a);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&a, len) < 0)
        abort();
    return fd;
}

/* Knock as a stranger at rank 0. The silent ones stay open. */
static void knock(const struct ranks_self *self)
{
    static const char noise[200] = "GET / HTTP/1.1\r\n\r\n";
    const struct mu_address *at = &self->env.address[0];
    int fd, status;
    pid_t pid;

    if (self->env.force_tcp) {
        fd = tcp_to((int)at->port);
        tcp_to((int)at->port); /* says nothing */
        if (write(fd, noise, sizeof noise) != sizeof noise)
            abort();
        close(tcp_to((int)at->port));
        return;
    }
    fd = unix_to(at);
    unix_to(at); /* says nothing */
    if (write(fd, noise, sizeof noise) != sizeof noise)
        abort();
    pid = fork();
    if (pid == 0) {
        /* Another user, whom the endpoint does not even greet. */
        if (geteuid() == 0 && setuid(65534) == 0)
            fd = unix_to(at);
        if (write(fd, noise, 16) < 0) {
            /* It is refused by then. */
        }
        _exit(0);
    }
    waitpid(pid, &status, 0);
}

static int strangers(struct ranks_self *self, void *arg)
{
    struct mu_log log = { MU_LOG_WARN, listen_for_drops, NULL };
    struct mu_err err = { 0 };
    struct mu_backend *b;
    float x = 1;

    mu_endpoint_set_log(self->env.endpoint, &log, 10);
    meet_at(self, 1);
    if (self->rank == 1)
        knock(self);
    RANKS_CHECK(self, host->open(&self->env, &b, &err) == 0, "%s", err.text);
    for (int i = 0; i < 500 && self->rank == 0 && dropped < 2; i++)
        sleep_ms(10);
    RANKS_CHECK(self, self->rank != 0 || dropped >= 2, "%d connections dropped",
                dropped);
    RANKS_CHECK(self, reduce(b, &x, 1, &err) == 0 && x == 3, "%g %s", x, err.text);
    host->close(b);
    mu_endpoint_set_log(self->env.endpoint, NULL, 0);
    return 0;
}

static void strangers_are_dropped_and_the_job_goes_on(void **state)
{
    in_both_transports(strangers);
}

/* A rank with another token is a stranger too: it ends with an error, no hang. */
static int wrong_token(struct ranks_self *self, void *arg)
{
    struct mu_err err = { 0 };
    struct mu_backend *b;

    self->env.init_timeout = 1;
    if (self->rank == 1)
        self->env.token[31] ^= 1;
    for (int s = MU_SERVICE_CONTROL; s < MU_NSERVICES; s++)
        mu_endpoint_set_secret(self->env.endpoint, (enum mu_service)s, self->env.token);
    RANKS_CHECK(self, host->open(&self->env, &b, &err) < 0, "let in");
    RANKS_CHECK(self, err.code == MUSTER_ERENDEZVOUS && strstr(err.text, "rank"), "%s",
                err.text);
    return 0;
}

static void a_rank_without_the_token_is_not_let_in(void **state)
{
    in_both_transports(wrong_token);
}

/* ---- a rank that stops while descriptors change hands ---- */

static void await_stop(pid_t pid)
{
    char name[64], state = '?';

    snprintf(name, sizeof name, "/proc/%d/stat", (int)pid);
    while (state != 'T') {
        FILE *f = fopen(name, "r");

        if (!f || fscanf(f, "%*d %*s %c", &state) != 1)
            abort();
        fclose(f);
    }
}

/* Its sockets listen and the kernel takes connections for it, but it gives nothing. */
static int stops(struct ranks_self *self, void *arg)
{
    struct mu_err err = { 0 };
    struct mu_backend *b;
    int rc, stopping = *(int *)arg;
    char name[32];
    double start, took;

    snprintf(name, sizeof name, "rank %d ", stopping);
    self->env.init_timeout = 0.5;
    start = mu_clock_s();
    if (self->rank == stopping)
        raise(SIGSTOP);
    else
        await_stop(self->pids[stopping]);
    rc = host->open(&self->env, &b, &err);
    took = mu_clock_s() - start;
    if (self->rank == stopping) {
        RANKS_CHECK(self, rc < 0, "opened long after the deadline");
        return 0;
    }
    self->results[0]++;
    while (self->results[0] < self->size - 1)
        sleep_ms(1);
    /* Once: a second one could undo the stop by which a leak checker looks at a rank.
     */
    if (self->rank == (stopping == 0))
        kill(self->pids[stopping], SIGCONT);
    RANKS_CHECK(self, rc < 0 && took < 2 * PATIENCE, "%d after %g s", rc, took);
    RANKS_CHECK(self, err.code == MUSTER_ERENDEZVOUS, "code %d: %s", err.code,
                err.text);
    if (strstr(err.text, name))
        self->results[1]++;
    while (self->results[1] == 0 && mu_clock_s() - start < 5)
        sleep_ms(1);
    RANKS_CHECK(self, self->results[1] > 0, "nobody names rank %d: %s", stopping,
                err.text);
    return 0;
}

static void row_17_who_waits_for_descriptors_does_not_wait_for_ever(void **state)
{
    for (int tcp = 0; tcp < 2; tcp++)
        for (int who = 0; who < 3; who++) {
            struct ranks_world w = { .n = 3, .force_tcp = tcp };

            if (ranks_run(&w, stops, &who, NULL) != 0)
                fail_msg("%s: rank %d stops", tcp ? "TCP" : "shared memory", who);
        }
}

/* ---- idle ---- */

static double cpu_seconds(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* A sanitizer's own threads and shadow memory would be measured too. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEASURED false
#else
#define MEASURED true
#endif

static int idles(struct ranks_self *self, void *arg)
{
    struct mu_err err = { 0 };
    struct mu_backend *b;
    double before, idle, waiting;
    float x = 1;

    RANKS_CHECK(self, host->open(&self->env, &b, &err) == 0, "%s", err.text);
    RANKS_CHECK(self, reduce(b, &x, 1, &err) == 0, "%s", err.text);
    sleep_ms(100);
    before = cpu_seconds();
    sleep_ms(2000);
    idle = (cpu_seconds() - before) / 2;
    /* Rank 0 comes 2 s late: the others wait in join. */
    before = cpu_seconds();
    if (self->rank == 0)
        sleep_ms(2000);
    RANKS_CHECK(self, reduce(b, &x, 1, &err) == 0, "%s", err.text);
    waiting = (cpu_seconds() - before) / 2;
    RANKS_CHECK(self, idle < 0.001, "%.3f %% of a processor while idle", 100 * idle);
    RANKS_CHECK(self, waiting < 0.001, "%.3f %% of a processor in a wait",
                100 * waiting);
    if (self->rank == 1)
        printf("# %s: %.4f %% of a processor idle, %.4f %% waiting\n",
               host->transport(b), 100 * idle, 100 * waiting);
    host->close(b);
    return 0;
}

static void idle_and_waiting_ranks_sleep(void **state)
{
    if (!MEASURED)
        skip();
    in_both_transports(idles);
}

/* ---- memory ---- */

static long pages_of(const char *field)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long kib = -1;

    while (fgets(line, sizeof line, f))
        if (strncmp(line, field, strlen(field)) == 0)
            kib = atol(line + strlen(field));
    fclose(f);
    return kib;
}

/* What this rank holds beside the arena: its own private pages, and its share of the
 * segment (all ranks' slots are mapped, each rank's are its own).
 */
static int memory(struct ranks_self *self, void *arg)
{
    struct mu_err err = { 0 };
    struct mu_backend *b;
    size_t count = 4u << 20;
    long private, shared;
    float *p = malloc(count * 4);

    for (size_t i = 0; i < count; i++)
        p[i] = 1;
    private = pages_of("RssAnon:");
    shared = pages_of("RssShmem:");
    RANKS_CHECK(self, host->open(&self->env, &b, &err) == 0, "%s", err.text);
    RANKS_CHECK(self, reduce(b, p, count, &err) == 0, "%s", err.text);
    private = pages_of("RssAnon:") - private;
    shared = (pages_of("RssShmem:") - shared) / self->size;
    RANKS_CHECK(self, private + shared <= 8192, "%ld KiB private, %ld KiB shared",
                private, shared);
    RANKS_CHECK(self, private + shared > 500, "%ld KiB private, %ld KiB shared?",
                private, shared);
    host->close(b);
    free(p);
    return 0;
}

static void at_most_8_mib_beside_the_arena(void **state)
{
    if (!MEASURED)
        skip();
    in_both_transports(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_close_on_exec_and_none_is_left),
        cmocka_unit_test(forked_children_are_harmless),
        cmocka_unit_test(strangers_are_dropped_and_the_job_goes_on),
        cmocka_unit_test(a_rank_without_the_token_is_not_let_in),
        cmocka_unit_test(row_17_who_waits_for_descriptors_does_not_wait_for_ever),
        cmocka_unit_test(idle_and_waiting_ranks_sleep),
        cmocka_unit_test(at_most_8_mib_beside_the_arena),
    };

    remember_descriptors();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
