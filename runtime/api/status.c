/* SPDX-License-Identifier: BSD-3-Clause */
/* status.c - names of statuses, versions and element sizes; the last error */
#include "runtime/api/impl.h"

#include <stdarg.h>
#include <stdio.h>

#include "config.h"
#include "runtime/core/dtype.h"
#include "runtime/core/status.h"
#include "runtime/core/text.h"
#include "runtime/recover/streams.h"

/* The error of muster_init, before a struct muster exists. */
static struct {
    struct mu_err err;
    int status;
    bool reported_elsewhere; /* by task 0 of the step */
} init_failure;

void mu_fail_reported_elsewhere(bool elsewhere)
{
    init_failure.reported_elsewhere = elsewhere;
}

const char *muster_strstatus(int status)
{
    static const char *const names[] = {
        "usage",  "rendezvous",   "ranks disagree", "peer died",    "timeout",
        "device", "input/output", "out of memory",  "not a number", "internal",
    };

    if (status == MUSTER_OK)
        return "ok";
    if (status == MUSTER_ESHRUNK)
        return "fewer ranks";
    if (status < MUSTER_EUSAGE || status > MUSTER_EINTERNAL)
        return "unknown status";
    return names[status - MUSTER_EUSAGE];
}

const char *muster_version(void)
{
    return PACKAGE_VERSION;
}

size_t muster_dtype_size(enum muster_dtype dtype)
{
    return mu_dtype_size(dtype);
}

int mu_fail(struct muster *m, int status, const char *fmt, ...)
{
    struct mu_err *err = m ? &m->err : &init_failure.err;
    size_t n = 0;
    va_list ap;

    if (m && m->group.root)
        mu_text_add(err->text, sizeof err->text, &n, "group '%s': ", m->group.name);
    va_start(ap, fmt);
    vsnprintf(err->text + n, sizeof err->text - n, fmt, ap);
    va_end(ap);
    if (m)
        m->start_into = NULL;
    err->code = status;
    *(m ? &m->status : &init_failure.status) = status;
    return status;
}

int mu_fail_err(struct muster *m, const struct mu_err *err)
{
    struct mu_err e = *err;

    if (m && m->comm.world)
        mu_recover(&m->recover, &e);
    return mu_fail(m, mu_status_known(e.code) ? e.code : MUSTER_EINTERNAL, "%s",
                   e.text);
}

const char *muster_error(const struct muster *m)
{
    return m ? m->err.text : init_failure.err.text;
}

int muster_report(const struct muster *m)
{
    int status = m ? m->status : init_failure.status;

    if (status == MUSTER_OK) {
        fprintf(stderr, "muster: muster_report was called, but no call has failed\n");
        return MUSTER_EINTERNAL;
    }
    mu_streams_flush(0.5); /* exit would flush only after the job has ended */
    mu_leave_reported(status, muster_error(m));
    if (m && m->comm.world)
        mu_streams_print("rank %d (node %s): %s", m->comm.world->rank,
                         m->comm.world->host_of[m->comm.world->rank], m->err.text);
    else if (m || !init_failure.reported_elsewhere)
        mu_streams_print("%s", muster_error(m));
    return status;
}
