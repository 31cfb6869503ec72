/* SPDX-License-Identifier: BSD-3-Clause */
/* report.c - muster report: show a run, or compare runs */
#include "runtime/tools/report.h"

#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/base/parse.h"
#include "runtime/tools/profile.h"

enum { EXIT_USAGE = 2, EXIT_INPUT = 3 };
enum form { RUN, SPEEDUP, PROFILE };
enum format { TEXT, JSON, HTML, TRACE };

static const char *const forms[] = { "speedup", "profile", NULL };
static const char *const formats[] = { "text", "json", "html", "trace", NULL };

static void help(void)
{
    fputs("usage: muster report [--format text|json|html] FILE\n"
          "       muster report speedup [--format text|json] FILE...\n"
          "       muster report profile [--format text|json|html|trace] [--step N]\n"
          "                             [--job JOB] FILE|FOLDER...\n"
          "       muster report --help\n"
          "\n"
          "FILE is the result that muster-train wrote.\n"
          "The first form shows one run, and how each rank spent its time.\n"
          "html is one page with plots.  FILE may also be a ledger, or a folder with\n"
          "ledgers: then it is shown as in the third form.\n"
          "The second form compares runs of the same work on several numbers of\n"
          "ranks: speedup, parallel efficiency, and efficiency per core.\n"
          "The third form shows the collectives of a job that ran with Muster's\n"
          "profiler: ledger files, and those in folders.  trace is for Chrome's\n"
          "trace viewer.  --step N is the step whose timeline html has; default: the\n"
          "slowest.  --job JOB takes only the ledgers of this job from folders.\n"
          "Default: those of the job that began last.\n"
          "\n"
          "Exit status: 0 done; 1 output cannot be written; 2 wrong usage;\n"
          "3 a file cannot be read (the others are shown), or the runs cannot be\n"
          "compared\n",
          stdout);
}

static int usage(const char *why, const char *what)
{
    fprintf(stderr, "muster report: %s%s; see muster report --help\n", why, what);
    return EXIT_USAGE;
}

static int print_json(json_t *json)
{
    int rc = !json || json_dumpf(json, stdout, JSON_INDENT(2)) < 0;

    putchar('\n');
    json_decref(json);
    return rc;
}

static int show(const char *path, enum format format)
{
    struct mu_run run;
    struct mu_err err = { 0 };
    int rc = 0;

    if (mu_run_load(&run, path, &err) < 0) {
        fprintf(stderr, "muster report: %s\n", err.text);
        return EXIT_INPUT;
    }
    if (format == JSON)
        rc = print_json(mu_report_json(&run));
    else if (format == HTML)
        mu_report_html(&run, stdout);
    else
        mu_report_text(&run, stdout);
    mu_run_clear(&run);
    return rc;
}

/* A file that cannot be read is one sentence, and the others are compared. */
static int compare(char **paths, int n, enum format format)
{
    struct mu_run *runs = calloc((size_t)n, sizeof *runs);
    struct mu_speedup *table = NULL;
    struct mu_err err = { 0 };
    int loaded = 0, lines = 0, rc = 0;

    if (!runs) {
        fputs("muster report: no memory\n", stderr);
        return EXIT_INPUT;
    }
    for (int i = 0; i < n; i++)
        if (mu_run_load(&runs[loaded], paths[i], &err) == 0) {
            loaded++;
        } else {
            fprintf(stderr, "muster report: %s\n", err.text);
            rc = EXIT_INPUT;
        }
    if (loaded > 0 && (lines = mu_speedup_make(runs, loaded, &table, &err)) < 0) {
        fprintf(stderr, "muster report: %s\n", err.text);
        rc = EXIT_INPUT;
    }
    if (lines > 0 && format == JSON)
        rc = print_json(mu_speedup_json(table, lines)) ? 1 : rc;
    else if (lines > 0)
        mu_speedup_text(table, lines, runs[0].devices, stdout);
    free(table);
    for (int i = 0; i < loaded; i++)
        mu_run_clear(&runs[i]);
    free(runs);
    return rc;
}

/* What the options ask for. */
struct wanted {
    enum format format;
    int step;        /* -1: none is chosen */
    const char *job; /* NULL: none is chosen */
};

static int profile(char **paths, int n, const struct wanted *w)
{
    enum format format = w->format;
    struct mu_profile p;
    int rc = 0;

    if (mu_profile_load(&p, paths, n, w->job, stderr) < 0)
        rc = EXIT_INPUT;
    else if (format == JSON)
        rc = print_json(mu_profile_json(&p));
    else if (format == HTML)
        rc = mu_profile_html(&p, w->step, stdout, stderr) < 0 ? EXIT_INPUT : 0;
    else if (format == TRACE)
        mu_profile_trace(&p, stdout);
    else
        mu_profile_text(&p, stdout);
    if (rc == 0 && p.faults)
        rc = EXIT_INPUT;
    mu_profile_clear(&p);
    return rc;
}

/* NULL: this form of the command prints this format. */
static const char *wrong_format(enum form form, enum format format)
{
    if (form == SPEEDUP && format > JSON)
        return "speedup is printed as text or json";
    if (form == RUN && format == TRACE)
        return "one run is printed as text, json or html";
    return NULL;
}

/* A folder, or a name that ends as ledgers do. */
static bool holds_ledgers(const char *path)
{
    size_t n = strlen(path), end = sizeof MU_LEDGER_SUFFIX - 1;
    struct stat st;

    return (n > end && strcmp(path + n - end, MU_LEDGER_SUFFIX) == 0) ||
           (stat(path, &st) == 0 && S_ISDIR(st.st_mode));
}

static int print(char **argv, int argc, const struct wanted *w)
{
    enum format format = w->format;
    enum form form = argc > 0 ? (enum form)(mu_parse_word(argv[0], forms) + 1) : RUN;
    int words = form != RUN;

    if (form == RUN && argc > 0 && holds_ledgers(argv[0]))
        form = PROFILE;
    if (argc - words < 1)
        return usage("no file given", "");
    if (form == RUN && argc > 1)
        return usage(
            "several files need muster report speedup or profile; give one file, not "
            "also ",
            argv[1]);
    if (wrong_format(form, format))
        return usage(wrong_format(form, format), "");
    if (w->step >= 0 && (form != PROFILE || format != HTML))
        return usage("--step is for the page of ledgers: profile --format html", "");
    if (w->job && form != PROFILE)
        return usage("--job is for ledgers", "");
    if (form == SPEEDUP)
        return compare(argv + words, argc - words, format);
    if (form == PROFILE)
        return profile(argv + words, argc - words, w);
    return show(argv[0], format);
}

int main(int argc, char **argv)
{
    static const struct option names[] = { { "format", required_argument, NULL, 'f' },
                                           { "step", required_argument, NULL, 's' },
                                           { "job", required_argument, NULL, 'j' },
                                           { "help", no_argument, NULL, 'h' },
                                           { NULL, 0, NULL, 0 } };
    struct wanted w = { TEXT, -1, NULL };
    struct mu_err err = { 0 };
    int option, format, rc;
    long step;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":h", names, NULL)) != -1) {
        if (option == 'h') {
            help();
            return 0;
        }
        if (option == 's') {
            if (mu_parse_int("--step", optarg, 0, INT_MAX, &step, &err) < 0)
                return usage(err.text, "");
            w.step = (int)step;
            continue;
        }
        if (option == 'j') {
            w.job = optarg;
            continue;
        }
        if (option != 'f')
            return usage("this option is unknown or lacks its value: ",
                         argv[optind - 1]);
        format = mu_parse_word(optarg, formats);
        if (format < 0)
            return usage("--format is text, json, html or trace, not ", optarg);
        w.format = (enum format)format;
    }
    rc = print(argv + optind, argc - optind, &w);
    if (fflush(stdout) == EOF || ferror(stdout)) {
        perror("muster report: standard output");
        return 1;
    }
    return rc;
}
