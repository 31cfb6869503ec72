/* SPDX-License-Identifier: BSD-3-Clause */
/* monitor.c - muster monitor: what a job does now */
#include "runtime/tools/monitor.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/fresh.h"
#include "runtime/base/parse.h"

enum { EXIT_USAGE = 2, EXIT_INPUT = 3 };
enum format { TEXT, JSON, PROMETHEUS };

static const char *const formats[] = { "text", "json", "prometheus", NULL };

struct request {
    bool once;
    enum format format;
    double interval; /* 0: the default */
    const char *textfile;
    const char *record; /* folder of samples, NULL: none are recorded */
    char **paths;
    int npaths;
};

static void help(void)
{
    fputs(
        "usage: muster monitor [--interval SECONDS] [--textfile FILE] JOB|FOLDER...\n"
        "       muster monitor --once [--format text|json|prometheus] JOB|FOLDER...\n"
        "       muster monitor --record FOLDER [--once] [--interval SECONDS]\n"
        "       muster monitor --help\n"
        "\n"
        "Shows what a running job does: for each rank its step, the time of a step,\n"
        "the share of collectives, bus bandwidth, how often the others waited for it\n"
        "and since when it is idle; this node's GPUs and network interfaces.\n"
        "JOB is a job of yours that runs on this node and writes ledgers (profile in\n"
        "muster(7)).\n"
        "FOLDER has the ledgers that a job writes.\n"
        "--once prints one look.  --textfile writes each look for Prometheus'\n"
        "node_exporter.\n"
        "--record appends this node's GPUs to FOLDER/HOST.samples, until it is ended:\n"
        "muster report has their clock, power and use then.\n"
        "\n"
        "Exit status: 0 done; 1 output cannot be written; 2 wrong usage;\n"
        "3 no such job, or no ledger\n",
        stdout);
}

static int usage(const char *why, const char *what)
{
    fprintf(stderr, "muster monitor: %s%s; see muster monitor --help\n", why, what);
    return EXIT_USAGE;
}

/* node_exporter reads whole files only: the new one takes the old one's place. */
static int write_textfile(const struct mu_monitor *m, const char *path)
{
    char fresh[4096];
    FILE *f;
    int fd, rc;

    if (snprintf(fresh, sizeof fresh, "%s.new", path) >= (int)sizeof fresh)
        return -1;
    fd = mu_fresh_open(fresh);
    f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    mu_monitor_prometheus(m, f);
    rc = ferror(f) ? -1 : 0;
    return fclose(f) == 0 && rc == 0 ? rename(fresh, path) : -1;
}

static int look(struct mu_monitor *m, const struct request *r, FILE *complain)
{
    char host[64] = "";

    if (mu_monitor_look(m, r->paths, r->npaths, complain) < 0)
        return EXIT_INPUT;
    mu_monitor_devices(m);
    gethostname(host, sizeof host - 1);
    mu_monitor_advise(m, host);
    if (r->textfile && write_textfile(m, r->textfile) < 0) {
        fprintf(stderr, "muster monitor: %s cannot be written\n", r->textfile);
        return 1;
    }
    return 0;
}

/* The interfaces are looked at twice, for their rates. */
static int once(struct mu_monitor *m, const struct request *r)
{
    json_t *json;
    int rc;

    mu_monitor_devices(m);
    usleep((useconds_t)(r->interval * 1e6));
    rc = look(m, r, stderr);
    if (rc != 0)
        return rc;
    if (r->format == PROMETHEUS) {
        mu_monitor_prometheus(m, stdout);
    } else if (r->format == TEXT) {
        mu_monitor_text(m, stdout);
    } else {
        json = mu_monitor_json(m);
        rc = !json ||
             json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) < 0;
        putchar('\n');
        json_decref(json);
    }
    if (fflush(stdout) == EOF || ferror(stdout)) {
        perror("muster monitor: standard output");
        return 1;
    }
    return rc;
}

static int draw(const struct mu_monitor *m, const char *faults)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);

    if (!to)
        return -1;
    mu_monitor_text(m, to);
    fputs(faults, to);
    fclose(to);
    mu_screen_draw(text);
    free(text);
    return 0;
}

static int watch(struct mu_monitor *m, const struct request *r)
{
    struct mu_err err = { 0 };
    bool again = false;
    int rc = look(m, r, stderr);

    if (rc != 0)
        return rc;
    if (mu_screen_open(&err) < 0)
        return usage(err.text, "");
    do {
        char faults[1024] = "";
        FILE *complain = fmemopen(faults, sizeof faults, "w");

        if (!again && complain)
            look(m, r, complain);
        if (complain)
            fclose(complain);
        if (draw(m, faults) < 0)
            break;
    } while (!mu_screen_wait(r->interval, &again));
    mu_screen_close();
    return 0;
}

static int read_options(int argc, char **argv, struct request *r)
{
    static const struct option names[] = {
        { "format", required_argument, NULL, 'f' },
        { "interval", required_argument, NULL, 'i' },
        { "once", no_argument, NULL, 'o' },
        { "record", required_argument, NULL, 'r' },
        { "textfile", required_argument, NULL, 't' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    struct mu_err err = { 0 };
    int option, format;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":h", names, NULL)) != -1) {
        if (option == 'h') {
            help();
            return -1;
        }
        if (option == 'o') {
            r->once = true;
        } else if (option == 't') {
            r->textfile = optarg;
        } else if (option == 'r') {
            r->record = optarg;
        } else if (option == 'f') {
            format = mu_parse_word(optarg, formats);
            if (format < 0)
                return usage("--format is text, json or prometheus, not ", optarg);
            r->format = (enum format)format;
        } else if (option == 'i') {
            if (mu_parse_double("--interval", optarg, 0.1, 3600, &r->interval, &err) <
                0)
                return usage(err.text, "");
        } else {
            return usage("this option is unknown or lacks its value: ",
                         argv[optind - 1]);
        }
    }
    if (r->record && (optind < argc || r->textfile || r->format != TEXT))
        return usage("--record goes with --once and --interval only", "");
    if (optind == argc && !r->record)
        return usage("give a job or a folder of ledgers", "");
    if (r->format != TEXT && !r->once)
        return usage("--format is for --once", "");
    return 0;
}

/* Seconds: nvidia-smi takes a part of one, which the training should not notice. */
#define RECORD_INTERVAL 10

static int record(struct mu_monitor *m, const struct request *r)
{
    double interval = r->interval > 0 ? r->interval : RECORD_INTERVAL;
    struct mu_err err = { 0 };

    if (mu_monitor_record(m, r->record, interval, r->once, &err) == 0)
        return 0;
    fprintf(stderr, "muster monitor: %s\n", err.text);
    return err.code == ENODEV ? EXIT_INPUT : 1;
}

int main(int argc, char **argv)
{
    char *folder[MU_MONITOR_FOLDERS];
    struct request r = { 0 };
    struct mu_monitor m = { 0 };
    struct mu_err err = { 0 };
    int rc = read_options(argc, argv, &r), found = 0;
    struct stat st;

    if (rc != 0)
        return rc < 0 ? 0 : rc;
    if (r.record)
        return record(&m, &r);
    r.interval = r.interval > 0 ? r.interval : 1;
    r.paths = argv + optind;
    r.npaths = argc - optind;
    if (r.npaths == 1 && r.paths[0][strspn(r.paths[0], "0123456789")] == '\0' &&
        stat(r.paths[0], &st) < 0) {
        found = mu_monitor_find(r.paths[0], folder, &err);
        if (found < 0) {
            fprintf(stderr, "muster monitor: %s\n", err.text);
            return EXIT_INPUT;
        }
        m.only = r.paths[0];
        r.paths = folder;
        r.npaths = found;
    }
    rc = r.once ? once(&m, &r) : watch(&m, &r);
    mu_monitor_clear(&m);
    for (int i = 0; i < found; i++)
        free(folder[i]);
    return rc;
}
