/* SPDX-License-Identifier: BSD-3-Clause */
/* test_plugin_faults.c - muster.so where memory, files, pipes and processes run out:
 * each such call of the plugin fails in turn. The functions below stand before the C
 * library's and fail for callers in muster.so alone: what hwloc or the C library do
 * without memory is not the plugin's.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/unit/plugin_host.h"

#if defined(__SANITIZE_ADDRESS__)
#define OWN_MALLOC 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OWN_MALLOC 1
#endif
#endif

enum kind { MEMORY, FILES, PROCESSES, KINDS };
static const char *const kinds[] = { "memory", "files", "processes" };

static struct {
    uintptr_t begin, end; /* of muster.so */
    enum kind kind;
    int calls, fail_at;
    bool armed;
} fault;

/* Is it the call that fails? `from` is where it returns to. */
static bool hit(enum kind kind, const void *from)
{
    uintptr_t at = (uintptr_t)from;

    return fault.armed && kind == fault.kind && at >= fault.begin && at < fault.end &&
           ++fault.calls == fault.fail_at;
}
#define FAIL(kind, code, value)                                                        \
    if (hit(kind, __builtin_return_address(0))) {                                      \
        errno = code;                                                                  \
        return value;                                                                  \
    }
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#ifndef OWN_MALLOC
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

void *malloc(size_t n)
{
    FAIL(MEMORY, ENOMEM, NULL)
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    FAIL(MEMORY, ENOMEM, NULL)
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    FAIL(MEMORY, ENOMEM, NULL)
    return __libc_realloc(p, n);
}
#endif

char *strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy;

    FAIL(MEMORY, ENOMEM, NULL)
    copy = malloc(n);
    return copy ? memcpy(copy, s, n) : NULL;
}

char *strndup(const char *s, size_t max)
{
    size_t n = strnlen(s, max);
    char *copy;

    FAIL(MEMORY, ENOMEM, NULL)
    copy = calloc(1, n + 1);
    return copy ? memcpy(copy, s, n) : NULL;
}

FILE *open_memstream(char **text, size_t *len)
{
    FAIL(MEMORY, ENOMEM, NULL)
    return REAL(open_memstream)(text, len);
}

int open(const char *path, int flags, ...)
{
    va_list ap;
    int mode;

    FAIL(FILES, EMFILE, -1)
    va_start(ap, flags);
    mode = va_arg(ap, int);
    va_end(ap);
    return REAL(open)(path, flags, mode);
}

DIR *opendir(const char *path)
{
    FAIL(FILES, EMFILE, NULL)
    return REAL(opendir)(path);
}

int socket(int domain, int type, int protocol)
{
    FAIL(FILES, EMFILE, -1)
    return REAL(socket)(domain, type, protocol);
}

int pipe2(int fd[2], int flags)
{
    FAIL(PROCESSES, EMFILE, -1)
    return REAL(pipe2)(fd, flags);
}

int pipe(int fd[2])
{
    FAIL(PROCESSES, EMFILE, -1)
    return REAL(pipe)(fd);
}

pid_t fork(void)
{
    FAIL(PROCESSES, EAGAIN, -1)
    return REAL(fork)();
}

static int find_plugin(struct dl_phdr_info *info, size_t size, void *arg)
{
    if (!strstr(info->dlpi_name, "/muster.so"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];

        if (p->p_type == PT_LOAD && (p->p_flags & PF_X)) {
            fault.begin = info->dlpi_addr + p->p_vaddr;
            fault.end = fault.begin + p->p_memsz;
        }
    }
    return 1;
}

/* How a step ended: hooks that did not return 0, whether the task is as planned,
 * whether there was a message, and how many calls of this kind there were.
 */
struct end {
    int failed, calls;
    int plan, message; /* no padding, which a pipe would carry */
};

static struct end run_step(enum kind kind, int at, const char *option)
{
    static const char *const names[] = { "slurm_spank_init", "slurm_spank_user_init",
                                         "slurm_spank_task_init",
                                         "slurm_spank_task_exit", "slurm_spank_exit" };
    struct end end = { 0 };
    char conf[4200], *av[] = { conf };
    void *so = load();
    int n = write_conf(conf, sizeof conf, RECORDED);

    assert_int_equal(dl_iterate_phdr(find_plugin, NULL), 1);
    said[0] = '\0';
    fault.kind = kind;
    fault.fail_at = at;
    fault.calls = 0;
    for (int i = 0; i < 5; i++) {
        hook *call = (hook *)dlsym(so, names[i]);

        if (i == 1)
            registered.cb(0, option, 1);
        fault.armed = true;
        end.failed += call(NULL, i ? 0 : n, i ? NULL : av) != 0;
        fault.armed = false;
    }
    unlink(conf + 5);
    end.calls = fault.calls;
    end.plan = plan_was_set;
    end.message = said[0] != 0;
    dlclose(so);
    return end;
}

/* In a child, as a step has a slurmstepd of its own. */
static int run_in_child(enum kind kind, int at, const char *option, struct end *end)
{
    int fd[2], status = 0;
    pid_t child;

    *end = (struct end){ 0 };
    assert_int_equal(pipe(fd), 0);
    child = fork();
    if (child == 0) {
        struct end mine;

        alarm(60);
        mine = run_step(kind, at, option);
        _exit(write(fd[1], &mine, sizeof mine) != sizeof mine);
    }
    close(fd[1]);
    if (read(fd[0], end, sizeof *end) < 0)
        end->calls = -1;
    close(fd[0]);
    waitpid(child, &status, 0);
    return status;
}

/* Whichever call fails: every hook returns 0, which is why `required` and `optional`
 * act alike; a task without its plan has a message that tells why.
 */
static void a_call_that_fails_costs_a_message_and_no_step(void **state)
{
    for (int kind = 0; kind < KINDS; kind++) {
        struct end end;

        assert_int_equal(run_in_child(kind, 0, "on", &end), 0);
        assert_true(end.plan && end.failed == 0);
#ifdef OWN_MALLOC
        if (kind == MEMORY)
            continue;
#endif
        assert_true(end.calls > 0);
        for (int at = 1, total = end.calls; at <= total; at++) {
            int status = run_in_child(kind, at, "on", &end);

            if (status != 0 || end.failed)
                fail_msg("%s, call %d of %d: status %x, %d hooks failed", kinds[kind],
                         at, total, status, end.failed);
            if (!end.plan && !end.message)
                fail_msg("%s, call %d of %d: no plan and no message", kinds[kind], at,
                         total);
        }
        print_message("# %s: %d calls\n", kinds[kind], end.calls);
    }
}

/* Under strict the task ends with status 1 in task_init, or it is as planned. */
static void under_strict_the_task_is_as_planned_or_ends(void **state)
{
    for (int kind = 0; kind < KINDS; kind++) {
        struct end whole, end;
        int ended = 0;

        assert_int_equal(run_in_child(kind, 0, "strict", &whole), 0);
#ifdef OWN_MALLOC
        if (kind == MEMORY)
            continue;
#endif
        for (int at = 1; at <= whole.calls; at++) {
            int status = run_in_child(kind, at, "strict", &end);

            if (status == 0 ? !end.plan || end.failed
                            : !WIFEXITED(status) || WEXITSTATUS(status) != 1)
                fail_msg("%s, call %d of %d: status %x, plan %d", kinds[kind], at,
                         whole.calls, status, end.plan);
            ended += status != 0;
        }
        if (kind == MEMORY)
            assert_true(ended > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_that_fails_costs_a_message_and_no_step),
        cmocka_unit_test(under_strict_the_task_is_as_planned_or_ends),
    };

    recorded_machine(); /* before any child */
    return cmocka_run_group_tests_name("plugin_faults", tests, NULL, NULL);
}
