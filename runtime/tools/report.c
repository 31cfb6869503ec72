/* SPDX-License-Identifier: BSD-3-Clause */
/* report.c - muster report: show a run, or compare runs */
#include "runtime/tools/report.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

enum { EXIT_USAGE = 2, EXIT_INPUT = 3 };
enum format { TEXT, JSON, HTML };

static const char *const formats[] = { "text", "json", "html", NULL };

static void help(void)
{
    fputs("usage: muster report [--format text|json|html] FILE\n"
          "       muster report speedup [--format text|json] FILE...\n"
          "       muster report --help\n"
          "\n"
          "FILE is the result that muster-train wrote.\n"
          "The first form shows one run, and how each rank spent its time.\n"
          "html is one page with plots.\n"
          "The second form compares runs of the same work on several numbers of\n"
          "ranks: speedup, parallel efficiency, and efficiency per core.\n"
          "\n"
          "Exit status: 0 done; 1 output cannot be written; 2 wrong usage;\n"
          "3 a file cannot be read, or the runs cannot be compared\n",
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

static int compare(char **paths, int n, enum format format)
{
    struct mu_run *runs = calloc((size_t)n, sizeof *runs);
    struct mu_speedup *table = NULL;
    struct mu_err err = { 0 };
    int loaded = 0, lines = -1, rc = 0;

    while (runs && loaded < n && mu_run_load(&runs[loaded], paths[loaded], &err) == 0)
        loaded++;
    if (loaded == n)
        lines = mu_speedup_make(runs, n, &table, &err);
    if (lines < 0) {
        fprintf(stderr, "muster report: %s\n", runs ? err.text : "no memory");
        rc = EXIT_INPUT;
    } else if (format == JSON) {
        rc = print_json(mu_speedup_json(table, lines));
    } else {
        mu_speedup_text(table, lines, runs[0].devices, stdout);
    }
    free(table);
    for (int i = 0; i < loaded; i++)
        mu_run_clear(&runs[i]);
    free(runs);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct option names[] = { { "format", required_argument, NULL, 'f' },
                                           { "help", no_argument, NULL, 'h' },
                                           { NULL, 0, NULL, 0 } };
    int option, format = TEXT, speedup, rc;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":h", names, NULL)) != -1) {
        if (option == 'h') {
            help();
            return 0;
        }
        if (option != 'f')
            return usage("this option is unknown or lacks its value: ",
                         argv[optind - 1]);
        format = mu_parse_word(optarg, formats);
        if (format < 0)
            return usage("--format is text, json or html, not ", optarg);
    }
    argv += optind;
    argc -= optind;
    speedup = argc > 0 && strcmp(argv[0], "speedup") == 0;
    if (argc - speedup < 1)
        return usage("no file given", "");
    if (!speedup && argc > 1)
        return usage(
            "several files need muster report speedup; give one file, not also ",
            argv[1]);
    if (speedup && format == HTML)
        return usage("speedup is printed as text or json", "");
    rc = speedup ? compare(argv + 1, argc - 1, format) : show(argv[0], format);
    if (fflush(stdout) == EOF || ferror(stdout)) {
        perror("muster report: standard output");
        return 1;
    }
    return rc;
}
