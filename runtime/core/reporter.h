/* SPDX-License-Identifier: BSD-3-Clause */
/* reporter.h - one death, one sentence: which rank reports how a job ends, when, and in
 * which words
 *
 * Several ranks and threads see one death, each in its own way: a connection ends, a
 * process is missing, an answer does not arrive, a collective fails. Each of them asks
 * here for its turn. When its time has come, and no other rank has decided before, it
 * reports. All waits of a failing job are deadlines of this table.
 */
#ifndef MU_REPORTER_H
#define MU_REPORTER_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/err.h"

/* ---- Turns ---------------------------------------------------------------------- */

/* What a rank has seen. */
enum mu_sight {
    /* Before the ranks are connected: no rank can ask another one. */
    MU_SAW_EARLY_DEATH,   /* place: how many ranks are nearer to the dead one */
    MU_SAW_EARLY_FAILURE, /* of this rank, or of one that is late; place: this rank */
    MU_SAW_EARLY_UNNAMED, /* a rank is late that another rank may be able to name */

    /* Connected: the root decides. Other ranks report to it, and end the job themselves
     * when no decision arrives. place: among the children of one parent.
     */
    MU_SAW_FAILURE,       /* a child died, or this rank failed */
    MU_SAW_UNNAMED,       /* this rank failed; a death may be the cause. The root waits
                             until all ranks have answered. */
    MU_SAW_PARENT_END,    /* the connection to the parent has ended */
    MU_SAW_OVERDUE,       /* at the root: the records of all ranks are requested */
    MU_SAW_PARENT_SILENT, /* it must acknowledge an overdue wait */
    MU_SAW_ROOT_SILENT,   /* an overdue wait must lead to a decision */
    MU_SAW_ELSEWHERE,     /* the rank to blame waits in another group, also too long */

    /* The thread that called libmuster. */
    MU_SAW_CALL_FAIL, /* the reason must arrive from the control connections */
    MU_SAW_NO_WORLD,  /* it fails before there are other ranks */
    MU_SAW_DECISION,  /* the reason is final */
    MU_NSIGHTS
};

struct mu_view {
    enum mu_sight sight;
    int place;
    bool root;      /* no rank is above this one */
    bool second;    /* the parent is the root */
    bool immediate; /* the ranks survive a death: each rank acts on it at once */
    bool leaving;   /* it has said goodbye: all may have left in order, and it asks the
                       rank that decides */
    bool mine;      /* this rank has decided */
    bool printed;   /* another world has reported it */
    bool cut_off;   /* the other ranks may go on without this side */
    bool returns;   /* the error is returned: on_failure, or the ranks survive it */
};

enum mu_deed {
    MU_DEED_REPORT, /* print the sentence, end the step */
    MU_DEED_END,    /* end the step: the rank that prints was expected to do so */
    MU_DEED_LEAVE,  /* print the sentence, end this process only */
    MU_DEED_RETURN, /* neither */
};

struct mu_turn {
    double wait; /* seconds; nothing is done when another rank decides before */
    enum mu_deed deed;
};

/* How long the rank that reports waits at most until the others have written what they
 * print: they are killed when the step ends. On a busy machine a rank may have no
 * processor for some tenths of a second.
 */
#define MU_WRITE_SECONDS 0.5

struct mu_turn mu_reporter_turn(const struct mu_view *view);

/* ---- Sentences ------------------------------------------------------------------ */

enum mu_death {
    MU_DEATH_NONE,
    MU_DEATH_EARLY,       /* it ended before all ranks had met */
    MU_DEATH_ENDED,       /* it ended later */
    MU_DEATH_UNREACHABLE, /* its host or the link to it is dead */
    MU_DEATH_SILENT,      /* it is connected, and does not answer */
};

struct mu_rank_name {
    int rank;
    const char *host; /* "": unknown */
    int pid;          /* 0: unknown */
};

/* "rank 3 (node b, pid 71)"; returns its length. */
size_t mu_rank_name_text(const struct mu_rank_name *who, char *text, size_t len);
/* How a connection's error shows a death; 0: end of file. */
enum mu_death mu_death_of_errno(int error);
/* "rank 3 (node b, pid 71) died or left" */
void mu_death_phrase(enum mu_death death, const struct mu_rank_name *who, char *text,
                     size_t len);
/* The sentence: with the phrase, its consequence, and what the reporter `by` was doing
 * ("waits for bucket 7 of step 1204", or "").
 */
void mu_death_text(enum mu_death death, const struct mu_rank_name *who,
                   const struct mu_rank_name *by, const char *doing, char *text,
                   size_t len);
/* The same as MUSTER_EPEER, of a reporter that was doing nothing. Returns -1. */
int mu_death_err(enum mu_death death, const struct mu_rank_name *who,
                 struct mu_err *err);
/* "rank 3 (node b) ended the job: WHY" */
void mu_abort_text(const struct mu_rank_name *who, const char *why, char *text,
                   size_t len);
/* MUSTER_ERENDEZVOUS. who: "rank 3", "ranks 3, 5"; all on node host, "": not known.
 * Returns -1.
 */
int mu_late_err(const char *who, const char *host, double seconds, struct mu_err *err);

#endif
