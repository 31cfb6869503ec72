/* SPDX-License-Identifier: BSD-3-Clause */
/* test_topologies.c - every recorded machine: what the readers find and what is
 * planned.
 *
 * Folders: tests/data, and MUSTER_EXTRA_TOPOLOGIES with the same layout (hwloc-xml/,
 * nccl-xml/, smi-topo/, hwloc-sysfs/, expected/). A machine with expected/KIND-NAME.tsv
 * must give those GPUs, NUMA nodes, CPUs and NICs, and a plan of one task per GPU whose
 * CPUs lie inside, are whole cores, disjoint and evenly shared; one with
 * expected/sysfs-NAME.numa.tsv those NUMA nodes. The others load or fail with a
 * sentence that names the file.
 */
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "spank/core/plan/plan.h"
#include "spank/hw/load/node_load.h"

#define ROWS 128

struct row {
    char busid[MU_BUSID_LEN], numa[16], cpus[4096], nics[2048], path[8];
    bool used;
};

static int tests, passed;
static char why[2048];

__attribute__((format(printf, 1, 2))) static bool wrong(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    return false;
}

static void result(bool ok, const char *name)
{
    tests++;
    passed += ok;
    printf("%sok %d - %s\n", ok ? "" : "not ", tests, name);
    if (!ok)
        printf("# %s\n", why);
    fflush(stdout);
}

static void column(char **rest, char *out, size_t len)
{
    char *text = mu_parse_next(rest, '\t');

    snprintf(out, len, "%s", text ? text : "");
}

static int read_rows(const char *path, struct row *row)
{
    static char line[16384];
    FILE *in = fopen(path, "r");
    int n = -1;

    while (in && fgets(line, sizeof line, in)) {
        char *rest = line, index[32];

        line[strcspn(line, "\n")] = '\0';
        if (n >= 0 && n < ROWS) {
            memset(&row[n], 0, sizeof row[n]);
            column(&rest, index, sizeof index);
            column(&rest, row[n].busid, sizeof row[n].busid);
            column(&rest, row[n].numa, sizeof row[n].numa);
            column(&rest, row[n].cpus, sizeof row[n].cpus);
            column(&rest, row[n].nics, sizeof row[n].nics);
            column(&rest, row[n].path, sizeof row[n].path);
        }
        n++;
    }
    if (in)
        fclose(in);
    return n;
}

/* The row of a GPU: by bus id, or by position where there is none. */
static struct row *row_of(struct row *row, int n, const struct mu_gpu *gpu, int index)
{
    if (!gpu->busid[0])
        return index < n && strcmp(row[index].busid, "-") == 0 ? &row[index] : NULL;
    for (int i = 0; i < n; i++)
        if (!row[i].used && strcmp(row[i].busid, gpu->busid) == 0) {
            row[i].used = true;
            return &row[i];
        }
    return NULL;
}

static void nic_names(const struct mu_node *node, const int *nic, int n, char *out,
                      size_t len)
{
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; i < n && used < len; i++) {
        const struct mu_nic *x = &node->nics[nic[i]];

        used +=
            (size_t)snprintf(out + used, len - used, "%s%s%s%s", i ? "," : "", x->name,
                             x->name[0] && x->busid[0] ? "@" : "", x->busid);
    }
    if (n == 0)
        snprintf(out, len, "-");
}

static int compare_words(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The same names, in any order. */
static bool same_set(const char *a, const char *b)
{
    char *copy[2] = { strdup(a), strdup(b) }, *word[2][256];
    int n[2] = { 0, 0 };
    bool same;

    for (int i = 0; i < 2; i++) {
        char *rest = copy[i];

        while (n[i] < 256 && (word[i][n[i]] = mu_parse_next(&rest, ',')))
            n[i]++;
        qsort(word[i], (size_t)n[i], sizeof word[i][0], compare_words);
    }
    same = n[0] == n[1];
    for (int i = 0; same && i < n[0]; i++)
        same = strcmp(word[0][i], word[1][i]) == 0;
    free(copy[0]);
    free(copy[1]);
    return same;
}

static bool check_gpu(const struct mu_node *node, int g, const struct row *row)
{
    const struct mu_gpu *gpu = &node->gpus[g];
    enum mu_nearness best = MU_NEAR_NONE;
    int nic[256], n = 0;
    char numa[16] = "-", names[4096];
    struct mu_cpuset want = { { 0 } };

    if (gpu->numa >= 0)
        snprintf(numa, sizeof numa, "%d", node->numas[gpu->numa].os_index);
    if (strcmp(numa, row->numa) != 0)
        return wrong("GPU %d: NUMA node %s, expected %s", g, numa, row->numa);
    if (strcmp(row->cpus, "-") == 0 ? gpu->local_known : !gpu->local_known)
        return wrong("GPU %d: locality is %sknown", g, gpu->local_known ? "" : "not ");
    if (row->cpus[0] >= '0' && row->cpus[0] <= '9')
        mu_cpuset_parse(row->cpus, &want, NULL);
    if (!mu_cpuset_equal(&want, &gpu->local))
        return wrong("GPU %d: local CPUs differ from %s", g, row->cpus);
    for (int i = 0; i < node->nnics; i++)
        if (node->gpu_nic[g * node->nnics + i] < best)
            best = node->gpu_nic[g * node->nnics + i];
    for (int i = 0; i < node->nnics && best != MU_NEAR_NONE; i++)
        if (node->gpu_nic[g * node->nnics + i] == best)
            nic[n++] = i;
    nic_names(node, nic, n, names, sizeof names);
    if (!same_set(names, row->nics) || strcmp(mu_nearness_name(best), row->path) != 0)
        return wrong("GPU %d: nearest NICs %s %s, expected %s %s", g, names,
                     mu_nearness_name(best), row->nics, row->path);
    return true;
}

static int whole_cores(const struct mu_node *node, const struct mu_cpuset *set)
{
    int cores = 0;

    for (int i = 0; i < node->ncores; i++) {
        int in = 0;

        for (int c = 0; c < node->cores[i].ncpus; c++)
            in += mu_cpuset_has(set, node->cores[i].cpu[c]);
        if (in != 0 && in != node->cores[i].ncpus)
            return -1;
        cores += in > 0;
    }
    return cores;
}

/* Task g has GPU g; its CPUs are checked against the row and the other tasks. */
static bool check_slots(const struct mu_node *node, const struct mu_plan *plan,
                        struct row **rows)
{
    char names[4096];

    for (int t = 0; t < plan->nslots; t++) {
        const struct mu_slot *slot = &plan->slots[t];
        struct mu_cpuset want = { { 0 } };
        int cores = whole_cores(node, &slot->cpus);

        if (slot->ngpus != 1 || slot->gpu_node[0] != t)
            return wrong("task %d does not have GPU %d", t, t);
        if (cores < 1)
            return wrong("task %d: %s", t, cores < 0 ? "part of a core" : "no CPU");
        if (rows[t]->cpus[0] >= '0' && rows[t]->cpus[0] <= '9' &&
            (mu_cpuset_parse(rows[t]->cpus, &want, NULL) < 0 ||
             !mu_cpuset_inside(&slot->cpus, &want)))
            return wrong("task %d: CPUs outside of %s", t, rows[t]->cpus);
        for (int o = 0; o < t; o++) {
            int theirs = whole_cores(node, &plan->slots[o].cpus);

            if (mu_cpuset_intersects(&slot->cpus, &plan->slots[o].cpus))
                return wrong("tasks %d and %d share CPUs", o, t);
            if (strcmp(rows[o]->cpus, rows[t]->cpus) == 0 &&
                (theirs - cores > 1 || theirs < cores))
                return wrong("tasks %d and %d have %d and %d cores", o, t, theirs,
                             cores);
        }
        nic_names(node, slot->nic, slot->nnics, names, sizeof names);
        if (!same_set(names, rows[t]->nics) ||
            strcmp(mu_nearness_name(slot->nic_path), rows[t]->path) != 0)
            return wrong("task %d: NICs %s %s, expected %s %s", t, names,
                         mu_nearness_name(slot->nic_path), rows[t]->nics,
                         rows[t]->path);
    }
    return true;
}

static bool check_plan(const struct mu_node *node, struct row **rows)
{
    struct mu_alloc *alloc = calloc(1, sizeof *alloc);
    struct mu_plan plan = { 0 };
    struct mu_opts opts;
    struct mu_err err = { 0 };
    bool ok;

    mu_opts_defaults(&opts);
    mu_node_cpus(node, &alloc->cpus);
    alloc->ngpus = alloc->ntasks = node->ngpus;
    for (int i = 0; i < node->ngpus; i++)
        alloc->gpu_node[i] = i;
    ok = mu_plan_make(node, alloc, &opts, &plan, &err) == 0;
    if (!ok)
        wrong("no plan: %s", err.text);
    else
        ok = check_slots(node, &plan, rows);
    mu_plan_clear(&plan);
    free(alloc);
    return ok;
}

static bool check_machine(const char *file, const char *expected)
{
    static struct row row[ROWS];
    struct row *of[ROWS];
    struct mu_node node = { 0 };
    struct mu_err err = { 0 };
    int n = read_rows(expected, row);
    bool ok = true;

    if (n < 1 || n > ROWS)
        return wrong("%s cannot be read", expected);
    if (mu_node_load_file(file, &node, &err) < 0)
        return wrong("%s", err.text);
    if (node.ngpus != n)
        ok = wrong("%d GPUs, expected %d", node.ngpus, n);
    for (int g = 0; ok && g < node.ngpus; g++) {
        of[g] = row_of(row, n, &node.gpus[g], g);
        ok = of[g] ? check_gpu(&node, g, of[g])
                   : wrong("GPU %d, %s, is not expected", g, node.gpus[g].label);
    }
    if (ok)
        ok = check_plan(&node, of);
    mu_node_clear(&node);
    return ok;
}

/* A machine without expected answers. */
static bool check_loads(const char *file)
{
    struct mu_node node = { 0 };
    struct mu_err err = { 0 };

    if (mu_node_load_file(file, &node, &err) == 0) {
        mu_node_clear(&node);
        return true;
    }
    printf("# %s\n", err.text);
    if (!strstr(err.text, strrchr(file, '/') + 1) || strchr(err.text, '\n'))
        return wrong("the message does not name the file: %s", err.text);
    return err.code == EINVAL ? true : wrong("error code %d", err.code);
}

static bool exists(const char *path)
{
    return access(path, R_OK) == 0;
}

static void run_file(const char *top, const char *kind, const char *folder,
                     const char *file)
{
    char path[4096], expected[4096], stem[512], name[1024];

    snprintf(path, sizeof path, "%s/%s/%s", top, folder, file);
    snprintf(stem, sizeof stem, "%.*s", (int)(strrchr(file, '.') - file), file);
    snprintf(expected, sizeof expected, "%s/expected/%s-%s.tsv", top, kind, stem);
    if (!exists(expected)) /* hwloc-NAME.xml has hwloc-NAME.tsv */
        snprintf(expected, sizeof expected, "%s/expected/%s.tsv", top, stem);
    if (exists(expected)) {
        snprintf(name, sizeof name, "%s/%s: as expected, and planned so", folder, file);
        result(check_machine(path, expected), name);
    } else {
        snprintf(name, sizeof name, "%s/%s: loads, or is refused by name", folder,
                 file);
        result(check_loads(path), name);
    }
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && strchr(entry->d_name, '.') != NULL;
}

static void run_folder(const char *top, const char *kind, const char *folder)
{
    struct dirent **entry = NULL;
    char path[4096];
    int n;

    snprintf(path, sizeof path, "%s/%s", top, folder);
    n = scandir(path, &entry, visible, by_name);
    for (int i = 0; i < n; i++) {
        run_file(top, kind, folder, entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
}

/* The folder that holds sys/ in an unpacked tree. */
static bool find_root(const char *dir, int depth, char *out, size_t len)
{
    struct dirent **entry = NULL;
    char path[4096];
    bool found;
    int n;

    snprintf(path, sizeof path, "%s/sys/devices/system/cpu", dir);
    if (exists(path)) {
        snprintf(out, len, "%s", dir);
        return true;
    }
    found = false;
    n = depth > 0 ? scandir(dir, &entry, NULL, by_name) : 0;
    for (int i = 0; i < n; i++) {
        if (snprintf(path, sizeof path, "%s/%s", dir, entry[i]->d_name) <
                (int)sizeof path &&
            !found && entry[i]->d_name[0] != '.')
            found = find_root(path, depth - 1, out, len);
        free(entry[i]);
    }
    free(entry);
    return found;
}

static bool check_numas(const struct mu_node *node, const char *expected)
{
    static char line[16384];
    FILE *in = fopen(expected, "r");
    int n = 0, line_no = 0;
    bool ok = in != NULL;

    while (ok && fgets(line, sizeof line, in)) {
        char *rest = line, os[16], cpus[8192];
        struct mu_cpuset want = { { 0 } };
        int at = -1;

        if (line_no++ == 0)
            continue;
        n++;
        line[strcspn(line, "\n")] = '\0';
        column(&rest, os, sizeof os);
        column(&rest, cpus, sizeof cpus);
        for (int i = 0; i < node->nnumas; i++)
            if (node->numas[i].os_index == atoi(os))
                at = i;
        if (strcmp(cpus, "none") != 0)
            mu_cpuset_parse(cpus, &want, NULL);
        if (at < 0)
            ok = wrong("no NUMA node %s", os);
        else if (!mu_cpuset_equal(&want, &node->numas[at].cpus))
            ok = wrong("NUMA node %s: CPUs differ from %s", os, cpus);
    }
    if (in)
        fclose(in);
    if (ok && node->nnumas != n)
        ok = wrong("%d NUMA nodes, expected %d", node->nnumas, n);
    return ok;
}

static bool check_tree(const char *archive, const char *expected)
{
    char dir[] = "/tmp/muster-sysfs.XXXXXX", root[4096], command[8192];
    struct mu_node node = { 0 };
    struct mu_err err = { 0 };
    bool ok;

    if (!mkdtemp(dir))
        return wrong("no folder in /tmp: %s", strerror(errno));
    snprintf(command, sizeof command, "tar -C '%s' -xjf '%s'", dir, archive);
    ok = system(command) == 0 && find_root(dir, 4, root, sizeof root);
    if (!ok)
        wrong("%s cannot be unpacked", archive);
    setenv("HWLOC_FSROOT", root, 1);
    setenv("HWLOC_COMPONENTS", "linux,stop", 1);
    setenv("HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES", "1", 1);
    setenv("HWLOC_HIDE_ERRORS", "2", 1);
    if (ok && mu_node_load_live(&node, &err) < 0)
        ok = wrong("%s", err.text);
    if (ok)
        ok = check_numas(&node, expected);
    mu_node_clear(&node);
    unsetenv("HWLOC_FSROOT");
    unsetenv("HWLOC_COMPONENTS");
    unsetenv("HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES");
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (system(command) != 0)
        printf("# %s was not removed\n", dir);
    return ok;
}

static void run_trees(const char *top)
{
    static const char end[] = ".tar.bz2";
    struct dirent **entry = NULL;
    char path[4096], archive[4096], expected[4096], name[1024];
    int n;

    if (snprintf(path, sizeof path, "%s/hwloc-sysfs", top) >= (int)sizeof path)
        return;
    n = scandir(path, &entry, visible, by_name);
    for (int i = 0; i < n; i++) {
        const char *file = entry[i]->d_name;

        if (snprintf(archive, sizeof archive, "%s/%s", path, file) >=
            (int)sizeof archive)
            continue;
        snprintf(expected, sizeof expected, "%s/expected/sysfs-%.*s.numa.tsv", top,
                 (int)(strlen(file) - strlen(end)), file);
        snprintf(name, sizeof name, "hwloc-sysfs/%s: NUMA nodes and their own CPUs",
                 file);
        if (exists(expected))
            result(check_tree(archive, expected), name);
        free(entry[i]);
    }
    free(entry);
}

static void run_top(const char *top)
{
    run_folder(top, "hwloc", "hwloc-xml");
    run_folder(top, "nccl", "nccl-xml");
    run_folder(top, "smi", "smi-topo");
    run_trees(top);
}

int main(void)
{
    const char *source = getenv("MUSTER_SRCDIR");
    const char *extra = getenv("MUSTER_EXTRA_TOPOLOGIES");
    char top[4096];

    snprintf(top, sizeof top, "%s/tests/data", source ? source : ".");
    run_top(top);
    if (extra && extra[0])
        run_top(extra);
    printf("1..%d\n# %d of %d\n", tests, passed, tests);
    return tests > 0 && passed == tests ? 0 : 1;
}
