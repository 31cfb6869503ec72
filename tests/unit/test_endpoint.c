/* SPDX-License-Identifier: BSD-3-Clause */
/* test_endpoint.c - who arrives at an endpoint, who is dropped, and what is reported */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/endpoint/endpoint.h"
#include "runtime/endpoint/net.h"
#include "tests/unit/patience.h"

static const uint8_t secret[MU_TOKEN_LEN] = "0123456789abcdef0123456789abcde";
static const uint8_t another[MU_TOKEN_LEN] = "another";
static const struct mu_claim claim = { MU_SERVICE_MESH, 7, 3 };

struct pair {
    struct mu_endpoint *ep, *caller;
    struct mu_log log;
    FILE *lines;
    char *text;
    size_t len;
};

static void print(void *arg, enum mu_log_level level, const char *text)
{
    fprintf(arg, "%s\n", text);
}

static void begin(struct pair *p)
{
    memset(p, 0, sizeof *p);
    p->lines = open_memstream(&p->text, &p->len);
    p->log = (struct mu_log){ .level = MU_LOG_WARN, .sink = print, .arg = p->lines };
    assert_int_equal(mu_endpoint_open(NULL, &p->ep, NULL), 0);
    assert_int_equal(mu_endpoint_open(NULL, &p->caller, NULL), 0);
    mu_endpoint_set_log(p->ep, &p->log, 10);
    mu_endpoint_set_secret(p->ep, MU_SERVICE_MESH, secret);
}

/* The lines that were printed; the caller frees them. */
static char *end(struct pair *p)
{
    mu_endpoint_close(p->ep);
    mu_endpoint_close(p->caller);
    fclose(p->lines);
    return p->text;
}

static int count(const char *text, const char *part)
{
    int n = 0;

    for (; (text = strstr(text, part)); text++)
        n++;
    return n;
}

static enum mu_answer call(const struct pair *p, bool tcp, const uint8_t *with, int *fd)
{
    struct mu_dial d;

    mu_dial_start(&d, mu_endpoint_address(p->caller), mu_endpoint_address(p->ep), tcp,
                  &claim, with);
    mu_dial_wait(&d, mu_clock_s() + PATIENCE);
    if (d.answer != MU_ANSWER_PROVED)
        mu_dial_stop(&d);
    *fd = d.fd;
    return d.answer;
}

static bool take(struct pair *p, struct mu_arrival *a)
{
    double until = mu_clock_s() + PATIENCE;
    struct pollfd bell;

    while (!mu_endpoint_take(p->ep, MU_SERVICE_MESH, 7, a)) {
        if (mu_clock_s() > until)
            return false;
        mu_endpoint_poll(p->ep, &bell, 1, until);
    }
    return true;
}

static void a_caller_is_proved_before_anybody_takes_it(void **state)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        struct mu_arrival a;
        char byte = 'x';
        struct pair p;
        int fd;

        begin(&p);
        assert_int_equal(call(&p, tcp, secret, &fd), MU_ANSWER_PROVED);
        assert_int_equal(send(fd, &byte, 1, 0), 1);
        assert_true(take(&p, &a));
        assert_int_equal(a.claim.rank, 3);
        assert_int_equal(a.pid, tcp ? 0 : getpid());
        assert_true(mu_net_receive(a.fd, &byte, 1, mu_clock_s() + PATIENCE));
        close(a.fd);
        close(fd);
        assert_string_equal(end(&p), "");
        free(p.text);
    }
}

static void a_caller_waits_until_its_service_has_a_secret(void **state)
{
    struct mu_arrival a;
    struct mu_dial d;
    struct pair p;

    memset(&p, 0, sizeof p);
    assert_int_equal(mu_endpoint_open(NULL, &p.ep, NULL), 0);
    mu_dial_start(&d, mu_endpoint_address(p.ep), mu_endpoint_address(p.ep), false,
                  &claim, secret);
    assert_int_equal(mu_dial_wait(&d, mu_clock_s() + 0.2), MU_ANSWER_NONE);
    mu_endpoint_set_secret(p.ep, MU_SERVICE_MESH, secret);
    assert_int_equal(mu_dial_wait(&d, mu_clock_s() + PATIENCE), MU_ANSWER_PROVED);
    assert_true(take(&p, &a));
    close(a.fd);
    close(d.fd);
    mu_endpoint_close(p.ep);
}

static void arrivals_of_another_generation_are_closed(void **state)
{
    struct mu_arrival a;
    struct pair p;
    char byte;
    int fd;

    begin(&p);
    assert_int_equal(call(&p, false, secret, &fd), MU_ANSWER_PROVED);
    assert_false(mu_endpoint_take(p.ep, MU_SERVICE_CONTROL, 7, &a));
    assert_false(mu_endpoint_take(p.ep, MU_SERVICE_MESH, 8, &a));
    assert_false(mu_net_receive(fd, &byte, 1, mu_clock_s() + PATIENCE));
    close(fd);
    free(end(&p));
}

static void a_retired_generation_has_no_arrivals_any_more(void **state)
{
    struct pair p;
    char byte;
    int fd;

    begin(&p);
    assert_int_equal(call(&p, false, secret, &fd), MU_ANSWER_PROVED);
    mu_endpoint_retire(p.ep, 7);
    assert_false(mu_net_receive(fd, &byte, 1, mu_clock_s() + 10 * PATIENCE));
    close(fd);
    assert_int_equal(call(&p, true, secret, &fd), MU_ANSWER_DROPPED);
    assert_string_equal(end(&p), "");
    free(p.text);
}

static void a_wrong_secret_is_dropped_and_reported(void **state)
{
    struct mu_arrival a;
    struct pair p;
    int fd;

    begin(&p);
    assert_int_equal(call(&p, true, another, &fd), MU_ANSWER_DROPPED);
    assert_false(mu_endpoint_take(p.ep, MU_SERVICE_MESH, 7, &a));
    end(&p);
    assert_non_null(strstr(p.text, "connection from "));
    assert_non_null(strstr(p.text, "dropped: its proof of this job's token is wrong"));
    free(p.text);
}

/* No process has the name, or the port; or one listens, and is silent. */
static void a_caller_learns_why_it_got_no_answer(void **state)
{
    struct mu_address at;
    struct mu_dial d;
    struct pair p;
    int fd;

    begin(&p);
    at = *mu_endpoint_address(p.ep);
    at.id[0] ^= 1; /* another AF_UNIX name */
    mu_dial_start(&d, &at, &at, false, &claim, secret);
    assert_int_equal(mu_dial_wait(&d, mu_clock_s() + PATIENCE), MU_ANSWER_REFUSED);
    free(end(&p));
    strcpy(at.hosts, "");
    mu_dial_start(&d, &at, &at, true, &claim, secret);
    assert_int_equal(mu_dial_wait(&d, mu_clock_s() + PATIENCE), MU_ANSWER_REFUSED);
    assert_int_equal(mu_net_listen(&fd, &at.port, NULL), 0);
    mu_dial_start(&d, &at, &at, true, &claim, secret); /* it listens and is silent */
    assert_int_equal(mu_dial_wait(&d, mu_clock_s() + 0.2), MU_ANSWER_NONE);
    assert_true(d.connected);
    mu_dial_stop(&d);
    close(fd);
}

static void a_rank_elsewhere_is_never_called_at_this_hosts_own_addresses(void **state)
{
    struct mu_address at;
    struct mu_dial d;
    struct pair p;

    begin(&p);
    at = *mu_endpoint_address(p.ep);
    strcpy(at.machine, "another machine");
    mu_dial_start(&d, mu_endpoint_address(p.caller), &at, false, &claim, secret);
    assert_int_equal(d.n, 0);
    assert_int_equal(mu_dial_step(&d), MU_ANSWER_SILENT);
    assert_string_equal(end(&p), "");
    free(p.text);
}

/* ---- Strangers ------------------------------------------------------------------ */

static int call_silently(const struct mu_address *to, bool tcp)
{
    struct sockaddr_in in = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)to->port) };
    struct sockaddr_un un;
    socklen_t len = tcp ? (socklen_t)sizeof in : mu_address_local(to, &un);
    int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, tcp ? (void *)&in : (void *)&un, len), 0);
    return fd;
}

/* Seconds until a rank is proved behind more silent callers than the table holds: the
 * oldest make room, the other table is not touched.
 */
static double call_behind_silent_callers(bool flooded, bool tcp)
{
    enum { SILENT = 300 };
    static int silent[SILENT];
    struct mu_arrival a;
    double began, took;
    struct pair p;
    int fd;

    begin(&p);
    for (int i = 0; i < SILENT; i++)
        silent[i] = call_silently(mu_endpoint_address(p.ep), flooded);
    began = mu_clock_s();
    assert_int_equal(call(&p, tcp, secret, &fd), MU_ANSWER_PROVED);
    took = mu_clock_s() - began;
    assert_true(take(&p, &a));
    close(a.fd);
    close(fd);
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    end(&p);
    assert_true(count(p.text, "\n") <= 10);
    assert_int_equal(count(p.text, "further ones are not reported"),
                     count(p.text, "\n") == 10);
    free(p.text);
    return took;
}

/* The least of several: what else runs on this machine only adds. */
static void silent_callers_keep_no_rank_out(void **state)
{
    for (int flooded = 0; flooded < 2; flooded++)
        for (int tcp = 0; tcp < 2; tcp++) {
            double least = 60;

            for (int i = 0; i < 20 && least >= 0.2 * PATIENCE; i++) {
                double took = call_behind_silent_callers(flooded, tcp);

                if (took < least)
                    least = took;
            }
            assert_true(least < 0.2 * PATIENCE);
        }
}

static void be_nobody(const struct mu_address *to)
{
    char bytes[64];
    int fd;

    if (setgid(65534) < 0 || setuid(65534) < 0)
        _exit(1);
    fd = call_silently(to, false);
    _exit(recv(fd, bytes, sizeof bytes, 0) > 0);
}

static void another_users_local_caller_gets_not_even_a_nonce(void **state)
{
    struct pair p;
    pid_t pid;
    int raw;

    if (geteuid() != 0)
        skip();
    begin(&p);
    pid = fork();
    if (pid == 0)
        be_nobody(mu_endpoint_address(p.ep));
    assert_int_equal(waitpid(pid, &raw, 0), pid);
    assert_int_equal(raw, 0);
    end(&p);
    assert_non_null(strstr(p.text, "connection from user id 65534, pid "));
    assert_non_null(strstr(p.text, "dropped: it belongs to another user"));
    free(p.text);
}

static void a_forked_child_holds_no_connection(void **state)
{
    struct mu_arrival a;
    struct pair p;
    pid_t pid;
    char byte;
    int fd;

    begin(&p);
    assert_int_equal(call(&p, false, secret, &fd), MU_ANSWER_PROVED);
    pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    assert_true(take(&p, &a));
    close(a.fd);
    assert_false(mu_net_receive(fd, &byte, 1, mu_clock_s() + PATIENCE));
    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(fd);
    free(end(&p));
}

/* ---- Addresses ------------------------------------------------------------------ */

static void the_interfaces_that_the_plugin_avoids_are_published_last(void **state)
{
    char hosts[MU_ADDRESS_HOSTS];

    if (geteuid() != 0 || unshare(CLONE_NEWNET) < 0 ||
        system("ip link add tmfifo_net0 type bridge 2>/dev/null && "
               "ip addr add 10.99.3.1/24 dev tmfifo_net0 && "
               "ip link set tmfifo_net0 up && ip link add wg0 type bridge && "
               "ip addr add 10.99.4.1/24 dev wg0 && ip link set wg0 up && "
               "ip link add muster0 type bridge && "
               "ip addr add 10.99.5.1/24 dev muster0 && ip link set muster0 up") != 0)
        skip();
    mu_address_hosts(NULL, hosts, sizeof hosts);
    assert_string_equal(hosts, "10.99.5.1,10.99.4.1");
}

static void the_address_of_a_bridge_is_published_only_without_any_other(void **state)
{
    char before[MU_ADDRESS_HOSTS], after[MU_ADDRESS_HOSTS];

    if (geteuid() != 0 || unshare(CLONE_NEWNET) < 0 ||
        system("ip link add docker0 type bridge 2>/dev/null && "
               "ip addr add 10.99.1.1/24 dev docker0 && ip link set docker0 up && "
               "ip link set lo up") != 0)
        skip();
    mu_address_hosts(NULL, before, sizeof before);
    assert_int_equal(system("ip link add muster0 type bridge && "
                            "ip addr add 10.99.2.1/24 dev muster0 && "
                            "ip link set muster0 up"),
                     0);
    mu_address_hosts(NULL, after, sizeof after);
    assert_non_null(strstr(before, "10.99.1.1"));
    assert_null(strstr(after, "10.99.1.1"));
    assert_non_null(strstr(after, "10.99.2.1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_caller_is_proved_before_anybody_takes_it),
        cmocka_unit_test(a_caller_waits_until_its_service_has_a_secret),
        cmocka_unit_test(arrivals_of_another_generation_are_closed),
        cmocka_unit_test(a_retired_generation_has_no_arrivals_any_more),
        cmocka_unit_test(a_wrong_secret_is_dropped_and_reported),
        cmocka_unit_test(a_caller_learns_why_it_got_no_answer),
        cmocka_unit_test(a_rank_elsewhere_is_never_called_at_this_hosts_own_addresses),
        cmocka_unit_test(silent_callers_keep_no_rank_out),
        cmocka_unit_test(another_users_local_caller_gets_not_even_a_nonce),
        cmocka_unit_test(a_forked_child_holds_no_connection),
        /* last: they leave this network */
        cmocka_unit_test(the_interfaces_that_the_plugin_avoids_are_published_last),
        cmocka_unit_test(the_address_of_a_bridge_is_published_only_without_any_other),
    };

    return cmocka_run_group_tests_name("endpoint", tests, NULL, NULL);
}
