/* SPDX-License-Identifier: BSD-3-Clause */
/* test_reporter.c - which rank reports how a job ends, when, and in which words */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/core/reporter.h"
#include "runtime/muster.h"

static const struct row {
    const char *name;
    struct mu_view view;
    double wait;
    enum mu_deed deed;
} rows[] = {
    /* Before the ranks are connected. */
    { "the rank beside the dead one reports at once",
      { .sight = MU_SAW_EARLY_DEATH, .place = 0 },
      0,
      MU_DEED_REPORT },
    { "the rank behind it leaves it a moment",
      { .sight = MU_SAW_EARLY_DEATH, .place = 1 },
      0.3,
      MU_DEED_REPORT },
    { "a thousand ranks do not wait for minutes",
      { .sight = MU_SAW_EARLY_DEATH, .place = 1000 },
      2.4,
      MU_DEED_REPORT },
    { "all ranks fail alike: the lowest reports",
      { .sight = MU_SAW_EARLY_FAILURE, .place = 0 },
      0,
      MU_DEED_REPORT },
    { "... and the others would have waited",
      { .sight = MU_SAW_EARLY_FAILURE, .place = 3 },
      0.6,
      MU_DEED_REPORT },
    { "who cannot name the late rank waits for who can",
      { .sight = MU_SAW_EARLY_UNNAMED, .place = 0 },
      3,
      MU_DEED_REPORT },
    { "an early death is returned where the program asks for it",
      { .sight = MU_SAW_EARLY_DEATH, .returns = true },
      0,
      MU_DEED_RETURN },

    /* Connected. */
    { "the root decides at once",
      { .sight = MU_SAW_FAILURE, .root = true },
      0,
      MU_DEED_REPORT },
    { "a rank below waits for the root",
      { .sight = MU_SAW_FAILURE, .place = 3 },
      4,
      MU_DEED_REPORT },
    { "without a name the root waits for the death that may be the cause",
      { .sight = MU_SAW_UNNAMED, .root = true },
      1,
      MU_DEED_REPORT },
    { "... longer where the ranks survive it",
      { .sight = MU_SAW_UNNAMED, .root = true, .immediate = true },
      2,
      MU_DEED_REPORT },
    { "... and a rank below waits for the root too",
      { .sight = MU_SAW_UNNAMED },
      5,
      MU_DEED_REPORT },
    { "the root has died: its first child decides",
      { .sight = MU_SAW_PARENT_END, .second = true, .place = 0 },
      0,
      MU_DEED_REPORT },
    { "... its second child half a second later",
      { .sight = MU_SAW_PARENT_END, .second = true, .place = 1 },
      0.5,
      MU_DEED_REPORT },
    { "another parent has died: its own parent decides first",
      { .sight = MU_SAW_PARENT_END, .place = 1 },
      1.5,
      MU_DEED_REPORT },
    { "... behind its goodbye it decides at once too",
      { .sight = MU_SAW_PARENT_END, .second = true, .place = 0, .leaving = true },
      0,
      MU_DEED_REPORT },
    { "... and others ask that rank whether all have left",
      { .sight = MU_SAW_PARENT_END, .second = true, .place = 1, .leaving = true },
      4.5,
      MU_DEED_REPORT },
    { "... or the root, where that lives",
      { .sight = MU_SAW_PARENT_END, .place = 0, .leaving = true },
      5,
      MU_DEED_REPORT },
    { "a failure behind the goodbye waits for the root as before",
      { .sight = MU_SAW_FAILURE, .place = 1, .leaving = true },
      4,
      MU_DEED_REPORT },
    { "survivors act at once",
      { .sight = MU_SAW_PARENT_END, .place = 5, .immediate = true },
      0,
      MU_DEED_REPORT },
    { "the root waits for the records",
      { .sight = MU_SAW_OVERDUE, .root = true },
      2,
      MU_DEED_REPORT },
    { "a parent that does not acknowledge an overdue wait is stopped",
      { .sight = MU_SAW_PARENT_SILENT, .second = true, .place = 0 },
      4,
      MU_DEED_REPORT },
    { "... which its children report in turn",
      { .sight = MU_SAW_PARENT_SILENT, .second = true, .place = 2 },
      5,
      MU_DEED_REPORT },
    { "no reason arrives from above",
      { .sight = MU_SAW_ROOT_SILENT, .place = 1 },
      8.5,
      MU_DEED_REPORT },

    /* The thread that called. */
    { "a call that fails waits for the common reason",
      { .sight = MU_SAW_CALL_FAIL },
      15,
      MU_DEED_REPORT },
    { "... and returns it",
      { .sight = MU_SAW_CALL_FAIL, .returns = true },
      15,
      MU_DEED_RETURN },
    { "before there is a world this process ends alone",
      { .sight = MU_SAW_NO_WORLD },
      0,
      MU_DEED_LEAVE },
    { "the rank that decided prints",
      { .sight = MU_SAW_DECISION, .mine = true },
      0,
      MU_DEED_REPORT },
    { "... unless another world has printed the reason",
      { .sight = MU_SAW_DECISION, .mine = true, .printed = true },
      0,
      MU_DEED_END },
    { "the others are quiet, and end the step if it does not",
      { .sight = MU_SAW_DECISION },
      5,
      MU_DEED_END },
    { "survivors go on",
      { .sight = MU_SAW_DECISION, .mine = true, .returns = true },
      0,
      MU_DEED_RETURN },
    { "a side that is cut off leaves the step to the other side",
      { .sight = MU_SAW_DECISION, .mine = true, .cut_off = true },
      0,
      MU_DEED_LEAVE },
    { "... each of its ranks",
      { .sight = MU_SAW_DECISION, .cut_off = true },
      0,
      MU_DEED_LEAVE },
};

static void each_sight_has_its_turn(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mu_turn turn = mu_reporter_turn(&rows[i].view);

        if (turn.deed != rows[i].deed || turn.wait < rows[i].wait - 1e-6 ||
            turn.wait > rows[i].wait + 1e-6)
            fail_msg("%s: deed %d after %g s", rows[i].name, turn.deed, turn.wait);
    }
}

/* Of the ranks that see one death at the same time, exactly one has the first turn. */
static void one_rank_of_many_has_the_first_turn(void **state)
{
    static const enum mu_sight sights[] = { MU_SAW_EARLY_DEATH, MU_SAW_EARLY_FAILURE,
                                            MU_SAW_PARENT_END, MU_SAW_PARENT_SILENT,
                                            MU_SAW_ROOT_SILENT };

    for (size_t i = 0; i < sizeof sights / sizeof sights[0]; i++) {
        struct mu_view view = { .sight = sights[i], .second = true };
        double first = mu_reporter_turn(&view).wait;

        for (view.place = 1; view.place < 64; view.place++)
            assert_true(mu_reporter_turn(&view).wait >= first + 0.2);
    }
}

static const struct sentence {
    enum mu_death death;
    struct mu_rank_name who;
    const char *doing, *text;
} sentences[] = {
    { MU_DEATH_EARLY,
      { 2, "b", 0 },
      "",
      "rank 2 (node b) died or left before all ranks had met" },
    { MU_DEATH_EARLY,
      { 2, "", 0 },
      "",
      "rank 2 died or left before all ranks had met" },
    { MU_DEATH_ENDED,
      { 2, "b", 71 },
      "waits for bucket 1 of step 2",
      "rank 2 (node b, pid 71) died or left without muster_finalize; rank 0 (node a) "
      "waits for bucket 1 of step 2" },
    { MU_DEATH_ENDED,
      { 2, "b", 71 },
      "",
      "rank 2 (node b, pid 71) died or left without muster_finalize" },
    { MU_DEATH_UNREACHABLE,
      { 2, "b", 71 },
      "has left muster_barrier",
      "rank 2 (node b, pid 71) cannot be reached any more: its node or the link to it "
      "is dead; rank 0 (node a) has left muster_barrier" },
    { MU_DEATH_SILENT,
      { 2, "b", 71 },
      "waits for muster_barrier",
      "rank 2 (node b, pid 71) does not answer (stopped, or its node hangs); rank 0 "
      "(node a) waits for muster_barrier" },
};

static void a_sentence_has_rank_node_and_call(void **state)
{
    struct mu_err err = { 0 };
    char text[512];

    for (size_t i = 0; i < sizeof sentences / sizeof sentences[0]; i++) {
        const struct sentence *s = &sentences[i];

        mu_death_text(s->death, &s->who, &(struct mu_rank_name){ 0, "a", 0 }, s->doing,
                      text, sizeof text);
        assert_string_equal(text, s->text);
    }
    mu_death_phrase(MU_DEATH_ENDED, &(struct mu_rank_name){ 2, "b", 71 }, text,
                    sizeof text);
    assert_string_equal(text, "rank 2 (node b, pid 71) died or left");
    assert_int_equal(
        mu_death_err(MU_DEATH_EARLY, &(struct mu_rank_name){ 2, "b", 71 }, &err), -1);
    assert_int_equal(err.code, MUSTER_EPEER);
    assert_string_equal(err.text, "rank 2 (node b, pid 71) died or left before all "
                                  "ranks had met");
    mu_abort_text(&(struct mu_rank_name){ 2, "b", 71 }, "no data", text, sizeof text);
    assert_string_equal(text, "rank 2 (node b) ended the job: no data");
    assert_int_equal(mu_late_err("ranks 2, 3", "b", 60, &err), -1);
    assert_string_equal(err.text, "ranks 2, 3 (node b) did not arrive within 60 s "
                                  "(MUSTER_INIT_TIMEOUT)");
    assert_int_equal(mu_late_err("rank 2", "", 0.5, &err), -1);
    assert_string_equal(err.text,
                        "rank 2 did not arrive within 0.5 s (MUSTER_INIT_TIMEOUT)");
}

static void an_error_of_a_connection_shows_the_kind_of_death(void **state)
{
    assert_int_equal(mu_death_of_errno(0), MU_DEATH_ENDED);
    assert_int_equal(mu_death_of_errno(ECONNRESET), MU_DEATH_ENDED);
    assert_int_equal(mu_death_of_errno(EPIPE), MU_DEATH_ENDED);
    assert_int_equal(mu_death_of_errno(ETIMEDOUT), MU_DEATH_UNREACHABLE);
    assert_int_equal(mu_death_of_errno(EHOSTUNREACH), MU_DEATH_UNREACHABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sight_has_its_turn),
        cmocka_unit_test(one_rank_of_many_has_the_first_turn),
        cmocka_unit_test(a_sentence_has_rank_node_and_call),
        cmocka_unit_test(an_error_of_a_connection_shows_the_kind_of_death),
    };

    return cmocka_run_group_tests_name("reporter", tests, NULL, NULL);
}
