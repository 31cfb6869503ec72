/* SPDX-License-Identifier: BSD-3-Clause */
/* reporter.c - which rank reports how a job ends, when, and in which words */
#include "runtime/core/reporter.h"

#include <errno.h>

#include "runtime/core/text.h"
#include "runtime/muster.h"

#define PLACES 8 /* later places wait as long as this one */

/* ---- Turns ---------------------------------------------------------------------- */

struct rule {
    double wait;   /* seconds, of place 0 */
    double step;   /* more for each further place */
    double below;  /* more where a rank above can decide */
    double orphan; /* more where the parent's own parent can decide first */
    double ask;    /* more where another rank is asked first */
};

static const struct rule rules[MU_NSIGHTS] = {
    /* Slurm ends a step a second after a death. */
    [MU_SAW_EARLY_DEATH] = { .step = 0.3 },
    [MU_SAW_EARLY_FAILURE] = { .step = 0.2 },
    [MU_SAW_EARLY_UNNAMED] = { .wait = 3, .step = 0.2 },
    [MU_SAW_FAILURE] = { .below = 4 },
    /* The kernel reports a death when the process has ended, which takes a while. */
    [MU_SAW_UNNAMED] = { .wait = 1, .below = 4 },
    [MU_SAW_PARENT_END] = { .step = 0.5, .orphan = 1, .ask = 4 },
    [MU_SAW_OVERDUE] = { .wait = 2 },
    [MU_SAW_PARENT_SILENT] = { .wait = 4, .step = 0.5 },
    [MU_SAW_ROOT_SILENT] = { .wait = 8, .step = 0.5 },
    /* Later than two silent ranks of that group are found. */
    [MU_SAW_ELSEWHERE] = { .wait = 5 },
    [MU_SAW_CALL_FAIL] = { .wait = 15 },
};

/* How long the rank that reports may take to end this process. */
static const double other_ends = 5;

static struct mu_turn after_decision(const struct mu_view *view)
{
    if (view->returns)
        return (struct mu_turn){ 0, MU_DEED_RETURN };
    if (view->cut_off)
        return (struct mu_turn){ 0, MU_DEED_LEAVE };
    if (view->mine)
        return (struct mu_turn){ 0, view->printed ? MU_DEED_END : MU_DEED_REPORT };
    return (struct mu_turn){ other_ends, MU_DEED_END };
}

struct mu_turn mu_reporter_turn(const struct mu_view *view)
{
    const struct rule *rule = &rules[view->sight];
    struct mu_turn turn = { rule->wait, MU_DEED_REPORT };
    int place = view->place < PLACES ? view->place : PLACES;
    bool asks = view->leaving && !(view->second && place == 0);

    if (view->sight == MU_SAW_DECISION)
        return after_decision(view);
    if (view->returns)
        turn.deed = MU_DEED_RETURN;
    else if (view->sight == MU_SAW_NO_WORLD)
        turn.deed = MU_DEED_LEAVE;
    if (view->immediate && view->sight == MU_SAW_UNNAMED)
        turn.wait *= 2;
    if (!view->immediate)
        turn.wait += rule->step * place + (view->second ? 0 : rule->orphan) +
                     (asks ? rule->ask : 0);
    if (!view->root)
        turn.wait += rule->below;
    return turn;
}

/* ---- Sentences ------------------------------------------------------------------ */

enum mu_death mu_death_of_errno(int error)
{
    return error == 0 || error == ECONNRESET || error == EPIPE ? MU_DEATH_ENDED
                                                               : MU_DEATH_UNREACHABLE;
}

static const struct {
    const char *is, *more;
} words[] = {
    [MU_DEATH_NONE] = { "failed", "" },
    [MU_DEATH_EARLY] = { "died or left", " before all ranks had met" },
    [MU_DEATH_ENDED] = { "died or left", " without muster_finalize" },
    [MU_DEATH_UNREACHABLE] = { "cannot be reached any more",
                               ": its node or the link to it is dead" },
    [MU_DEATH_SILENT] = { "does not answer", " (stopped, or its node hangs)" },
};

size_t mu_rank_name_text(const struct mu_rank_name *who, char *text, size_t len)
{
    size_t at = 0;

    mu_text_add(text, len, &at, "rank %d", who->rank);
    if (who->host[0])
        mu_text_add(text, len, &at, " (node %s", who->host);
    if (who->host[0] && who->pid > 0)
        mu_text_add(text, len, &at, ", pid %d", who->pid);
    if (who->host[0])
        mu_text_add(text, len, &at, ")");
    return at;
}

static size_t add_phrase(enum mu_death death, const struct mu_rank_name *who,
                         char *text, size_t len)
{
    size_t at = mu_rank_name_text(who, text, len);

    mu_text_add(text, len, &at, " %s", words[death].is);
    return at;
}

void mu_death_phrase(enum mu_death death, const struct mu_rank_name *who, char *text,
                     size_t len)
{
    add_phrase(death, who, text, len);
}

void mu_death_text(enum mu_death death, const struct mu_rank_name *who,
                   const struct mu_rank_name *by, const char *doing, char *text,
                   size_t len)
{
    size_t at = add_phrase(death, who, text, len);
    char name[256];

    mu_text_add(text, len, &at, "%s", words[death].more);
    if (!doing[0])
        return;
    mu_rank_name_text(by, name, sizeof name);
    mu_text_add(text, len, &at, "; %s %s", name, doing);
}

int mu_death_err(enum mu_death death, const struct mu_rank_name *who,
                 struct mu_err *err)
{
    char text[MU_ERR_TEXT];

    mu_death_text(death, who, who, "", text, sizeof text);
    return mu_err_set(err, MUSTER_EPEER, "%s", text);
}

void mu_abort_text(const struct mu_rank_name *who, const char *why, char *text,
                   size_t len)
{
    size_t at = 0;

    mu_text_add(text, len, &at, "rank %d (node %s) ended the job: %s", who->rank,
                who->host, why);
}

int mu_late_err(const char *who, const char *host, double seconds, struct mu_err *err)
{
    bool known = host[0] != '\0';

    return mu_err_set(err, MUSTER_ERENDEZVOUS,
                      "%s%s%s%s did not arrive within %g s (MUSTER_INIT_TIMEOUT)", who,
                      known ? " (node " : "", host, known ? ")" : "", seconds);
}
