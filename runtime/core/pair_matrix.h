/* SPDX-License-Identifier: BSD-3-Clause */
/* pair_matrix.h - what was measured from each rank to each other one, and which of
 * these pairs are slow
 *
 * A pair is compared with the median of the pairs over the same kind of link, and with
 * the rating of the link where that is given. Its best repeat counts: what else runs on
 * a machine makes single repeats slow, a bad link makes all of them slow.
 */
#ifndef MU_PAIR_MATRIX_H
#define MU_PAIR_MATRIX_H

/* Slow is less than 1 / MU_PAIR_SLOW of the median rate, more than 1.5 times
 * MU_PAIR_SLOW the median latency, or less than MU_PAIR_RATED of the rating.
 */
#define MU_PAIR_SLOW 2
#define MU_PAIR_RATED 0.6
/* A repeat that takes so many times the median of its pair is an outlier. */
#define MU_PAIR_OUTLIER 2

enum mu_pair_link { MU_LINK_NODE, MU_LINK_NETWORK, MU_LINKS };

enum mu_pair_state {
    MU_PAIR_SKIPPED, /* not measured */
    MU_PAIR_OK,
    MU_PAIR_SLOW_RATE,    /* below the median of its link */
    MU_PAIR_SLOW_LATENCY, /* above the median of its link */
    MU_PAIR_SLOW_RATED,   /* below the rating of its link */
    MU_PAIR_WRONG,        /* other data arrived than were sent */
    MU_PAIR_OVERDUE,      /* no data arrived in time */
    MU_PAIR_STATES
};
/* "ok", "slow", ...: the column of the table. */
const char *mu_pair_state_name(enum mu_pair_state state);

struct mu_spread {
    double median, least, most;
};

struct mu_pair_figure {
    int from, to;
    enum mu_pair_link link;
    enum mu_pair_state state;
    struct mu_spread us;   /* latency one way */
    struct mu_spread rate; /* GB/s one way */
    struct mu_spread both; /* GB/s of each way, both at once */
    int outliers;          /* repeats of the rate one way */
};

/* Sorts the n values. */
struct mu_spread mu_spread_of(double *values, int n);
/* How many of n rates, sorted, are outliers. */
int mu_pair_outliers(const double *rates, int n);

/* rates[k]: of k + 1 pairs at once, all together. How many pairs add at least half of
 * what the first one carries, from the first on: the links that there are.
 */
int mu_lanes_that_add(const double *rates, int n);

/* Medians over the pairs of a link that were measured; 0: there are none. */
struct mu_pair_medians {
    int pairs;
    double us, rate, both;
    double least, most; /* of the rates */
};

struct mu_pair_limits {
    double slow;   /* MU_PAIR_SLOW, or another factor */
    double rating; /* GB/s one way, 0 unknown */
};

/* Fill in the medians, and the state of each pair that is slow. Returns how many are
 * slow; -1: no memory.
 */
int mu_pairs_judge(struct mu_pair_figure *figures, int n,
                   const struct mu_pair_limits *limits,
                   struct mu_pair_medians medians[MU_LINKS]);

#endif
