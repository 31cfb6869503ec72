/* SPDX-License-Identifier: BSD-3-Clause */
/* failing_calls.h - memory, files, pipes and processes run out in muster.so: the
 * functions below stand before the C library's, and the call whose number is chosen
 * fails. Calls from elsewhere go on: what hwloc or the C library do without memory is
 * not the plugin's.
 */
#ifndef MU_TEST_FAILING_CALLS_H
#define MU_TEST_FAILING_CALLS_H

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define OWN_MALLOC 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OWN_MALLOC 1
#endif
#endif

enum kind { MEMORY, FILES, PROCESSES, KINDS, SLURM = KINDS };
static const char *const kinds[] = { "memory", "files", "processes" };

static struct {
    uintptr_t begin, end; /* of muster.so */
    enum kind kind;
    int calls, fail_at;
    bool armed;
    void (*on_hit)(void); /* may be NULL */
} fault;

/* The counts of a coverage build are written by calls of muster.so too. */
void mu_calls_fail_no_more(void)
{
    fault.armed = false;
}

/* Is it the call that fails? `from` is where it returns to. */
static bool hit(enum kind kind, const void *from)
{
    uintptr_t at = (uintptr_t)from;

    if (!fault.armed || kind != fault.kind || at < fault.begin || at >= fault.end ||
        ++fault.calls != fault.fail_at)
        return false;
    if (fault.on_hit)
        fault.on_hit();
    return true;
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

#endif
