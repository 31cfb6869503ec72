# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# shellcheck disable=SC2154 # build: the test that loads this sets it
# For tests that injure a job of four ranks on two nodes: its time to the end, its status, its
# words, its checkpoint, and what it leaves. A row of the fault table for each.

table_head() {
    printf '# %-44s | %7s | %4s | %-15s | %s\n' 'what, where' 'ends in' exit checkpoint message >&3
}

table_row() { # what, seconds, status, checkpoint, message
    printf '# %-44s | %5.2f s | %4s | %-15s | %s\n' "$@" >&3
}

four() { # srun with four ranks on two nodes, or per_node on each of `nodes`, called ${prefix}1, ...
    mkdir -p "$MUSTER_DIR/tmp"
    TMPDIR=$MUSTER_DIR/tmp timeout 90 srun -Q --mpi=pmix -w "${prefix:-n}[1-${nodes:-2}]" --ntasks-per-node="${per_node:-2}" "$@"
}

since_note() { # seconds from the deed to now
    awk -v e="$(date +%s.%N)" -v n="$(cat "$MUSTER_DIR/note")" 'BEGIN { printf "%.2f", e - n }'
}

# Of a job whose deed is done: no process with its note, no file of ours; what the kernel takes
# away on its own may need a moment.
nothing_left() {
    local ours="faulty --note $MUSTER_DIR/note"
    wait_for 3 no_process "$ours" || { pgrep -af "$ours"; return 1; }
    [ -z "$(find /dev/shm "$MUSTER_DIR/tmp" -name '*muster*' -print -quit)" ]
}

# The newest checkpoint that a run can go on from. Looking removes what was half written.
checkpoint_left() { # folder
    [ -d "$1" ] || { echo none; return; }
    MUSTER_LOG=error "$build/tests/slurm/faulty" --show "$1" &&
        [ -z "$(find "$1" -name '*.tmp' -print -quit)" ]
}

# A job in which one rank does something wrong: its time from the deed to the end, its status, its
# words in $MUSTER_DIR/out and the checkpoint that it leaves. Sets took rc left.
injure() { # options of faulty
    rc=0 left=-
    rm -rf "$MUSTER_DIR/note" "$MUSTER_DIR/saved"
    four "$build/tests/slurm/faulty" --note "$MUSTER_DIR/note" "${save[@]}" "$@" >"$MUSTER_DIR/out" 2>&1 || rc=$?
    took=$(since_note)
    cat "$MUSTER_DIR/out"
    [ ${#save[@]} -eq 0 ] || left=$(checkpoint_left "$MUSTER_DIR/saved")
    table_row "$*" "$took" "$rc" "$left" "$(grep -m1 '^muster:' "$MUSTER_DIR/out")"
}

in_time() { # seconds, limit
    awk -v t="$1" -v l="$2" 'BEGIN { exit !(t <= l) }'
}

# fault STATUS SECONDS MESSAGE CHECKPOINT OPTION...: srun ends with STATUS (a list a|b is fine)
# within SECONDS of the deed, MESSAGE is among our words (first line), CHECKPOINT (none, "step 2,
# whole", - for no look at it) is what a run can go on from, and nothing is left.
fault() {
    local status=$1 limit=$2 message=$3 checkpoint=$4 rc took left save=()
    shift 4
    [ "$checkpoint" = - ] || save=(--save "$MUSTER_DIR/saved")
    injure "$@"
    # A machine may stand still for a moment. What ends late by itself ends late again.
    in_time "$took" "$limit" || injure "$@"
    in_time "$took" "$limit" || return 1
    [[ "|$status|" == *"|$rc|"* ]] || return 1
    [ -z "$message" ] || grep -q -e "$message" "$MUSTER_DIR/out" || return 1
    [ "$left" = "$checkpoint" ] || return 1
    nothing_left
}
