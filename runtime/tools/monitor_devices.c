/* SPDX-License-Identifier: BSD-3-Clause */
/* monitor_devices.c - this node's GPUs and network interfaces
 *
 * nvidia-smi is NVML's own front end, and is there wherever the driver is.
 */
#include <dirent.h>
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/tools/monitor.h"

extern char **environ;

/* ---- GPUs ------------------------------------------------------------------------ */

static FILE *ask_nvidia_smi(void)
{
    static char name[] = "nvidia-smi", format[] = "--format=csv,noheader,nounits",
                query[] = "--query-gpu=pci.bus_id,utilization.gpu,power.draw,clocks.sm,"
                          "memory.used,memory.total";
    char *argv[] = { name, query, format, NULL };
    posix_spawn_file_actions_t files;
    FILE *answer = tmpfile();
    int status, rc;
    pid_t pid;

    if (!answer)
        return NULL;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", 0, 0);
    posix_spawn_file_actions_adddup2(&files, fileno(answer), 1);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", 1, 0);
    rc = posix_spawnp(&pid, name, &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    while (rc == 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    rewind(answer);
    return answer;
}

/* "[N/A]" is unknown. */
static double figure(const char *field)
{
    char *end;
    double value = field ? strtod(field, &end) : -1;

    return field && end != field && value >= 0 ? value : -1;
}

static void read_gpus(struct mu_monitor *m)
{
    FILE *answer = ask_nvidia_smi();
    char line[512];

    m->ngpus = 0;
    while (answer && m->ngpus < MU_MONITOR_GPUS && fgets(line, sizeof line, answer)) {
        struct mu_monitor_gpu *g = &m->gpu[m->ngpus];
        char *next, *pci = strtok_r(line, ",\n", &next);

        if (!pci || !strchr(pci, ':'))
            continue;
        mu_copy(g->pci, sizeof g->pci, pci);
        g->utilization = figure(strtok_r(NULL, ",\n", &next));
        g->watts = figure(strtok_r(NULL, ",\n", &next));
        g->mhz = figure(strtok_r(NULL, ",\n", &next));
        g->used_mib = figure(strtok_r(NULL, ",\n", &next));
        g->total_mib = figure(strtok_r(NULL, ",\n", &next));
        m->ngpus++;
    }
    if (answer)
        fclose(answer);
}

/* ---- Interfaces ------------------------------------------------------------------ */

static void add_nic(struct mu_monitor *m, const struct mu_monitor *before,
                    const char *name, double received, double sent, double seconds)
{
    struct mu_monitor_nic *nic;

    if (m->nnics == MU_MONITOR_NICS)
        return;
    nic = &m->nic[m->nnics++];
    *nic = (struct mu_monitor_nic){ "", received, sent, -1, -1 };
    mu_copy(nic->name, sizeof nic->name, name);
    for (int i = 0; seconds > 0 && i < before->nnics; i++)
        if (strcmp(before->nic[i].name, nic->name) == 0) {
            nic->receives = (received - before->nic[i].received) / seconds;
            nic->sends = (sent - before->nic[i].sent) / seconds;
        }
}

/* Ethernet. The loopback carries no data of a job of several nodes. */
static void read_interfaces(struct mu_monitor *m, const struct mu_monitor *before,
                            double seconds)
{
    FILE *f = fopen("/proc/net/dev", "re");
    char line[512], name[64];
    unsigned long long received, sent;

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, " %63[^:]: %llu %*u %*u %*u %*u %*u %*u %*u %llu", name,
                   &received, &sent) == 3 &&
            strcmp(name, "lo") != 0)
            add_nic(m, before, name, (double)received, (double)sent, seconds);
    if (f)
        fclose(f);
}

/* Counters of RDMA ports are in words of four bytes. */
static double counter(const char *device, const char *name)
{
    char path[512];
    unsigned long long words = 0;
    FILE *f;

    snprintf(path, sizeof path, "/sys/class/infiniband/%.200s/ports/1/counters/%s",
             device, name);
    f = fopen(path, "re");
    if (f && fscanf(f, "%llu", &words) != 1)
        words = 0;
    if (f)
        fclose(f);
    return 4.0 * (double)words;
}

static void read_rdma(struct mu_monitor *m, const struct mu_monitor *before,
                      double seconds)
{
    DIR *devices = opendir("/sys/class/infiniband");
    const struct dirent *entry;

    while (devices && (entry = readdir(devices)))
        if (entry->d_name[0] != '.')
            add_nic(m, before, entry->d_name, counter(entry->d_name, "port_rcv_data"),
                    counter(entry->d_name, "port_xmit_data"), seconds);
    if (devices)
        closedir(devices);
}

void mu_monitor_devices(struct mu_monitor *m)
{
    struct mu_monitor before = *m;
    double now = mu_clock_s();
    double seconds = before.looked > 0 ? now - before.looked : 0;

    read_gpus(m);
    m->nnics = 0;
    m->looked = now;
    read_interfaces(m, &before, seconds);
    read_rdma(m, &before, seconds);
}
