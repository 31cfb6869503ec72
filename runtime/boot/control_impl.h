/* SPDX-License-Identifier: BSD-3-Clause */
/* control_impl.h - inside of control: links, frames, state
 *
 *   control.c         open, close, the thread
 *   control_call.c    what the api calls
 *   control_meet.c    connects to the parent and to the children
 *   control_link.c    frames over one connection
 *   control_ask.c     collects the flight records, and judges
 *   control_frame.c   what a frame leads to
 *   control_rule.c    what a death, a failure or a deadline leads to
 *   control_sum.c     what the root puts together
 *   control_end.c     what ranks have printed is written before the job ends
 */
#ifndef MU_CONTROL_IMPL_H
#define MU_CONTROL_IMPL_H

#include <pthread.h>
#include <sys/types.h>

#include "runtime/base/fork.h"
#include "runtime/boot/control.h"
#include "runtime/core/reporter.h"

#define MU_CONTROL_WIDTH 16 /* children of a node in the tree of nodes */

enum mu_frame_type {
    MU_FRAME_GATHER = 1, /* up: what a rank calls it, and behind its NUL its bytes */
    MU_FRAME_ALL,        /* down: the bytes of all ranks */
    MU_FRAME_AGREE,      /* up: hash and bitmap of a step */
    MU_FRAME_ABSENT,     /* down: what every rank lacks */
    MU_FRAME_FAIL,       /* up: struct mu_complaint */
    MU_FRAME_END,        /* down: the same, decided */
    MU_FRAME_OVERDUE,    /* up: somebody's wait is over its deadline */
    MU_FRAME_ACK,        /* down one hop: the parent lives */
    MU_FRAME_ASK,        /* down: send your flight record */
    MU_FRAME_RECORD,     /* up: here it is */
    MU_FRAME_STUCK,      /* up: the flight record of a rank whose wait lasts */
    MU_FRAME_EXTEND_UP,
    MU_FRAME_EXTEND,  /* down: seconds, a double */
    MU_FRAME_ALARM,   /* down: a failure was noticed, the job may end at any moment */
    MU_FRAME_WRITTEN, /* up, after END: so far down all have written what they print */
};

/* Native byte order: the hello refuses peers whose order differs. */
struct mu_frame {
    uint32_t type, len;
    int32_t from;
    uint32_t flags;
    uint64_t number;
};
#define MU_FRAME_LAST 1u  /* of GATHER and ALL: the goodbye */
#define MU_FRAME_FIRST 2u /* ... not all ranks may have connected yet */

struct mu_buffer {
    char *bytes;
    size_t start, end, room;
};

struct mu_link {
    int fd;    /* -1: not yet there, or gone */
    int pidfd; /* of a local peer, or -1 */
    int rank;
    struct mu_buffer in, out;
    bool reading; /* mu_link_read is on the stack */
    bool writing; /* EPOLLOUT is enabled */
    bool gone;    /* was there, and is closed */
    bool asked;   /* a request for its record is not answered */
    bool written; /* MU_FRAME_WRITTEN has arrived */
    int error;    /* errno that ended it, 0: end of file */
};

/* Why the ranks cannot go on; also sent as it is. */
struct mu_complaint {
    int32_t status;  /* muster_status; MUSTER_OK: they can */
    int32_t rank;    /* the guilty one, -1 unknown */
    int32_t death;   /* enum mu_death: how it died, MU_DEATH_NONE: see text */
    int32_t printed; /* 1: see struct mu_ending */
    char text[MU_ERR_TEXT];
};

/* This rank decides then, if no rank above has. */
struct mu_pending {
    double at; /* seconds of the monotonic clock, 0: nothing */
    struct mu_complaint why;
};

struct mu_sum; /* control_sum.c */

/* The newest of a gather, or of an agreement. */
struct mu_result {
    uint64_t number;
    char *bytes; /* NULL: out of memory, or taken */
    size_t len;
    bool fresh;
};

struct mu_control {
    struct mu_control_env env;
    /* What a frame leads to; set before the first link opens. link NULL: this rank is
     * the root, and has sent it up itself, or passed it up.
     */
    void (*on_frame)(struct mu_control *c, struct mu_link *link,
                     const struct mu_frame *frame, const char *data);
    int rank, size, parent; /* parent -1: the root */
    int *parent_of;         /* by rank */
    int *child;             /* ranks */
    int nchildren, nlinked;
    struct mu_link up, *down; /* down[i] to child[i] */

    int epoll_fd, wake_fd;

    pthread_t thread;
    bool thread_started, stop;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    double armed; /* the thread wakes up then anyway */

    /* Gathers, and absent-gradient agreements. */
    uint64_t gathers; /* done by this rank's callers */
    struct mu_result all, absent;
    struct mu_sum *sums; /* root: the open ones */
    bool leaving;        /* this rank has said goodbye */
    bool goodbye;        /* all ranks have: ends of file are expected */

    /* Deadlines, seconds of the monotonic clock; 0: none. */
    double waiting_since, extended_until;
    double patience;  /* of the wait, seconds */
    double extension; /* seconds, for the backend; extension_new: not reported yet */
    bool extension_new;
    char waiting_for[MU_FLIGHT_WHAT];
    bool shown;  /* the root has the record of this wait */
    bool waited; /* a wait has begun since the thread last looked at the deadlines */
    bool overdue;
    double put_off; /* root: the verdict waits for that of another group; seconds */
    struct mu_pending pending[MU_NSIGHTS]; /* by what this rank has seen */

    /* At the root, while it collects: see control_ask.c. */
    const struct mu_flight **records;
    int nrecords;
    uint64_t round;        /* of requests */
    bool roll_call;        /* pending[MU_SAW_UNNAMED] ends when all have answered */
    bool probing;          /* no wait is over its deadline yet */
    int apart;             /* the rank to blame in the last round, -1: none */
    double apart_since;    /* ... and its wait */
    struct mu_flight seen; /* the collectives of ranks whose waits last */
    bool differs;          /* one number had two names among them */
    /* The last wait for which the order of collectives was compared. */
    char probed_for[MU_FLIGHT_WHAT];

    struct mu_forkable fork;

    bool alarm, alarmed;  /* a failure was noticed; the hook was called */
    bool ended, reported; /* ending is final; the hook was called */
    struct mu_ending ending;

    /* The end: see control_end.c. */
    double end_by; /* `ended` is called then at the latest */
    bool orphaned; /* the parent has died or is stopped: ask the rank that decides */
    int orphans;   /* of the dead rank, at the one that decides: not yet connected */
};

/* ---- control_call.c: with the lock ---- */
/* Fill err from how the job ended. Returns -1. */
int mu_control_failure(const struct mu_control *c, struct mu_err *err);
/* One gather from begin to end; returns the blob, which the caller frees. */
char *mu_control_gather_blob(struct mu_control *c, const char *what, uint32_t flags,
                             const void *data, size_t len, size_t *blob_len,
                             struct mu_err *err);

#define MU_LOOK_SECONDS 0.05 /* between checks for a rank that has died */

/* ---- control_meet.c: after the thread has started ---- */
int mu_control_connect_parent(struct mu_control *c, double until, struct mu_err *err);
int mu_control_await_children(struct mu_control *c, double until, struct mu_err *err);

/* ---- control_link.c: all with the lock ---- */
enum mu_source { MU_ON_WAKE, MU_ON_LINK, MU_ON_PIDFD };
int mu_control_watch(struct mu_control *c, int fd, enum mu_source kind, int index);
/* Make the thread look at its deadlines anew. */
void mu_control_wake(struct mu_control *c);
/* Index of a link in events: children from 0, the parent is -1. */
struct mu_link *mu_control_link(struct mu_control *c, int index);
int mu_link_open(struct mu_control *c, int index, int fd, int rank, pid_t pid);
void mu_link_close(struct mu_control *c, struct mu_link *link);
void mu_link_send(struct mu_control *c, struct mu_link *link, enum mu_frame_type type,
                  int from, uint32_t flags, uint64_t number, const void *data,
                  size_t len);
/* Write what waits; false: the peer is gone. */
bool mu_link_flush(struct mu_control *c, struct mu_link *link);
/* Read and act on all frames; false: the peer is gone. */
bool mu_link_read(struct mu_control *c, struct mu_link *link);
/* To the root: from this rank; the frame of a rank below. */
void mu_control_send_up(struct mu_control *c, enum mu_frame_type type, uint32_t flags,
                        uint64_t number, const void *data, size_t len);
void mu_control_pass_up(struct mu_control *c, const struct mu_frame *f,
                        const void *data);
void mu_control_send_down(struct mu_control *c, enum mu_frame_type type, uint32_t flags,
                          uint64_t number, const void *data, size_t len);

/* ---- control_rule.c: all with the lock ---- */
void mu_control_lost(struct mu_control *c, struct mu_link *link);
/* The job fails: the root decides, another rank reports it to its parent. */
void mu_control_complain(struct mu_control *c, const struct mu_complaint *why);
/* Decide when this rank's turn comes, if no rank above has decided by then. */
void mu_control_take_turn(struct mu_control *c, enum mu_sight sight,
                          const struct mu_complaint *why);
/* The reason is final. reporter: this rank prints it. */
void mu_control_decide(struct mu_control *c, const struct mu_complaint *why,
                       bool reporter);
void mu_control_alarm_below(struct mu_control *c);
void mu_control_own_record(struct mu_control *c, struct mu_flight *out);

/* ---- control_ask.c: all with the lock ---- */
/* A wait of this rank, or of one further down, is over its deadline. */
void mu_control_overdue_now(struct mu_control *c);
/* Request the flight records of all ranks further down. */
void mu_control_ask_below(struct mu_control *c, uint64_t round);
/* Send this rank's flight record to the root, which judges when it has all. */
void mu_control_answer(struct mu_control *c, uint64_t round);
void mu_control_record_in(struct mu_control *c, int from, uint64_t round,
                          const void *data, size_t len);
void mu_control_forget_records(struct mu_control *c);
/* Act on deadlines that passed; returns the next one, 0 none. */
double mu_control_deadlines(struct mu_control *c, double now);
/* When the wait that has begun lasts. */
double mu_control_stuck_at(const struct mu_control *c);
void mu_control_stuck_in(struct mu_control *c, const void *data, size_t len);

/* ---- control_frame.c: all with the lock ---- */
void mu_control_frame(struct mu_control *c, struct mu_link *link,
                      const struct mu_frame *frame, const char *data);

/* ---- control_end.c: with the lock, which is released for hooks and waits ---- */
/* The job has failed: one step on the way to `ended`. True: call it. */
bool mu_control_may_end(struct mu_control *c);
/* The reason is decided here: the dead rank's children will connect to this rank. */
void mu_control_expect_orphans(struct mu_control *c, const struct mu_complaint *why);
/* The parent has died: connect to the rank that decides, for its reason. Where this
 * rank is leaving and that one has left, all ranks have said goodbye. False: the parent
 * is stopped, and the job ends.
 */
bool mu_control_rejoin(struct mu_control *c);

/* ---- control_sum.c: what the root puts together; all with the lock ---- */
/* What one rank sends, f->len bytes of data; the last one's makes the result, or a
 * difference goes to *out. what: the name of a gather, else "".
 */
void mu_control_sum_add(struct mu_control *c, const struct mu_frame *f,
                        const char *what, const void *data, struct mu_complaint *out);
/* A result has arrived or is made: for this rank's caller, and for the ranks below. */
void mu_control_result(struct mu_control *c, const struct mu_frame *f,
                       const char *data);
void mu_control_sums_clear(struct mu_control *c);

#endif
