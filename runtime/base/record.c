/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/base/record.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

static const char *or_dash(const char *text)
{
    return text[0] ? text : "-";
}

int mu_record_encode(const struct mu_record *record, char *line, size_t len,
                     struct mu_err *err)
{
    char cpus[MU_RECORD_LINE / 2], mems[1024], fabric[32] = "", *text;
    int n, rc = 0;

    if (mu_cpuset_format(&record->cpus, cpus, sizeof cpus) >= (int)sizeof cpus ||
        mu_cpuset_format(&record->mems, mems, sizeof mems) >= (int)sizeof mems)
        return mu_err_set(err, ENOSPC, "the CPU list of task %d is too long",
                          record->task);
    if (record->fabric[0])
        snprintf(fabric, sizeof fabric, ";fabric=%s", record->fabric);
    n = asprintf(&text, "v=%d;task=%d;gpus=%s;cpus=%s;mems=%s;nics=%s;path=%s%s",
                 MU_RECORD_VERSION, record->task, or_dash(record->gpus), or_dash(cpus),
                 or_dash(mems), or_dash(record->nics), or_dash(record->path), fabric);
    if (n < 0)
        return mu_err_set(err, ENOMEM, "out of memory for the plan of task %d",
                          record->task);
    if ((size_t)n < len)
        memcpy(line, text, (size_t)n + 1);
    else
        rc = mu_err_set(err, ENOSPC, "the plan of task %d needs %d bytes", record->task,
                        n);
    free(text);
    return rc;
}

static int decode_text(const char *key, const char *value, char *out, size_t len,
                       struct mu_err *err)
{
    if (strcmp(value, "-") == 0)
        value = "";
    if (!mu_copy(out, len, value))
        return mu_err_set(err, EINVAL, "MUSTER_PLAN: %s is too long", key);
    return 0;
}

static int decode_set(const char *key, const char *value, struct mu_cpuset *out,
                      struct mu_err *err)
{
    if (mu_cpuset_parse(strcmp(value, "-") == 0 ? "" : value, out, err) < 0)
        return mu_err_context(err, "MUSTER_PLAN: %s", key);
    return 0;
}

static int decode_field(const char *key, const char *value, struct mu_record *r,
                        struct mu_err *err)
{
    long n;

    if (strcmp(key, "task") == 0) {
        if (mu_parse_int("MUSTER_PLAN: task", value, 0, INT_MAX, &n, err) < 0)
            return -1;
        r->task = (int)n;
    } else if (strcmp(key, "gpus") == 0) {
        return decode_text(key, value, r->gpus, sizeof r->gpus, err);
    } else if (strcmp(key, "cpus") == 0) {
        return decode_set(key, value, &r->cpus, err);
    } else if (strcmp(key, "mems") == 0) {
        return decode_set(key, value, &r->mems, err);
    } else if (strcmp(key, "nics") == 0) {
        return decode_text(key, value, r->nics, sizeof r->nics, err);
    } else if (strcmp(key, "path") == 0) {
        return decode_text(key, value, r->path, sizeof r->path, err);
    } else if (strcmp(key, "fabric") == 0) {
        return decode_text(key, value, r->fabric, sizeof r->fabric, err);
    }
    return 0;
}

int mu_record_decode(const char *line, struct mu_record *record, struct mu_err *err)
{
    static const struct mu_record empty;
    struct mu_record r = empty;
    char copy[MU_RECORD_LINE], *rest = copy, *field;

    if (!mu_copy(copy, sizeof copy, line))
        return mu_err_set(err, EINVAL, "MUSTER_PLAN is longer than %d bytes",
                          MU_RECORD_LINE);
    field = mu_parse_next(&rest, ';');
    if (strncmp(field, "v=", 2) != 0)
        return mu_err_set(err, EINVAL, "MUSTER_PLAN does not start with v=: '%.80s'",
                          field);
    if (strcmp(field + 2, "1") != 0)
        return mu_err_set(
            err, EINVAL,
            "MUSTER_PLAN has version %.20s, this program reads version %d: "
            "plugin and libmuster are of different releases",
            field + 2, MU_RECORD_VERSION);
    while ((field = mu_parse_next(&rest, ';'))) {
        char *value = strchr(field, '=');

        if (!value)
            return mu_err_set(err, EINVAL, "MUSTER_PLAN: field '%.80s' has no value",
                              field);
        *value++ = '\0';
        if (decode_field(field, value, &r, err) < 0)
            return -1;
    }
    *record = r;
    return 0;
}
