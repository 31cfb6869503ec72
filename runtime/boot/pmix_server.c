/* SPDX-License-Identifier: BSD-3-Clause */
/* pmix_server.c - PMIx variables are set, but their server cannot be reached: why? */
#include "runtime/boot/pmix_server.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/core/text.h"
#include "runtime/muster.h"

static void add_directory(char *text, size_t len, size_t *n, const char *name,
                          const char *path)
{
    struct stat st;

    if (!path)
        return;
    mu_text_add(text, len, n, ", %s=%.120s ", name, path);
    if (stat(path, &st) < 0)
        mu_text_add(text, len, n, "(%s)", strerror(errno));
    else
        mu_text_add(text, len, n, "(owner: user id %u)", (unsigned)st.st_uid);
}

int mu_pmix_server_refuse(const struct mu_launch *launch, const char *reason,
                          struct mu_err *err)
{
    const char *uri = launch->pmix_server_uri;
    const char *address = uri ? strchr(uri, ';') : NULL;
    char where[512] = "";
    size_t n = 0;

    if (uri)
        mu_text_add(where, sizeof where, &n, " at %.120s", address ? address + 1 : uri);
    add_directory(where, sizeof where, &n, "PMIX_SERVER_TMPDIR",
                  launch->pmix_server_tmpdir);
    add_directory(where, sizeof where, &n, "TMPDIR", launch->tmpdir);
    return mu_err_set(
        err, MUSTER_ERENDEZVOUS,
        "%s%.80s is set, but the PMIx server%s cannot be reached by user "
        "id %u (%s): the shell may be left over from a step that ended, or a container "
        "or another user hides the server; start the program with `srun --mpi=pmix`, "
        "or unset the PMIX_ variables (or set MUSTER_SINGLE=1) for one process",
        launch->pmix_namespace ? "PMIX_NAMESPACE=" : "PMIX_SERVER_URI",
        launch->pmix_namespace ? launch->pmix_namespace : "", where,
        (unsigned)geteuid(), reason);
}
