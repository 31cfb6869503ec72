/* SPDX-License-Identifier: BSD-3-Clause */
/* monitor_record.c - GPUs into a file, for muster report */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/tools/monitor.h"
#include "runtime/tools/samples.h"

static void add_looks(const struct mu_monitor *m, const char *host, FILE *to)
{
    double now = mu_time_s(mu_time_of(CLOCK_REALTIME));

    for (int i = 0; i < m->ngpus; i++) {
        const struct mu_monitor_gpu *g = &m->gpu[i];
        struct mu_sample s = { .when = now,
                               .figure = { g->utilization, g->watts, g->mhz,
                                           g->used_mib, g->total_mib } };

        mu_copy(s.host, sizeof s.host, host);
        mu_copy(s.gpu, sizeof s.gpu, g->pci);
        mu_sample_print(&s, to);
    }
}

/* An earlier run may have begun the file. A link is not followed: another user of
 * the folder could have made it.
 */
static FILE *open_samples(const char *path, struct mu_err *err)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    FILE *to = fd < 0 ? NULL : fdopen(fd, "a");

    if (!to) {
        mu_err_set(err, errno, "%s cannot be written: %s", path, strerror(errno));
        return NULL;
    }
    if (lseek(fd, 0, SEEK_END) == 0)
        mu_samples_head(to);
    return to;
}

int mu_monitor_record(struct mu_monitor *m, const char *folder, double interval,
                      bool once, struct mu_err *err)
{
    char host[64] = "", path[4096];
    FILE *to;
    int rc = 0;

    gethostname(host, sizeof host - 1);
    if (snprintf(path, sizeof path, "%s/%s%s", folder, host, MU_SAMPLES_SUFFIX) >=
        (int)sizeof path)
        return mu_err_set(err, ENAMETOOLONG, "the folder's name is too long");
    to = open_samples(path, err);
    if (!to)
        return -1;
    for (bool more = true; more && rc == 0; more = !once) {
        mu_monitor_devices(m);
        if (m->ngpus == 0)
            rc =
                mu_err_set(err, ENODEV,
                           "nvidia-smi shows no GPU of this node; nothing is recorded");
        add_looks(m, host, to);
        if (rc == 0 && (fflush(to) == EOF || ferror(to)))
            rc = mu_err_set(err, errno, "%s cannot be written: %s", path,
                            strerror(errno));
        if (rc == 0 && !once)
            mu_pause(interval);
    }
    fclose(to);
    return rc;
}
