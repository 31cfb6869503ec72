# SPDX-License-Identifier: BSD-3-Clause
# common.bash - where the command and the recorded machines are

top=${MUSTER_SRCDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
muster=${MUSTER_BUILDDIR:-$top/build}/muster
data=$top/tests/data

# Run muster; $output is standard output, $messages standard error, $status the status.
m() {
    local errors=$BATS_TEST_TMPDIR/stderr
    status=0
    output=$("$muster" "$@" 2> "$errors") || status=$?
    messages=$(cat "$errors")
}

# Standard output is exactly the text on standard input (a golden file).
golden() {
    diff -u - <(printf '%s\n' "$output")
}

# Columns of the plan, task by task: plan_columns 2,3
plan_columns() {
    printf '%s\n' "$output" | tail -n +2 | cut -f "$1"
}

# One column in one line, with a blank behind each value.
plan_line() { # column
    plan_columns "$1" | tr '\n' ' '
}

# The root of a recorded /sys, which is unpacked for this test: $root.
recorded_sys() { # archive, option of tar...
    mkdir "$BATS_TEST_TMPDIR/fs"
    tar -C "$BATS_TEST_TMPDIR/fs" -xjf "$data/hwloc-sysfs/$1" "${@:2}"
    root=$(dirname "$(find "$BATS_TEST_TMPDIR/fs" -maxdepth 3 -type d -name sys | head -n 1)")
}

# Compile bad_pair.c, which is to be preloaded.
bad_pair() { # the library
    command -v cc > /dev/null || skip "no C compiler"
    ! grep -q '^MU_CFLAGS = .*-fsanitize' "$(dirname "$muster")/Makefile" || skip "a build with sanitizers"
    cc -shared -fPIC -D_GNU_SOURCE -o "$1" "$BATS_TEST_DIRNAME/bad_pair.c"
}

has() { # text, part
    [[ $1 == *"$2"* ]] || { printf 'no "%s" in: %s\n' "$2" "$1"; return 1; }
}
