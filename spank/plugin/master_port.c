/* SPDX-License-Identifier: BSD-3-Clause */
/* master_port.c - on rank 0's node: checks that the hashed MASTER_PORT is free, also of
 * other steps that have not opened it yet
 */
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/peercred.h"
#include "spank/core/env/task_env.h"
#include "spank/hw/io/sysfile.h"
#include "spank/plugin/plugin.h"

#define STATUS_TEXT 4096 /* bytes of /proc/PID/status */

static socklen_t name_of(int port, struct sockaddr_un *out)
{
    int len;

    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    len = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "muster-port-%d", port);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

/* slurmstepd claims the port by a name in the kernel's abstract namespace. The name
 * leaves no file, ends with slurmstepd and belongs to the network namespace. It
 * listens, so that others can see whose it is.
 */
static int claim_name(int port)
{
    struct sockaddr_un addr;
    socklen_t len = name_of(port, &addr);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && (bind(fd, (struct sockaddr *)&addr, len) < 0 || listen(fd, 8) < 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Is the real user of that process root? slurmstepd's is, also while it acts as the
 * step's user; that of a user's process is not, whatever its program.
 */
static bool is_slurmstepd(pid_t pid)
{
    char path[64], *text = NULL, *line;
    unsigned uid = 1;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (mu_sysfile_text(path, STATUS_TEXT, &text, NULL) == 0 &&
        (line = strstr(text, "\nUid:")))
        sscanf(line, "\nUid: %u", &uid);
    free(text);
    return uid == 0;
}

/* Any user can hold the name: only the claim of a slurmstepd counts. */
static bool is_claimed(int port)
{
    struct sockaddr_un addr;
    socklen_t len = name_of(port, &addr);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool claimed;

    if (fd < 0)
        return false;
    claimed = connect(fd, (struct sockaddr *)&addr, len) == 0 &&
              is_slurmstepd(mu_peercred_of(fd).pid);
    close(fd);
    return claimed;
}

/* Listens like a server: with SO_REUSEADDR, so that closed connections do not count. */
static bool can_listen(int port)
{
    struct sockaddr_in addr = { .sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    bool free = true;

    if (fd < 0)
        return true; /* no socket: this does not concern the port */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&addr, sizeof addr) < 0 || listen(fd, 1) < 0)
        free = errno != EADDRINUSE;
    close(fd);
    return free;
}

void mu_port_check(struct mu_state *st)
{
    int port = mu_master_port(st);
    bool taken;

    st->port_claim = -1;
    if (!st->step.is_rank0_host || port <= 0 ||
        port == mu_env_first_port(st->step.ports))
        return;
    /* Warn once per job: only an administrator can fix it. */
    if (st->ports_ephemeral && st->step.step == 0)
        mu_warn(
            st,
            "every port is ephemeral on this node (ip_local_port_range), so that any "
            "connection can take MASTER_PORT %d: exclude 1024 ports from that range, "
            "or reserve ports with MpiParams=ports=FIRST-LAST in slurm.conf",
            port);
    st->port_claim = claim_name(port);
    taken = st->port_claim < 0 && errno == EADDRINUSE && is_claimed(port);
    if (taken || !can_listen(port))
        mu_warn(st,
                "MASTER_PORT %d is in use on this node by %s: reserve ports with "
                "MpiParams=ports=FIRST-LAST in slurm.conf and srun --resv-ports=1, or "
                "export another MASTER_PORT",
                port, taken ? "another step" : "another program");
}

void mu_port_release(struct mu_state *st)
{
    if (st->port_claim > 0)
        close(st->port_claim);
    st->port_claim = -1;
}
