/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_placement.c - where the ranks of a job run, as a picture
 *
 * A box for each host, in it one for each NUMA node, in that one for each rank whose
 * CPUs are there.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/tools/plot.h"
#include "runtime/tools/profile_page.h"

/* Hosts in the order of their first process, then NUMA nodes; unknown ones (0) first,
 * several (-1) last.
 */
struct place {
    int host; /* the first process of that host */
    int node;
    int file;
};

static int order_of(int node)
{
    return node < 0 ? 1 << 20 : node;
}

static int by_place(const void *one, const void *other)
{
    const struct place *a = one, *b = other;
    int order = (a->host > b->host) - (a->host < b->host);

    order = order ? order : order_of(a->node) - order_of(b->node);
    return order ? order : a->file - b->file;
}

static int first_of_host(const struct mu_profile *p, int file)
{
    int i = 0;

    while (strcmp(p->files[i].head->host, p->files[file].head->host) != 0)
        i++;
    return i;
}

static void begin_box(const char *name, const char *text, FILE *to)
{
    fprintf(to, "<div class=\"%s\"><b>", name);
    mu_plot_escape(text, to);
    fputs("</b>\n", to);
}

static void rank(const struct mu_profile *p, int file, FILE *to)
{
    const struct mu_ledger_head *head = p->files[file].head;
    bool remote = mu_profile_is_remote(head);

    fprintf(to, "<div class=\"rank%s\"><b>", remote ? " far" : "");
    if (p->parts[file].rank >= 0)
        fprintf(to, "rank %d</b>", p->parts[file].rank);
    else
        fprintf(to, "process %d</b>", head->pid);
    if (head->cpus > 0)
        fprintf(to, "<br>%d CPU%s", head->cpus, mu_plural(head->cpus));
    if (head->gpu[0]) {
        fputs("<br>GPU ", to);
        mu_plot_escape(head->gpu, to);
    }
    if (remote)
        fprintf(to, "<br>which is at node %d", head->gpu_node - 1);
    if (head->nic[0]) {
        fputs("<br>", to);
        mu_plot_escape(head->nic, to);
    }
    fputs("</div>\n", to);
}

void mu_page_placement(struct mu_page *g)
{
    const struct mu_profile *p = g->p;
    struct place *place = calloc((size_t)p->nfiles, sizeof *place);

    fputs("<h2>Placement</h2>\n<figure id=\"placement\">\n", g->to);
    for (int i = 0; place && i < p->nfiles; i++)
        place[i] = (struct place){ first_of_host(p, i), p->files[i].head->cpu_node, i };
    if (place)
        qsort(place, (size_t)p->nfiles, sizeof *place, by_place);
    for (int i = 0; place && i < p->nfiles; i++) {
        bool host = i == 0 || place[i].host != place[i - 1].host;
        char node[32];

        if (host || place[i].node != place[i - 1].node) {
            fputs(i == 0 ? "" : host ? "</div></div>\n" : "</div>\n", g->to);
            if (host)
                begin_box("host", p->files[place[i].host].head->host, g->to);
            snprintf(node, sizeof node, "NUMA node %d", place[i].node - 1);
            begin_box("node",
                      place[i].node > 0   ? node
                      : place[i].node < 0 ? "several NUMA nodes"
                                          : "NUMA node unknown",
                      g->to);
        }
        rank(p, place[i].file, g->to);
    }
    fputs(place ? "</div></div>\n</figure>\n" : "</figure>\n", g->to);
    free(place);
}
