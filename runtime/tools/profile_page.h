/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_page.h - the page of a job's collectives while it is written
 *
 *   profile_html.c     the page, and its tables
 *   profile_plots.c    its plots
 *   profile_placement.c   hosts, NUMA nodes and ranks as boxes
 */
#ifndef MU_PROFILE_PAGE_H
#define MU_PROFILE_PAGE_H

#include "runtime/tools/profile.h"

struct mu_page {
    const struct mu_profile *p;
    FILE *to;
    struct mu_err err; /* of the first plot that could not be drawn */
};

/* Each writes a heading and a figure, or in its place why there is none. */
void mu_page_placement(struct mu_page *g);
void mu_page_steps(struct mu_page *g);
void mu_page_timeline(struct mu_page *g, int step);
void mu_page_stragglers(struct mu_page *g);
/* Of libmuster's first object that has buckets. */
void mu_page_buckets(struct mu_page *g);
void mu_page_busbw(struct mu_page *g);

#endif
