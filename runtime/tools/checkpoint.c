/* SPDX-License-Identifier: BSD-3-Clause */
/* checkpoint.c - muster checkpoint: list, verify or export a checkpoint */
#include <errno.h>
#include <fnmatch.h>
#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "runtime/checkpoint/ckfolder.h"
#include "runtime/tools/checkpoint_items.h"
#include "runtime/tools/safetensors.h"

enum { EXIT_OUTPUT = 1, EXIT_USAGE = 2, EXIT_INPUT = 3 };
#define RULES 64

struct request {
    const char *output; /* of export */
    bool json;          /* of ls */
    struct mu_dtype_rule rule[RULES];
    int nrules;
};

static void help(void)
{
    fputs("usage: muster checkpoint ls [--format text|json] FILE\n"
          "       muster checkpoint verify FILE\n"
          "       muster checkpoint export [--dtype [NAME=]TYPE]... --output OUT FILE\n"
          "       muster checkpoint --help\n"
          "\n"
          "FILE is NAME-STEP.muster or NAME-latest.muster; its shards lie beside it.\n"
          "ls prints step, kind, and the name and size of each item.\n"
          "verify reads every byte and compares it with its checksum.\n"
          "export writes OUT in the safetensors format. TYPE is the element type of\n"
          "the items whose name matches NAME (with * and ?), or of all: F64 F32 F16\n"
          "BF16 F8_E4M3 F8_E5M2 I64 I32 I16 I8 U64 U32 U16 U8 BOOL. Without it an\n"
          "item is bytes (U8).\n"
          "\n"
          "Exit status: 0 done; 1 output cannot be written; 2 wrong usage; 3 the\n"
          "checkpoint is incomplete, damaged, cannot be read, or its items do not fit "
          "--dtype\n",
          stdout);
}

static int usage(const char *why, const char *what)
{
    fprintf(stderr, "muster checkpoint: %s%s; see muster checkpoint --help\n", why,
            what);
    return EXIT_USAGE;
}

static int failed(struct mu_err *err, int status)
{
    mu_make_printable(err->text);
    fprintf(stderr, "muster checkpoint: %s\n", err->text);
    return status;
}

/* FILE may be the link to the newest one. */
static int open_set(struct mu_ckset *set, const char *file, struct mu_err *err)
{
    char path[PATH_MAX], folder[PATH_MAX], name[MU_CKFILE_NAME];
    uint64_t step;

    *set = (struct mu_ckset){ 0 };
    if (!realpath(file, path))
        return mu_err_set(err, errno, "%s cannot be read: %s", file, strerror(errno));
    if (!mu_ckfolder_split(path, folder, sizeof folder, name, sizeof name, &step))
        return mu_err_set(err, EINVAL,
                          "%s is no checkpoint: give a file NAME-STEP.muster or "
                          "NAME-latest.muster",
                          file);
    return mu_ckset_open(set, folder, name, step, err);
}

/* The kind as text for a terminal and for JSON: a file may hold any bytes. */
static const char *kind_of(const struct mu_ckset *set, char kind[MU_CKFILE_NAME])
{
    mu_copy(kind, MU_CKFILE_NAME, mu_ckfile_meta(set->record)->kind);
    mu_make_printable(kind);
    return kind;
}

static int print_json(const struct mu_ckset *set, const struct mu_ckitem *items, int n)
{
    const struct mu_ckmeta *meta = mu_ckfile_meta(set->record);
    json_t *list = json_array(), *step, *all;
    char kind[MU_CKFILE_NAME];
    int rc;

    /* jansson has no integer above 2^63-1. */
    step = meta->step <= INT64_MAX ? json_integer((json_int_t)meta->step)
                                   : json_real((double)meta->step);
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:I}", "name", items[i].name,
                                              "bytes", (json_int_t)items[i].bytes));
    all = json_pack("{s:s, s:o, s:s, s:i, s:i, s:o}", "file", set->path, "step", step,
                    "kind", kind_of(set, kind), "ranks", (int)meta->world, "files",
                    (int)set->nfiles, "items", list);
    rc = !all || json_dumpf(all, stdout, JSON_INDENT(2)) < 0;
    putchar('\n');
    json_decref(all);
    return rc ? EXIT_OUTPUT : 0;
}

/* One line about all of it, in ls and verify. */
static void print_total(const struct mu_ckset *set, const struct mu_ckitem *items,
                        int n, const char *word)
{
    const struct mu_ckmeta *meta = mu_ckfile_meta(set->record);
    char kind[MU_CKFILE_NAME];
    uint64_t bytes = 0;

    for (int i = 0; i < n; i++)
        bytes += items[i].bytes;
    printf("%s: step %llu%s, kind '%s', %u rank%s, %u file%s, %d item%s, %llu bytes\n",
           set->path, (unsigned long long)meta->step, word, kind_of(set, kind),
           meta->world, mu_plural(meta->world), set->nfiles, mu_plural(set->nfiles), n,
           mu_plural(n), (unsigned long long)bytes);
}

static int list(struct mu_ckset *set, const struct request *r)
{
    struct mu_ckitem *items;
    struct mu_err err;
    int n = mu_ckitems_list(set, &items, &err), rc = 0, width = 4;

    if (n < 0)
        return failed(&err, EXIT_INPUT);
    mu_make_printable(set->path);
    for (int i = 0; i < n; i++)
        mu_make_printable(items[i].name);
    if (r->json) {
        rc = print_json(set, items, n);
    } else {
        print_total(set, items, n, "");
        for (int i = 0; i < n; i++)
            if ((int)strlen(items[i].name) > width)
                width = (int)strlen(items[i].name);
        printf("\n%-*s %15s\n", width, "item", "bytes");
        for (int i = 0; i < n; i++)
            printf("%-*s %15llu\n", width, items[i].name,
                   (unsigned long long)items[i].bytes);
    }
    free(items);
    return rc;
}

static int verify(struct mu_ckset *set, const struct request *r)
{
    struct mu_ckitem *items = NULL;
    struct mu_err err;
    int n = mu_ckitems_list(set, &items, &err), rc = 0;

    if (n < 0 || mu_ckitems_read(set, NULL, NULL, &err) < 0)
        rc = failed(&err, EXIT_INPUT);
    else
        print_total(set, items, n, ", whole");
    free(items);
    return rc;
}

static int export(struct mu_ckset *set, const struct request *r)
{
    struct mu_err err;

    if (mu_safetensors_write(set, r->rule, r->nrules, r->output, &err) < 0)
        return failed(&err, strncmp(err.text, r->output, strlen(r->output)) == 0
                                ? EXIT_OUTPUT
                                : EXIT_INPUT);
    printf("%s: written as safetensors\n", r->output);
    return 0;
}

static const struct command {
    const char *name;
    int (*run)(struct mu_ckset *set, const struct request *r);
} commands[] = { { "ls", list }, { "verify", verify }, { "export", export } };

/* text: TYPE or NAME=TYPE; it is cut. */
static int add_rule(struct request *r, char *text)
{
    char *equals = strrchr(text, '=');
    const char *dtype = equals ? equals + 1 : text;

    if (mu_safetensors_size(dtype) == 0)
        return usage("--dtype takes [NAME=]TYPE with a type of --help, not ", text);
    if (r->nrules == RULES)
        return usage("--dtype may be given at most 64 times", "");
    if (equals)
        *equals = '\0';
    r->rule[r->nrules++] = (struct mu_dtype_rule){ equals ? text : "*", dtype };
    return 0;
}

/* 0, or an exit status; -1 after --help. */
static int parse(int argc, char **argv, struct request *r)
{
    static const struct option names[] = { { "format", required_argument, NULL, 'f' },
                                           { "dtype", required_argument, NULL, 'd' },
                                           { "output", required_argument, NULL, 'o' },
                                           { "help", no_argument, NULL, 'h' },
                                           { NULL, 0, NULL, 0 } };
    static const char *const formats[] = { "text", "json", NULL };
    int option, rc = 0;

    opterr = 0;
    while (rc == 0 && (option = getopt_long(argc, argv, ":h", names, NULL)) != -1)
        switch (option) {
        case 'h':
            help();
            return -1;
        case 'd':
            rc = add_rule(r, optarg);
            break;
        case 'o':
            r->output = optarg;
            break;
        case 'f':
            if (mu_parse_word(optarg, formats) < 0)
                return usage("--format is text or json, not ", optarg);
            r->json = mu_parse_word(optarg, formats) == 1;
            break;
        default:
            return usage("this option is unknown or lacks its value: ",
                         argv[optind - 1]);
        }
    return rc;
}

int main(int argc, char **argv)
{
    const struct command *command = NULL;
    struct request r = { 0 };
    struct mu_ckset set;
    struct mu_err err;
    int rc = parse(argc, argv, &r);

    if (rc != 0)
        return rc < 0 ? 0 : rc;
    argv += optind;
    argc -= optind;
    for (size_t i = 0; argc > 0 && i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[0], commands[i].name) == 0)
            command = &commands[i];
    if (!command)
        return usage("the first word is ls, verify or export, not ",
                     argc > 0 ? argv[0] : "(none)");
    if (argc != 2)
        return usage("give one file after ", argv[0]);
    if ((command->run == export) != (r.output != NULL))
        return usage("export needs --output, and only export takes it", "");
    if (r.output && fnmatch("*.@(muster|shard)", r.output, FNM_EXTMATCH) == 0)
        return usage("--output takes no name of a checkpoint's file: ", r.output);
    rc = open_set(&set, argv[1], &err) < 0 ? failed(&err, EXIT_INPUT)
                                           : command->run(&set, &r);
    mu_ckset_clear(&set);
    if (fflush(stdout) == EOF || ferror(stdout)) {
        perror("muster checkpoint: standard output");
        return EXIT_OUTPUT;
    }
    return rc;
}
