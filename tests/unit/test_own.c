/* SPDX-License-Identifier: BSD-3-Clause */
/* test_own.c - which of the program's allocations the ranks have mapped, for ranks in
 * one process whose boards are plain memory
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/backend/nccl/own_table.h"

#define RANKS 3
#define MIB ((size_t)1 << 20)

static struct mu_own_board boards[RANKS];
static struct mu_own_table tables[RANKS];
/* The allocation whose mapping a rank holds, by its handle's first byte. */
static int mapping[RANKS][RANKS][MU_OWN_SLOTS];

static int reset(void **state)
{
    memset(boards, 0, sizeof boards);
    memset(tables, 0, sizeof tables);
    memset(mapping, 0, sizeof mapping);
    for (int r = 0; r < RANKS; r++) {
        tables[r].rank = r;
        tables[r].n = RANKS;
        for (int p = 0; p < RANKS; p++)
            tables[r].board[p] = &boards[p];
    }
    return 0;
}

static struct mu_own_allocation at(uint64_t id, uintptr_t base, size_t bytes)
{
    return (struct mu_own_allocation){ id, base, bytes, false };
}

static int add(int rank, uint64_t id, uintptr_t base, size_t bytes)
{
    const struct mu_own_allocation a = at(id, base, bytes);

    return mu_own_add(&tables[rank], &a);
}

static void announce(int rank, int slot, unsigned char allocation)
{
    unsigned char handle[MU_OWN_HANDLE] = { allocation };

    mu_own_announce(&tables[rank], slot, MU_BY_HANDLE, handle);
}

/* Rank r answers all that it sees; `can`: it can open handles. */
static void poll(int r, bool can)
{
    struct mu_own_change c = { .handle = NULL };

    while (mu_own_next(&tables[r], &c)) {
        bool open = (c.generation & 1) && can;

        mapping[r][c.peer][c.slot] = open ? c.handle[0] : 0;
        mu_own_answer(&tables[r], &c, open);
    }
}

static void poll_all(void)
{
    for (int r = 0; r < RANKS; r++)
        poll(r, true);
}

static void an_allocation_is_found_by_id_and_extent(void **state)
{
    int slot = add(0, 7, 0x10000, MIB);
    const struct mu_own_table *t = &tables[0];

    assert_true(slot >= 0);
    assert_int_equal(mu_own_find(t, 7, (void *)0x10000, MIB), slot);
    assert_int_equal(mu_own_find(t, 7, (void *)0x10010, MIB - 16), slot);
    assert_int_equal(mu_own_find(t, 7, (void *)0x10010, MIB), -1); /* beyond its end */
    assert_int_equal(mu_own_find(t, 7, (void *)0xfff0, 16), -1);   /* before it */
    assert_int_equal(mu_own_find(t, 8, (void *)0x10000, 16), -1);  /* another id */
}

static void it_is_direct_when_all_peers_have_mapped_it(void **state)
{
    int slot = add(0, 7, 0x10000, MIB);

    assert_true(mu_own_unannounced(&tables[0], slot));
    assert_false(mu_own_held(&tables[0], slot));
    announce(0, slot, 1);
    assert_false(mu_own_unannounced(&tables[0], slot));
    poll(1, true);
    assert_false(mu_own_held(&tables[0], slot));
    poll(2, true);
    assert_true(mu_own_held(&tables[0], slot));
}

static void one_that_a_peer_cannot_map_is_never_direct(void **state)
{
    int slot = add(0, 7, 0x10000, MIB);

    announce(0, slot, 1);
    poll(1, false);
    poll(2, true);
    assert_false(mu_own_held(&tables[0], slot));
    poll(1, true); /* it has answered: nothing is left to do */
    assert_false(mu_own_held(&tables[0], slot));
}

/* cudaFree and cudaMalloc give the same address again, with another id. */
static void an_address_with_a_new_id_is_another_allocation(void **state)
{
    int old = add(0, 7, 0x10000, MIB), new;

    announce(0, old, 1);
    poll_all();
    assert_true(mu_own_held(&tables[0], old));
    assert_int_equal(mu_own_find(&tables[0], 8, (void *)0x10000, MIB), -1);
    new = add(0, 8, 0x10000, MIB);
    assert_int_not_equal(new, old);
    assert_false(mu_own_held(&tables[0], old)); /* from the call that saw the new id */
    assert_false(mu_own_held(&tables[0], new));
    assert_int_equal(mapping[1][0][old], 1);
    poll_all();
    assert_int_equal(mapping[1][0][old], 0); /* closed */
    announce(0, new, 2);
    poll_all();
    assert_true(mu_own_held(&tables[0], new));
    assert_int_equal(mapping[1][0][new], 2);
}

static void a_slot_waits_until_all_have_closed_the_mapping(void **state)
{
    const uint64_t again = 7 + MU_OWN_SLOTS; /* would take the same slot */
    int old = add(0, 7, 0x10000, MIB), first, second;

    announce(0, old, 1);
    poll_all();
    mu_own_retire(&tables[0], old);
    poll(1, true); /* rank 2 is late: a kernel of its own waits */
    first = add(0, again, 0x400000, MIB);
    assert_int_not_equal(first, old);
    poll(2, true);
    second = add(0, again + MU_OWN_SLOTS, 0x800000, MIB);
    assert_int_equal(second, old);
    assert_int_not_equal(tables[0].entry[second].generation, 1);
}

/* The peer reads the handle while the owner retires it: no other is written there. */
static void a_handle_stays_until_a_peer_has_answered(void **state)
{
    struct mu_own_change c = { .handle = NULL };
    int slot = add(0, 7, 0x10000, MIB), other;

    announce(0, slot, 1);
    assert_true(mu_own_next(&tables[1], &c));
    mu_own_retire(&tables[0], slot);
    poll(2, true);
    other = add(0, 7 + MU_OWN_SLOTS, 0x10000, MIB);
    announce(0, other, 2);
    assert_int_equal(c.handle[0], 1);
    mu_own_answer(&tables[1], &c, true);
    assert_false(mu_own_held(&tables[0], slot)); /* a generation ago */
    poll_all();
    assert_int_equal(mapping[1][0][slot], 0);
    assert_int_equal(mapping[1][0][other], 2);
}

static void without_a_free_slot_the_rest_is_not_mapped(void **state)
{
    for (unsigned i = 0; i < MU_OWN_SLOTS; i++)
        assert_true(add(0, 100 + i, (i + 1) * MIB, MIB) >= 0);
    assert_int_equal(add(0, 1, (MU_OWN_SLOTS + 9) * MIB, MIB), -1);
    mu_own_retire(&tables[0], 5);
    poll_all();
    assert_int_equal(add(0, 1, (MU_OWN_SLOTS + 9) * MIB, MIB), 5);
}

/* Whatever the order of frees, calls and polls: what is direct is what is mapped. */
static void what_is_direct_is_what_is_mapped(void **state)
{
    unsigned char live[MU_OWN_SLOTS] = { 0 };
    uint64_t id = 1;

    srand(3);
    for (int i = 0; i < 20000; i++) {
        int slot = rand() % MU_OWN_SLOTS, r = rand() % RANKS;

        switch (rand() % 4) {
        case 0: /* allocate at one of few addresses */
            slot = add(0, id, (1 + (uintptr_t)rand() % 4) * MIB, MIB);
            if (slot >= 0)
                live[slot] = (unsigned char)(1 + id % 250);
            id++;
            break;
        case 1:
            for (slot = 0; slot < MU_OWN_SLOTS; slot++)
                if (mu_own_unannounced(&tables[0], slot))
                    announce(0, slot, live[slot]);
            break;
        default:
            if (r != 0)
                poll(r, true);
        }
        for (slot = 0; slot < MU_OWN_SLOTS; slot++)
            for (int p = 1; p < RANKS && mu_own_held(&tables[0], slot); p++)
                assert_int_equal(mapping[p][0][slot], live[slot]);
    }
    assert_true(id > 4000);
}

#define TEST(name) cmocka_unit_test_setup(name, reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_allocation_is_found_by_id_and_extent),
        TEST(it_is_direct_when_all_peers_have_mapped_it),
        TEST(one_that_a_peer_cannot_map_is_never_direct),
        TEST(an_address_with_a_new_id_is_another_allocation),
        TEST(a_slot_waits_until_all_have_closed_the_mapping),
        TEST(a_handle_stays_until_a_peer_has_answered),
        TEST(without_a_free_slot_the_rest_is_not_mapped),
        TEST(what_is_direct_is_what_is_mapped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
