/* SPDX-License-Identifier: BSD-3-Clause */
/* elastic.h - a training in which ranks die, for the tests of going on with fewer */
#ifndef TEST_ELASTIC_H
#define TEST_ELASTIC_H

#include "tests/unit/forked.h"

#define STEPS 12
#define SMALL 64
#define LARGE 100000 /* beyond what travels in a desk: the zero-copy path */

enum phase {
    NEVER,
    BETWEEN_STEPS,
    GIVES_UP,       /* there too, but by exit(muster_report(m)) behind a failed call */
    IN_BUCKET,      /* its first bucket has started, the others wait for the second */
    AFTER_SYNC,     /* at once behind sync: some may not have come out of it yet */
    WITH_THE_VOTES, /* stopped when it has handed the votes of its node on, and killed
                       once others had their answer: what comes from above gets no
                       further */
    IN_FINALIZE,
    ALL_IN_FINALIZE, /* when each rank has entered it */
    WITH_THE_RESULT, /* the same, when some ranks have learned of it, others not */
    BEHIND_ANOTHER,  /* `after` seconds behind the first death: in the agreement */
};

struct death {
    int rank, step;
    enum phase phase;
    double after;
};

struct elastic_case {
    const char *name;
    struct forked_world world;
    struct death death[3];
    int left;           /* ranks at the end */
    int status;         /* of the survivors */
    const char *expect; /* on standard error */
    double slow; /* seconds that rank 1 computes in the step of the first death */
};

/* What the ranks tell the test, and each other. */
struct told {
    pid_t pid[MU_FORK_MAX];
    double died_at;              /* the first */
    double good_at[MU_FORK_MAX]; /* the first good step after MUSTER_ESHRUNK */
    double sum[MU_FORK_MAX];     /* of the weights at the end */
    int steps[MU_FORK_MAX], shrinks[MU_FORK_MAX], size[MU_FORK_MAX];
    uint64_t position[MU_FORK_MAX]; /* of the sampler */
    bool counting, stopped;         /* WITH_THE_VOTES: rank 0 counts; it has both */
};

struct run {
    const struct elastic_case *c;
    struct told *told;
    int origin;
    /* Called by each rank before each step; may be NULL. */
    void (*before_step)(struct muster *m, const struct run *run, int step);
};

/* What each rank does; arg is a struct run. */
int elastic_train(struct muster *m, int rank, void *arg);

#endif
