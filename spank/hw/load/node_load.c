/* SPDX-License-Identifier: BSD-3-Clause */
/* node_load.c - which reader a saved machine needs, and the calls of node_load.h */
#include "spank/hw/load/node_load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spank/hw/machine/machine.h"
#include "spank/hw/io/xml.h"

#define LARGEST (64u << 20)

static int read_all(int fd, const char *path, char **text, size_t *len,
                    struct mu_err *err)
{
    size_t size = 0, room = 0;
    char *buf = NULL;

    for (;;) {
        ssize_t n;

        if (size + 1 >= room) {
            char *more = realloc(buf, room = room ? room * 2 : 65536);

            if (!more) {
                free(buf);
                return mu_err_set(err, ENOMEM, "%s: no memory to read it", path);
            }
            buf = more;
        }
        n = read(fd, buf + size, room - size - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            free(buf);
            return mu_err_set(err, errno, "%s: %s", path, strerror(errno));
        }
        if (n == 0)
            break;
        size += (size_t)n;
        if (size > LARGEST) {
            free(buf);
            return mu_err_set(err, EFBIG, "%s: larger than 64 MiB, not a saved machine",
                              path);
        }
    }
    buf[size] = '\0';
    *text = buf;
    *len = size;
    return 0;
}

int mu_read_file(const char *path, char **text, size_t *len, struct mu_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), rc;
    struct stat st;

    if (fd < 0)
        return mu_err_set(err, errno, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        close(fd);
        return mu_err_set(err, EISDIR, "%s: %s", path, strerror(EISDIR));
    }
    rc = read_all(fd, path, text, len, err);
    close(fd);
    return rc;
}

/* What the file is, by its first bytes. */
static const char *what_bytes(const char *text)
{
    static const char *const known[][2] = {
        { "\x1f\x8b", " but a compressed one: unpack it" },
        { "\xfd"
          "7zXZ",
          " but a compressed one: unpack it" },
        { "BZh", " but a compressed one: unpack it" },
        { "\x28\xb5\x2f\xfd", " but a compressed one: unpack it" },
        { "\xff\xfe", " in UTF-8 but in UTF-16: save it as UTF-8" },
        { "\xfe\xff", " in UTF-8 but in UTF-16: save it as UTF-8" },
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strncmp(text, known[i][0], strlen(known[i][0])) == 0)
            return known[i][1];
    return "";
}

/* By the first element; no element: the text of nvidia-smi. */
static int read_text(const char *path, const char *text, size_t len,
                     const struct mu_node *known, struct mu_machine *machine,
                     struct mu_err *err)
{
    struct mu_xml_doc doc;
    int rc;

    if (strspn(text, " \t\r\n") == len)
        return mu_err_set(err, EINVAL, "%s: line 1: the file is empty", path);
    if (memchr(text, '\0', len) || !strncmp(text, "\x1f\x8b", 2))
        return mu_err_set(err, EINVAL, "%s: line 1: not a text file%s", path,
                          what_bytes(text));
    if (text[strspn(text, "\xef\xbb\xbf \t\r\n")] != '<')
        return mu_read_smi(path, text, len, machine, err);
    rc = mu_xml_root_parse(path, text, len, &doc, err);
    if (rc == 0 && mu_xml_elem_is(&doc, 0, "topology"))
        rc = mu_read_hwloc_xml(path, text, len, machine, err);
    else if (rc == 0 && mu_xml_elem_is(&doc, 0, "system"))
        rc = mu_read_nccl_xml(path, text, len, known, machine, err);
    else if (rc == 0)
        rc = mu_err_set(err, EINVAL,
                        "%s: line %d: neither hwloc's <topology> nor NCCL's <system>",
                        path, doc.elem[0].line);
    mu_xml_doc_clear(&doc);
    return rc;
}

static int load_file(const char *path, const struct mu_node *known,
                     struct mu_machine *machine, struct mu_err *err)
{
    char *text;
    size_t len;
    int rc;

    memset(machine, 0, sizeof *machine);
    if (mu_read_file(path, &text, &len, err) < 0)
        return -1;
    rc = read_text(path, text, len, known, machine, err);
    free(text);
    return rc;
}

int mu_machine_load_file(const char *path, struct mu_machine *machine,
                         struct mu_err *err)
{
    return load_file(path, NULL, machine, err);
}

int mu_machine_load_live(struct mu_machine *machine, struct mu_err *err)
{
    memset(machine, 0, sizeof *machine);
    return mu_read_hwloc_live(machine, err);
}

int mu_machine_load_site(const char *path, struct mu_machine *machine,
                         struct mu_err *err)
{
    struct mu_machine live;
    struct mu_err first = { 0 };
    int rc = mu_machine_load_file(path, machine, &first);

    if (rc == 0 && machine->node.ncores > 0 && machine->node.ngpus > 0)
        return 0;
    if (mu_machine_load_live(&live, NULL) < 0)
        return rc == 0 ? 0 : mu_err_set(err, first.code, "%s", first.text);
    if (rc == 0)
        mu_machine_clear(machine);
    rc = load_file(path, &live.node, machine, err);
    mu_machine_clear(&live);
    return rc;
}

/* Keep the planner's part and free the tree. */
static void keep_node(struct mu_machine *machine, struct mu_node *node)
{
    *node = machine->node;
    memset(&machine->node, 0, sizeof machine->node);
    mu_machine_clear(machine);
}

int mu_node_load_live(struct mu_node *node, struct mu_err *err)
{
    struct mu_machine machine;

    if (mu_machine_load_live(&machine, err) < 0)
        return -1;
    keep_node(&machine, node);
    return 0;
}

int mu_node_load_file_of(const char *path, const struct mu_node *known,
                         struct mu_node *node, struct mu_err *err)
{
    struct mu_machine machine;

    if (load_file(path, known, &machine, err) < 0)
        return -1;
    keep_node(&machine, node);
    return 0;
}

int mu_node_load_site(const char *path, struct mu_node *node, struct mu_err *err)
{
    struct mu_machine machine;

    if (mu_machine_load_site(path, &machine, err) < 0)
        return -1;
    keep_node(&machine, node);
    return 0;
}

int mu_node_load_file(const char *path, struct mu_node *node, struct mu_err *err)
{
    return mu_node_load_file_of(path, NULL, node, err);
}
