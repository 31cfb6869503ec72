/* SPDX-License-Identifier: BSD-3-Clause */
/* ranks.c - `muster run`: starts the ranks of a program on this node, placed as the
 * plugin would place them
 */
#include "spank/tools/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "runtime/base/random.h"
#include "spank/core/env/task_env.h"
#include "spank/core/plan/plan.h"
#include "spank/core/plan/plan_text.h"
#include "spank/hw/live/apply.h"
#include "spank/tools/tool.h"

#define COMMAND "run"
#define TOKEN_BYTES 32

extern char **environ;

struct job {
    const struct mu_node *node;
    const struct mu_alloc *alloc;
    const struct mu_opts *opts;
    const struct mu_plan *plan;
    char **argv;
    int port;
    char token[2 * TOKEN_BYTES + 1];
};

static void help(void)
{
    fputs("usage: muster run -n N [OPTION]... PROGRAM [ARGUMENT]...\n"
          "\n"
          "Start N ranks of a program on this node, without Slurm. Each is placed as "
          "the\n"
          "plugin would place it. When one fails, all end.\n"
          "\n"
          "  -n, --ranks N        ranks\n"
          "  --gpus[=LIST]        NVIDIA GPUs: indices in PCI order, bus ids or UUIDs\n"
          "                       (without LIST: all; without the option: none)\n"
          "  --label              print the rank before each line of its output\n"
          "  --cpus LIST          CPUs, as Linux numbers (default: those of this "
          "process)\n"
          "  --mems LIST          NUMA nodes whose memory the ranks may use (default: "
          "all)\n"
          "  --cpus-per-task C    hardware threads that each rank requests\n"
          "  --opt OPTIONS        as srun's --muster: cpus=all,mem=strict, ...\n"
          "  --help               show this and exit\n"
          "\n"
          "Exit status: that of the first rank that failed, 128 + signal where it was\n"
          "killed, else 0; 2 bad usage; 3 the ranks could not be started.\n",
          stdout);
}

/* ---- The environment of a rank -------------------------------------------------- */

static void set(const char *name, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void set(const char *name, const char *fmt, ...)
{
    char value[MU_RECORD_LINE];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(value, sizeof value, fmt, ap);
    va_end(ap);
    setenv(name, value, 1);
}

/* A PMIx server of a step around this command counts other ranks. */
static void drop_pmix(void)
{
    char name[128];

    for (char **at = environ; *at;) {
        size_t len = strcspn(*at, "=");

        if (strncmp(*at, "PMIX_", 5) != 0 || len >= sizeof name) {
            at++;
            continue;
        }
        memcpy(name, *at, len);
        name[len] = '\0';
        unsetenv(name);
        at = environ;
    }
}

static void set_gpus(const struct job *j, const struct mu_slot *slot)
{
    bool own = j->plan->own_visible && slot->ngpus > 0;
    const int *list = own ? slot->gpu_node : j->alloc->gpu_node;
    int n = own ? slot->ngpus : j->alloc->ngpus;
    char text[MU_RECORD_LINE] = "";
    size_t at = 0;

    for (int i = 0; i < n; i++) {
        const struct mu_gpu *gpu = &j->node->gpus[list[i]];
        int index = 0;

        for (int k = 0; k < list[i]; k++)
            index += j->node->gpus[k].vendor == gpu->vendor;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s", i > 0 ? "," : "");
        if (strncmp(gpu->uuid, "MIG-", 4) == 0)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s", gpu->uuid);
        else
            at += (size_t)snprintf(text + at, sizeof text - at, "%d", index);
        if (at >= sizeof text)
            at = sizeof text - 1;
    }
    set("CUDA_VISIBLE_DEVICES", "%s", text);
    if (n > 0)
        set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
}

static void set_plan(const struct job *j, const struct mu_slot *slot,
                     const struct mu_bound *bound)
{
    struct mu_record *record = calloc(1, sizeof *record);
    char line[MU_RECORD_LINE];

    if (record) {
        mu_show_record(j->node, slot, record);
        record->cpus = bound->cpus;
        record->mems = bound->mems;
    }
    if (record && mu_record_encode(record, line, sizeof line, NULL) == 0)
        set("MUSTER_PLAN", "%s", line);
    free(record);
}

static void set_environment(const struct job *j, int rank, const struct mu_bound *bound)
{
    const struct mu_slot *slot = &j->plan->slots[rank];
    int cores = slot->bound ? mu_node_core_count(j->node, &slot->cpus) : 0;

    drop_pmix();
    unsetenv("MUSTER_SET");
    set("RANK", "%d", rank);
    set("LOCAL_RANK", "%d", rank);
    set("WORLD_SIZE", "%d", j->plan->nslots);
    set("LOCAL_WORLD_SIZE", "%d", j->plan->nslots);
    set("NODE_RANK", "0");
    set("GROUP_RANK", "0");
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", "%d", j->port);
    unsetenv("MUSTER_PORT");
    unsetenv("MUSTER_TOKEN_FILE");
    set("MUSTER_TOKEN", "%s", j->token);
    if (j->opts->omp == MU_AUTO_AUTO && cores > 0 && !getenv("OMP_NUM_THREADS"))
        set("OMP_NUM_THREADS", "%d", mu_env_threads(cores, slot->ngpus));
    set_gpus(j, slot);
    set_plan(j, slot, bound);
}

/* ---- Start ---------------------------------------------------------------------- */

/* Nothing listens on it, nor on the one above, which is libmuster's. */
static bool is_free(int port)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port),
                              .sin_addr.s_addr = htonl(INADDR_ANY) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;

    if (fd >= 0)
        close(fd);
    return ok;
}

/* Below the ephemeral ports of Linux, so that no connection takes it. */
static int choose(struct job *j)
{
    uint8_t random[TOKEN_BYTES];
    uint16_t start;

    if (mu_random(random, sizeof random) < 0 || mu_random(&start, sizeof start) < 0)
        return -1;
    for (int i = 0; i < TOKEN_BYTES; i++)
        snprintf(j->token + 2 * i, 3, "%02x", random[i]);
    for (int i = 0; i < 6000; i++) {
        j->port = 20000 + 2 * ((start + i) % 6000);
        if (is_free(j->port) && is_free(j->port + 1))
            return 0;
    }
    errno = EADDRINUSE;
    return -1;
}

/* A rank that cannot be bound runs slower: a warning, as under Slurm. */
static void place(const struct job *j, int rank, struct mu_bound *bound)
{
    const struct mu_slot *slot = &j->plan->slots[rank];
    bool strict = j->opts->strict == MU_FLAG_YES;
    struct mu_err err = { 0 };

    if (slot->bound && mu_apply_affinity(&slot->cpus, &bound->cpus, &err) == 0 &&
        mu_apply_memory(&slot->mems, j->opts->mem == MU_MEM_STRICT, &err) == 0)
        bound->mems = slot->mems;
    if (err.text[0]) {
        mu_tool_fail(COMMAND, 0, "%s: rank %d: %s", strict ? "error" : "warning", rank,
                     err.text);
        if (strict)
            _exit(MU_EXIT_NOT_AS_ASKED);
    }
}

static _Noreturn void run_rank(const struct job *j, int rank, int out, int err,
                               pid_t parent)
{
    struct mu_bound bound = { 0 };
    int null = -1;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(MU_EXIT_INPUT);
    mu_ranks_restore();
    if (rank > 0 || isatty(0))
        null = open("/dev/null", O_RDONLY);
    if (null > 0)
        dup2(null, 0);
    dup2(out, 1);
    dup2(err, 2);
    place(j, rank, &bound);
    set_environment(j, rank, &bound);
    execvp(j->argv[0], j->argv);
    mu_tool_fail(COMMAND, 0, "rank %d: cannot start %s: %s", rank, j->argv[0],
                 strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

static int start_rank(const struct job *j, struct mu_ranks *ranks, int rank)
{
    struct mu_rank *r = &ranks->rank[rank];
    int out[2] = { -1, -1 }, err[2] = { -1, -1 };
    pid_t parent = getpid();

    r->out.line = malloc(MU_RANK_LINE);
    r->err.line = malloc(MU_RANK_LINE);
    if (!r->out.line || !r->err.line || pipe2(out, O_CLOEXEC) < 0 ||
        pipe2(err, O_CLOEXEC) < 0)
        return -1;
    r->pid = fork();
    if (r->pid == 0)
        run_rank(j, rank, out[1], err[1], parent);
    close(out[1]);
    close(err[1]);
    r->out.fd = out[0];
    r->err.fd = err[0];
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(err[0], F_SETFL, O_NONBLOCK);
    if (r->pid > 0)
        setpgid(r->pid, r->pid);
    return r->pid < 0 ? -1 : 0;
}

static int start_all(struct job *j, bool label)
{
    const char *elastic = getenv("MUSTER_ELASTIC");
    struct mu_ranks ranks = { .n = j->plan->nslots,
                              .label = label,
                              .elastic = elastic && elastic[0] && strcmp(elastic, "0"),
                              .signals = mu_ranks_signals() };
    int status = -1;

    ranks.rank = calloc((size_t)ranks.n, sizeof *ranks.rank);
    for (int r = 0; ranks.rank && r < ranks.n; r++)
        ranks.rank[r].out.fd = ranks.rank[r].err.fd = -1;
    if (ranks.rank && ranks.signals >= 0 && choose(j) == 0)
        status = 0;
    for (int r = 0; r < ranks.n && status == 0; r++)
        status = start_rank(j, &ranks, r);
    if (status < 0) {
        status = mu_tool_fail(COMMAND, MU_EXIT_INPUT, "%d ranks cannot be started: %s",
                              ranks.n, strerror(errno));
        if (ranks.rank)
            mu_ranks_kill(&ranks);
    } else {
        status = mu_ranks_watch(&ranks);
    }
    for (int r = 0; ranks.rank && r < ranks.n; r++) {
        free(ranks.rank[r].out.line);
        free(ranks.rank[r].err.line);
    }
    free(ranks.rank);
    return status;
}

/* ---- The command ---------------------------------------------------------------- */

static int plan_and_start(const struct mu_node *node, const struct mu_ask *ask,
                          bool label, char **argv)
{
    struct mu_plan plan = { 0 };
    struct mu_err err = { 0 };
    struct mu_alloc alloc;
    struct mu_opts opts;
    struct job job = { node, &alloc, &opts, &plan, argv, 0, "" };
    int rc = mu_ask_resolve(COMMAND, ask, node, &alloc, &opts);

    if (rc != MU_EXIT_OK)
        return rc;
    for (int i = 0; i < alloc.ngpus; i++)
        if (node->gpus[alloc.gpu_node[i]].vendor != MU_VENDOR_NVIDIA)
            return mu_tool_usage(COMMAND, "--gpus takes NVIDIA GPUs, not %s",
                                 node->gpus[alloc.gpu_node[i]].label);
    alloc.without_slurm = true;
    if (mu_plan_make(node, &alloc, &opts, &plan, &err) < 0)
        return mu_tool_usage(COMMAND, "%s", err.text);
    for (int i = 0; i < plan.nwarnings; i++)
        mu_tool_fail(COMMAND, 0, "warning: %s", plan.warning[i]);
    for (int i = 0; opts.verbose == MU_FLAG_YES && i < plan.ninfos; i++)
        mu_tool_fail(COMMAND, 0, "%s", plan.info[i]);
    rc = start_all(&job, label);
    mu_plan_clear(&plan);
    return rc;
}

static int run(struct mu_ask *ask, bool label, char **argv)
{
    struct mu_machine machine;
    struct mu_cpuset own;
    char cpus[8192];
    int rc;

    if (!ask->cpus && mu_cpuset_of_process(0, &own) == 0) {
        mu_cpuset_format(&own, cpus, sizeof cpus);
        ask->cpus = cpus;
    }
    rc = mu_ask_machine(COMMAND, ask, &machine);
    if (rc == MU_EXIT_OK)
        rc = plan_and_start(&machine.node, ask, label, argv);
    mu_machine_clear(&machine);
    return rc;
}

int mu_run_main(int argc, char **argv)
{
    static const struct option options[] = {
        { "ranks", required_argument, NULL, 'n' },
        { "gpus", optional_argument, NULL, 'g' },
        { "label", no_argument, NULL, 'l' },
        { "cpus", required_argument, NULL, MU_ASK_CPUS },
        { "mems", required_argument, NULL, MU_ASK_MEMS },
        { "cpus-per-task", required_argument, NULL, MU_ASK_CPUS_PER_TASK },
        { "opt", required_argument, NULL, MU_ASK_OPT },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 }
    };
    struct mu_ask ask = { .gpus = "none" };
    struct mu_err err = { 0 };
    bool label = false;
    long n;
    int c;

    opterr = 0;
    while ((c = getopt_long(argc, argv, "+:hn:", options, NULL)) != -1) {
        if (mu_ask_option(&ask, c, optarg))
            continue;
        if (c == 'h') {
            help();
            return mu_tool_finish(COMMAND, MU_EXIT_OK);
        }
        if (c == 'g')
            ask.gpus = optarg;
        else if (c == 'l')
            label = true;
        else if (c == 'n')
            ask.tasks = optarg;
        else
            return mu_tool_bad_option(COMMAND, c, argv);
    }
    if (!ask.tasks)
        return mu_tool_usage(COMMAND, "needs the number of ranks, -n N");
    if (mu_parse_int("-n", ask.tasks, 1, MU_RANKS_MAX, &n, &err) < 0)
        return mu_tool_usage(COMMAND, "%s", err.text);
    if (optind == argc)
        return mu_tool_usage(COMMAND, "needs a program");
    return run(&ask, label, argv + optind);
}
