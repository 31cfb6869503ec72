/* SPDX-License-Identifier: BSD-3-Clause */
/* failing_calls.c - preloaded into slurmd: in each slurmstepd one call of muster.so
 * fails. The file $FAILING_CALLS has its kind and number; the call that failed writes
 * the file of that name with ".hit".
 */
#include <stdlib.h>
#include <sys/syscall.h>
#include <slurm/spank.h>

#include "tests/unit/failing_calls.h"

static char order[4000], hit_file[4096];

/* slurmstepd changes its name and drops its environment before it loads plugins. */
__attribute__((constructor)) static void keep_name(void)
{
    const char *path = getenv("FAILING_CALLS");

    if (path && strcmp(program_invocation_short_name, "slurmstepd") == 0)
        snprintf(order, sizeof order, "%s", path);
}

static void leave_hit(void)
{
    int fd = (int)syscall(SYS_open, hit_file, O_CREAT | O_WRONLY, 0666);

    close(fd);
}

static void arm(void)
{
    FILE *f = fopen(order, "r");
    int kind, at;

    if (f && fscanf(f, "%d %d", &kind, &at) == 2) {
        snprintf(hit_file, sizeof hit_file, "%s.hit", order);
        fault.kind = (enum kind)kind;
        fault.fail_at = at;
        fault.on_hit = leave_hit;
        dl_iterate_phdr(find_plugin, NULL);
        fault.armed = true;
    }
    if (f)
        fclose(f);
}

void *dlopen(const char *path, int flags)
{
    void *so = REAL(dlopen)(path, flags);

    if (so && path && strstr(path, "/muster.so"))
        arm();
    return so;
}

spank_context_t spank_context(void)
{
    FAIL(SLURM, EINVAL, S_CTX_ERROR)
    return REAL(spank_context)();
}

spank_err_t spank_option_register(spank_t sp, struct spank_option *option)
{
    FAIL(SLURM, EINVAL, ESPANK_ERROR)
    return REAL(spank_option_register)(sp, option);
}

spank_err_t spank_getenv(spank_t sp, const char *name, char *buf, int len)
{
    FAIL(SLURM, EINVAL, ESPANK_ERROR)
    return REAL(spank_getenv)(sp, name, buf, len);
}

spank_err_t spank_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
    FAIL(SLURM, EINVAL, ESPANK_ERROR)
    return REAL(spank_setenv)(sp, name, value, overwrite);
}

spank_err_t spank_unsetenv(spank_t sp, const char *name)
{
    FAIL(SLURM, EINVAL, ESPANK_ERROR)
    return REAL(spank_unsetenv)(sp, name);
}

/* No item that the plugin asks for has more than two pointers. */
spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...)
{
    void *first, *second;
    va_list ap;

    FAIL(SLURM, EINVAL, ESPANK_ERROR)
    va_start(ap, item);
    first = va_arg(ap, void *);
    second = va_arg(ap, void *);
    va_end(ap);
    return REAL(spank_get_item)(sp, item, first, second);
}
