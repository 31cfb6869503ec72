/* SPDX-License-Identifier: BSD-3-Clause */
/* samples.c - what a node's GPUs did, as muster monitor records it for muster report */
#include "runtime/tools/samples.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "runtime/base/array.h"
#include "runtime/base/fresh.h"
#include "runtime/base/parse.h"
#include "runtime/tools/profile.h"

#define MAGIC "muster-samples 1"
#define DOMAIN_END 4 /* characters of the domain that all writers have */
#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

static const char *from_domain(const char *gpu)
{
    const char *colon = strchr(gpu, ':');

    return colon && colon - gpu > DOMAIN_END ? colon - DOMAIN_END : gpu;
}

bool mu_same_gpu(const char *a, const char *b)
{
    return strcasecmp(from_domain(a), from_domain(b)) == 0;
}

/* ---- Write ----------------------------------------------------------------------- */

void mu_samples_head(FILE *to)
{
    fputs(MAGIC
          "\n# seconds\thost\tgpu\tutilization\twatts\tmhz\tused_mib\ttotal_mib\n",
          to);
}

void mu_sample_print(const struct mu_sample *s, FILE *to)
{
    fprintf(to, "%.3f\t%s\t%s", s->when, s->host, s->gpu);
    for (int i = 0; i < MU_FIGURES; i++)
        if (s->figure[i] < 0)
            fputs("\t-", to);
        else
            fprintf(to, "\t%.10g", s->figure[i]);
    putc('\n', to);
}

/* ---- Read ------------------------------------------------------------------------ */

static bool read_number(const char *text, double *out)
{
    struct mu_err err = { 0 };

    *out = -1;
    return strcmp(text, "-") == 0 ||
           mu_parse_double("figure", text, 0, 1e12, out, &err) == 0;
}

static bool parse(char *line, struct mu_sample *s)
{
    char *rest = line, *when = mu_parse_next(&rest, '\t');
    char *host = mu_parse_next(&rest, '\t'), *gpu = mu_parse_next(&rest, '\t');

    if (!gpu || !read_number(when, &s->when) || s->when < 0 ||
        !mu_copy(s->host, sizeof s->host, host) || !mu_copy(s->gpu, sizeof s->gpu, gpu))
        return false;
    for (int i = 0; i < MU_FIGURES; i++) {
        const char *field = mu_parse_next(&rest, '\t');

        if (!field || !read_number(field, &s->figure[i]))
            return false;
    }
    return true; /* a later release may write more fields */
}

static int read_lines(FILE *f, const char *path, struct mu_sample **list, size_t *n,
                      struct mu_err *err)
{
    char line[512];

    if (!fgets(line, sizeof line, f) || strcmp(line, MAGIC "\n") != 0)
        return mu_err_set(err, EINVAL,
                          "%s: this is no file of samples: line 1 is not '" MAGIC "'",
                          path);
    for (int number = 2; number <= MU_SAMPLES_MOST && fgets(line, sizeof line, f);
         number++) {
        struct mu_sample s;
        size_t end = strcspn(line, "\n");

        if (line[end] != '\n' && feof(f))
            return 0;
        line[end] = '\0';
        if (line[0] == '#')
            continue;
        if (!parse(line, &s))
            return mu_err_set(err, EINVAL, "%s:%d: this line is no sample", path,
                              number);
        if (mu_array_room(list, sizeof s, *n) < 0)
            return mu_err_set(err, ENOMEM, "%s: no memory", path);
        (*list)[(*n)++] = s;
    }
    return 0;
}

int mu_samples_read(const char *path, struct mu_sample **list, size_t *n,
                    struct mu_err *err)
{
    int fd = mu_regular_open(path, err), rc;
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");

    if (!f) {
        if (fd >= 0)
            close(fd);
        return fd < 0 ? -1 : mu_err_set(err, ENOMEM, "%s: no memory", path);
    }
    rc = read_lines(f, path, list, n, err);
    fclose(f);
    return rc;
}

/* ---- Medians --------------------------------------------------------------------- */

static int by_gpu(const struct mu_sample *a, const char *host, const char *gpu)
{
    int order = strcmp(a->host, host);

    return order ? order : strcasecmp(from_domain(a->gpu), from_domain(gpu));
}

static int by_gpu_and_time(const void *one, const void *other)
{
    const struct mu_sample *a = one, *b = other;
    int order = by_gpu(a, b->host, b->gpu);

    return order ? order : ORDER(a->when, b->when);
}

void mu_samples_sort(struct mu_sample *list, size_t n)
{
    if (n > 0)
        qsort(list, n, sizeof *list, by_gpu_and_time);
}

/* The first sample of this GPU at this moment or later. */
static size_t find(const struct mu_sample *list, size_t n, const char *host,
                   const char *gpu, double from)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = by_gpu(&list[middle], host, gpu);

        if (order < 0 || (order == 0 && list[middle].when < from))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

double mu_samples_median(const struct mu_sample *list, size_t n, const char *host,
                         const char *gpu, enum mu_figure figure, double from, double to)
{
    size_t first = find(list, n, host, gpu, from), known = 0;
    double *value = malloc((n - first + 1) * sizeof *value), median;

    for (size_t i = first;
         value && i < n && by_gpu(&list[i], host, gpu) == 0 && list[i].when <= to; i++)
        if (list[i].figure[figure] >= 0)
            value[known++] = list[i].figure[figure];
    median = value ? mu_profile_median(value, known) : -1;
    free(value);
    return median;
}
