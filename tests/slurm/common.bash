# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# common.bash - what the bats files with one cluster of their own share: `load common`. The
# cluster of $MUSTER_DIR/c goes with the file; a file with more to do has its own functions.

top=${MUSTER_SRCDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
# shellcheck disable=SC2034 # for the files that load this one
build=${MUSTER_BUILDDIR:-$top/build-test}

teardown_file() {
    [ -n "${MUSTER_DIR:-}" ] || return 0
    "$top/tests/slurm/cluster" down --dir "$MUSTER_DIR/c"
    rm -rf "$MUSTER_DIR"
}

setup() {
    eval "$(cat "$MUSTER_DIR/env")"
}

# On a node of a cluster with --netns.
on() { # node, command
    "$top/tests/slurm/cluster" exec --dir "$MUSTER_DIR/c" "$@"
}
