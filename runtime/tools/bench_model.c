/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_model.c - a model's gradient list and compute, from a text file */
#include "runtime/tools/bench_model.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/array.h"
#include "runtime/base/parse.h"
#include "runtime/core/dtype.h"

static const char *const dtypes[] = { "f32", "f64", "f16", "bf16", NULL };

/* Make room for one more element of an array, in zeroed memory. */
static void *grown(void *array, int n, size_t size)
{
    if (mu_array_extend(&array, size, n, n + 1) < 0) {
        fprintf(stderr, "muster bench: out of memory\n");
        exit(MUSTER_EMEMORY);
    }
    return array;
}

static void at_least(struct bench_model *m, size_t elements)
{
    if (elements > m->elements)
        m->elements = elements;
}

static int add_param(struct bench_model *m, const char *name, size_t count)
{
    m->param = grown(m->param, m->nparams, sizeof *m->param);
    m->param[m->nparams].name = strdup(name);
    m->param[m->nparams].count = count;
    m->param[m->nparams].dtype = m->dtype;
    m->nparams++;
    m->layer[m->nlayers - 1].nparams++;
    m->grad_bytes += count * mu_dtype_size(m->dtype);
    return 0;
}

static int add_gemm(struct bench_model *m, struct bench_gemm g)
{
    m->gemm = grown(m->gemm, m->ngemms, sizeof *m->gemm);
    m->gemm[m->ngemms++] = g;
    m->layer[m->nlayers - 1].ngemms++;
    at_least(m, (size_t)g.m * g.k * g.batch);
    at_least(m, (size_t)g.k * g.n * g.batch);
    at_least(m, (size_t)g.m * g.n * g.batch);
    return 0;
}

static int add_pass(struct bench_model *m, size_t elements)
{
    m->pass = grown(m->pass, m->npasses, sizeof *m->pass);
    m->pass[m->npasses++] = elements;
    m->layer[m->nlayers - 1].npasses++;
    at_least(m, elements);
    return 0;
}

static int add_layer(struct bench_model *m)
{
    m->layer = grown(m->layer, m->nlayers, sizeof *m->layer);
    m->layer[m->nlayers].param = m->nparams;
    m->layer[m->nlayers].gemm = m->ngemms;
    m->layer[m->nlayers].pass = m->npasses;
    m->nlayers++;
    return 0;
}

/* Read one line; -1 when it is none of those in bench_model.h. */
static int line(struct bench_model *m, const char *text)
{
    struct bench_gemm g;
    char word[128];
    size_t count;
    char rest;
    int dtype;

    if (sscanf(text, " dtype %127s %c", word, &rest) == 1) {
        dtype = mu_parse_word(word, dtypes);
        if (dtype < 0 || m->nparams > 0)
            return -1;
        m->dtype = (enum muster_dtype)dtype;
        return 0;
    }
    if (sscanf(text, " layer %127s %c", word, &rest) == 1)
        return add_layer(m);
    if (m->nlayers == 0)
        return -1;
    if (sscanf(text, " param %127s %zu %c", word, &count, &rest) == 2)
        return add_param(m, word, count);
    if (sscanf(text, " gemm %d %d %d %d %c", &g.m, &g.n, &g.k, &g.batch, &rest) == 4)
        return g.m > 0 && g.n > 0 && g.k > 0 && g.batch > 0 ? add_gemm(m, g) : -1;
    if (sscanf(text, " pass %zu %c", &count, &rest) == 1)
        return add_pass(m, count);
    return -1;
}

static int read_model(const char *path, struct bench_model *model, struct mu_err *err)
{
    FILE *f = fopen(path, "r");
    struct bench_model m = { 0 };
    char text[512];
    int number = 0, rc = 0;

    if (!f)
        return mu_err_set(err, MUSTER_EIO, "model file %s: %s", path, strerror(errno));
    while (rc == 0 && fgets(text, sizeof text, f)) {
        number++;
        text[strcspn(text, "#\n")] = '\0';
        if (text[strspn(text, " \t")] == '\0')
            continue;
        if (line(&m, text) < 0)
            rc = mu_err_set(
                err, MUSTER_EUSAGE,
                "model file %s, line %d: '%s' is not a line that muster-bench(1) "
                "lists, or is in the wrong place",
                path, number, text);
    }
    fclose(f);
    if (rc == 0 && m.nparams == 0)
        rc = mu_err_set(err, MUSTER_EUSAGE, "model file %s has no parameters", path);
    if (rc < 0)
        bench_model_clear(&m);
    else
        *model = m;
    return rc;
}

int bench_model_open(const char *name, struct bench_model *model, struct mu_err *err)
{
    char path[PATH_MAX];

    if (strchr(name, '/'))
        snprintf(path, sizeof path, "%s", name);
    else
        snprintf(path, sizeof path, "%s/%s.model", MUSTER_MODEL_DIR, name);
    return read_model(path, model, err);
}

void bench_model_clear(struct bench_model *m)
{
    for (int i = 0; i < m->nparams; i++)
        free((char *)m->param[i].name);
    free(m->layer);
    free(m->param);
    free(m->gemm);
    free(m->pass);
    *m = (struct bench_model){ 0 };
}
