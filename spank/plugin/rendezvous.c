/* SPDX-License-Identifier: BSD-3-Clause */
/* rendezvous.c - decides the rendezvous of a step's tasks (range of hashed ports,
 * network, rank 0's address) and the NCCL settings of this node
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/base/parse.h"
#include "runtime/base/random.h"
#include "spank/core/env/task_env.h"
#include "spank/core/slurm/hostlist.h"
#include "spank/hw/io/child.h"
#include "spank/hw/io/sysfile.h"
#include "spank/hw/live/nccl_libraries.h"
#include "spank/plugin/plugin.h"

#define RESERVED_TEXT (256 * 1024)
#define SYSCTL "/proc/sys/net/ipv4/"
/* Linux's default range of ephemeral ports. */
#define EPHEMERAL_FIRST 32768
#define EPHEMERAL_LAST 60999

/* The kernel's port settings in one line, "32768-60999;8080,9148-9150": the ephemeral
 * range and the ports reserved for others.
 */
static void kernel_ports(char *buf, size_t len)
{
    char *text = NULL;
    int a = EPHEMERAL_FIRST, b = EPHEMERAL_LAST;

    if (mu_sysfile_text(SYSCTL "ip_local_port_range", 64, &text, NULL) == 0 &&
        sscanf(text, "%d %d", &a, &b) != 2) {
        a = EPHEMERAL_FIRST;
        b = EPHEMERAL_LAST;
    }
    free(text);
    text = NULL;
    if (mu_sysfile_text(SYSCTL "ip_local_reserved_ports", RESERVED_TEXT, &text, NULL) ==
        0)
        text[strcspn(text, "\n")] = '\0';
    snprintf(buf, len, "%d-%d;%s", a, b, text ? text : "");
    free(text);
}

static bool read_kernel_ports(const char *line, int *eph_first, int *eph_last,
                              struct mu_port_set *reserved)
{
    const char *list = strchr(line, ';');

    return list && sscanf(line, "%d-%d;", eph_first, eph_last) == 2 && *eph_first > 0 &&
           *eph_last >= *eph_first && *eph_last < MU_PORTS &&
           mu_port_set_parse(list + 1, reserved, NULL) == 0;
}

void mu_srun_send_ports(void)
{
    char *line = getenv("SLURMD_NODENAME") ? malloc(RESERVED_TEXT) : NULL;

    unsetenv(MU_PORTS_VARIABLE);
    if (line) {
        kernel_ports(line, RESERVED_TEXT);
        if (strlen(line) < MU_PORTS_TEXT)
            setenv(MU_PORTS_VARIABLE, line, 1);
    }
    free(line);
}

/* Random bytes, in hexadecimal digits. */
static void send_random(const char *name, size_t bytes)
{
    uint8_t random[MU_TOKEN_DIGITS / 2];
    char text[MU_TOKEN_DIGITS + 1];

    unsetenv(name); /* of the srun that started this one */
    if (mu_random(random, bytes) < 0)
        return;
    for (size_t i = 0; i < bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", random[i]);
    setenv(name, text, 1);
}

void mu_srun_send_secrets(void)
{
    send_random(MU_SEED_VARIABLE, 4);
    send_random(MU_TOKEN_VARIABLE, MU_TOKEN_DIGITS / 2);
}

bool mu_token_of_srun(spank_t sp, char token[MU_TOKEN_DIGITS + 1])
{
    char text[MU_TOKEN_DIGITS + 2];
    const char *sent = mu_item_env(sp, MU_TOKEN_VARIABLE, text, sizeof text);

    return sent && strlen(sent) == MU_TOKEN_DIGITS &&
           strspn(sent, "0123456789abcdef") == MU_TOKEN_DIGITS &&
           mu_copy(token, MU_TOKEN_DIGITS + 1, sent);
}

/* 0 where srun has no plugin, or an older one. */
static uint32_t seed_of_srun(spank_t sp)
{
    char text[16], *end;
    const char *sent = mu_item_env(sp, MU_SEED_VARIABLE, text, sizeof text);
    unsigned long seed = sent ? strtoul(sent, &end, 16) : 0;

    return sent && end == sent + 8 && !*end ? (uint32_t)seed : 0;
}

void mu_choose_ports(struct mu_state *st, spank_t sp)
{
    struct mu_port_set reserved = { { 0 } };
    int eph_first = EPHEMERAL_FIRST, eph_last = EPHEMERAL_LAST;
    char sent[MU_PORTS_TEXT], *own = malloc(RESERVED_TEXT);

    if (!mu_item_env(sp, MU_PORTS_VARIABLE, sent, sizeof sent) ||
        !read_kernel_ports(sent, &eph_first, &eph_last, &reserved)) {
        if (own)
            kernel_ports(own, RESERVED_TEXT);
        if (own && !read_kernel_ports(own, &eph_first, &eph_last, &reserved))
            eph_first = EPHEMERAL_FIRST, eph_last = EPHEMERAL_LAST;
    }
    free(own);
    st->ports_seed = seed_of_srun(sp);
    st->ports_first = st->site.port_first;
    st->ports_last = st->site.port_last;
    if (!st->ports_first &&
        !mu_port_range(eph_first, eph_last, &st->ports_first, &st->ports_last)) {
        /* A port that a connection may take is better than none: programs fail without
         * MASTER_PORT. */
        mu_port_range(EPHEMERAL_FIRST, EPHEMERAL_LAST, &st->ports_first,
                      &st->ports_last);
        st->ports_ephemeral = true;
    }
    mu_port_skip(st->ports_first, st->ports_last, eph_first, eph_last, &reserved,
                 &st->ports_skip);
}

int mu_master_port(const struct mu_state *st)
{
    int port = mu_env_first_port(st->step.ports);
    char text[16];

    snprintf(text, sizeof text, "%d", port);
    /* A nested srun without a reservation inherits the outer step's: do not use it. */
    if (port > 0 && !mu_env_set_has(st->step.set, "MASTER_PORT", text))
        return port;
    return mu_port_hash(st->step.job, st->step.step, st->ports_seed, 0, st->ports_first,
                        st->ports_last, &st->ports_skip);
}

/* Case 024: several tasks share one GPU. */
static void check_shared_gpu(struct mu_state *st, struct mu_user_lookup *lookup,
                             const struct mu_library *library)
{
    const char *nvls = mu_users_value(lookup, "NCCL_NVLS_ENABLE");

    if (nvls && strcmp(nvls, "1") == 0)
        mu_warn(
            st,
            "NCCL_NVLS_ENABLE=1 makes NCCL abort where ranks share a GPU: unset it");
    if (mu_nccl_shares_gpus(library->version))
        return;
    mu_warn(st,
            "NCCL %s cannot run several ranks on one GPU, as in this step: use "
            "NCCL 2.30 or newer, or a whole GPU for each task (%s)",
            library->version, library->path);
    if (st->opts.strict == MU_FLAG_YES)
        mu_err_set(&st->failure, EINVAL, "NCCL %s cannot run several ranks on one GPU",
                   library->version);
}

/* The folder muster.d beside the site file; NULL: there is none. Only root may change
 * it and its files, because their values go into every user's environment.
 */
static const char *site_profiles(const struct mu_state *st, char *buf, size_t len)
{
    const char *slash = strrchr(st->conf, '/');
    struct mu_err err = { 0 };
    struct stat dir;

    if (!slash ||
        (size_t)snprintf(buf, len, "%.*s/muster.d", (int)(slash - st->conf),
                         st->conf) >= len ||
        stat(buf, &dir) < 0)
        return NULL;
    if (mu_refuse_foreign(buf, &dir, &err) == 0)
        return buf;
    mu_warn(st, "%s", err.text);
    return NULL;
}

static int look_for_nccl(void *arg, int index, int fd)
{
    struct mu_library library;

    return mu_nccl_libraries(arg, &library, 1) != 1 ||
           !mu_child_write(fd, &library, sizeof library);
}

/* The libnccl of the tasks. A child looks for it: a folder of LD_LIBRARY_PATH may be on
 * a file system that does not answer.
 */
static bool find_nccl(spank_t sp, struct mu_library *library)
{
    char ld_path[4096];

    if (!mu_item_env(sp, "LD_LIBRARY_PATH", ld_path, sizeof ld_path))
        ld_path[0] = '\0';
    if (mu_child_ask(look_for_nccl, ld_path, library, sizeof *library, 2, NULL) == 0)
        return true;
    *library = (struct mu_library){ "", "?" };
    return false;
}

static void warn_of_files(const struct mu_state *st)
{
    if (st->have_network && st->network.refused[0])
        mu_warn(st, "%s", st->network.refused);
    if (st->have_network && st->network.unread[0])
        mu_warn(st, "%s; NCCL's variables in it do not count", st->network.unread);
}

int mu_decide_network(struct mu_state *st, spank_t sp, struct mu_err *err)
{
    struct mu_user_lookup lookup = { .st = st, .sp = sp };
    struct mu_hostlist hosts = { 0 };
    char home[1024], conf_file[1024], tmpdir[900], site_dir[4096];
    struct mu_library library = { "", "?" };
    char ras[128];
    struct mu_topofile_request topo = { .st = st,
                                        .tmpdir =
                                            mu_folder_of(sp, tmpdir, sizeof tmpdir) };
    struct mu_network_request request = {
        .node = &st->node,
        .alloc = &st->alloc,
        .plan = &st->plan,
        .networks = st->site.networks,
        .exclude_hca = st->site.exclude_hca,
        .profile_dir = PROFILE_DIR,
        .site_profile_dir = site_profiles(st, site_dir, sizeof site_dir),
        .conf_file = mu_item_env(sp, "NCCL_CONF_FILE", conf_file, sizeof conf_file),
        .home = mu_item_env(sp, "HOME", home, sizeof home),
        .nccl = st->have_plan && st->opts.nccl == MU_AUTO_AUTO && st->alloc.ngpus > 0,
        .gloo = st->role != MU_ROLE_NONE,
        .timeout = 1.0,
        .node_addrs = mu_node_addrs,
        .node_addrs_arg = sp,
        .user = mu_users_value,
        .user_arg = &lookup,
        .topo = mu_topofile_prepare,
        .topo_arg = &topo,
    };
    int rc;

    if (!st->step.nodelist[0])
        return mu_err_set(
            err, ENOENT, "SLURM_STEP_NODELIST is not set, or longer than %d characters",
            MU_NODES_TEXT - 1);
    if (mu_hostlist_parse(st->step.nodelist, &hosts, err) < 0)
        return mu_err_context(err, "SLURM_STEP_NODELIST");
    if (request.nccl && mu_nccl_gpu_is_shared(&st->node, &st->plan) &&
        find_nccl(sp, &library))
        request.library = &library;
    request.hosts = hosts.name;
    request.nhosts = hosts.n;
    request.rank0_host = st->step.rank0_host;
    request.self = st->step.host;
    if (request.nccl && mu_other_steps_ras(st, ras, sizeof ras))
        request.ras_addr = ras;
    request.ras_port = mu_port_hash(st->step.job, st->step.step, st->ports_seed, 1,
                                    st->ports_first, st->ports_last, &st->ports_skip);
    rc = mu_network_decide(&request, &st->network, err);
    st->have_network = rc == 0;
    warn_of_files(st);
    if (request.nccl && mu_nccl_gpu_is_shared(&st->node, &st->plan))
        check_shared_gpu(st, &lookup, &library);
    if (rc == 0 && st->role != MU_ROLE_NONE)
        mu_master_check(st, &lookup);
    mu_hostlist_clear(&hosts);
    return rc;
}
