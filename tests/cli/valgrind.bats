#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# The life of the plugin under valgrind: loaded, all hooks of a step, with and without a plan.

top=${MUSTER_SRCDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
build=${MUSTER_BUILDDIR:-$top/build-test}

@test "the hooks of the plugin read and free what they own" {
    command -v valgrind > /dev/null || skip "no valgrind"
    [ -e "$build/.libs/muster.so" ] || skip "a build without the plugin"
    grep -q '^MU_CFLAGS = .*-fsanitize' "$build/Makefile" && skip "a build with sanitizers"
    make -s -C "$build" tests/unit/test_plugin_load
    MUSTER_TEST='a_whole_life*' MUSTER_SRCDIR=$top MUSTER_BUILDDIR=$build run timeout 200 valgrind -q --error-exitcode=9 --leak-check=full \
        --show-leak-kinds=definite --errors-for-leak-kinds=definite "$build/tests/unit/test_plugin_load"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" = *"1 test(s) run"* ]]
}
