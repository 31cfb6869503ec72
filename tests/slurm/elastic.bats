#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# muster-train --elastic under a real Slurm: tasks are killed, the others go on. Two nodes with two
# ranks each. A row for each death: until the others are connected again, until the next step is in
# the curve (which is written every half second), srun's exit status, the message.

source "$BATS_TEST_DIRNAME/common.bash"
train=$build/muster-train

setup_file() {
    export MUSTER_DIR
    MUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/mel.XXXXXX")
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/c" --nodes 2 --cpus 4 >"$MUSTER_DIR/env"
}

setup() {
    eval "$(cat "$MUSTER_DIR/env")"
    export MUSTER_TIMEOUT=30 MUSTER_INIT_TIMEOUT=30
    cd "$BATS_TEST_TMPDIR" || return 1
}

# Start a training of four ranks in the background; the options are muster-train's.
start() {
    timeout -k 10 150 srun -Q --mpi=pmix -N2 --ntasks-per-node=2 --kill-on-bad-exit=0 --wait=0 \
        "$train" --hidden 64 --samples 20000 --test-samples 500 --epochs 8 \
        --curve "$PWD/curve" --result "$PWD/result" "$@" >out 2>&1 &
    job=$!
}

await_lines() { # NUMBER: the curve has that many
    wait_for 40 has_lines curve "$1" || { cat out; return 1; }
}

process() { # RANK of this test's step
    process_of_rank "muster-train .*--curve $PWD/curve" "$1"
}

has_process() { [ -n "$(process "$1")" ]; }

signal_ranks() { # SIGNAL RANK...
    local rank victims=() signal=$1
    shift
    for rank in "$@"; do
        wait_for 5 has_process "$rank" || { pgrep -af muster-train; cat out; return 1; }
        victims+=("$(process "$rank")")
    done
    kill "-$signal" "${victims[@]}"
}

kill_ranks() { # RANK...
    killed_at=$(date +%s.%N)
    lines_before=$(lines_of curve)
    signal_ranks KILL "$@"
}

# Steps 0, 1, 2, ... with nothing missing and nothing twice, and a loss that has gone down on both
# sides of the death.
check_curve() { # line of the death
    awk -v cut="$1" '
        $1 != NR - 1 { print "line " NR " is of step " $1; bad = 1 }
        { loss[NR] = $2 }
        END {
            for (i = 1; i <= 10; i++) { a += loss[i]; b += loss[cut - i]; c += loss[NR - i + 1] }
            printf "mean loss of 10 steps: first %.3f, before the death %.3f, last %.3f\n", a / 10, b / 10, c / 10
            exit bad || !(b < a && c < b * 1.05)
        }' curve
}

# A death has happened: the others finish.
finish() { # ranks left, what was done
    local rc=0 after fact
    await_lines $((lines_before + 5))
    after=$(awk -v e="$(date +%s.%N)" -v n="$killed_at" 'BEGIN { printf "%.2f", e - n }')
    wait "$job" || rc=$?
    cat out
    echo "# $2 | $(grep -om1 'after [0-9.]* s$' out) | next step in the curve after $after s | srun $rc |" \
        "$(grep -m1 '^muster: ' out)" >&3
    [ "$rc" -eq 137 ]
    grep -q "^muster: rank .* died.*; $1 of 4 ranks go on, after " out
    [ "$(grep -o 'weights [0-9a-f]*' out | sort -u | wc -l)" -eq 1 ]
    [ "$(grep -c 'weights [0-9a-f]*' out)" -eq "$1" ]
    for fact in '"finished": true' "\"ranks\": $1" "\"ranks_lost\": $((4 - $1))"; do
        grep -q "^ *$fact,\$" result || { echo "no $fact in the result"; return 1; }
    done
    check_curve "$lines_before"
    nothing_left
}

# slurmstepd may end a stopped rank a moment after srun has ended.
nothing_left() {
    wait_for 10 no_process "muster-train .*--curve $PWD/curve"
}

@test "one of four is killed in training: three go on and finish, weights equal, the curve has no gap" {
    start --elastic
    await_lines 60
    kill_ranks 3
    finish 3 "rank 3"
}

@test "rank 0 is killed: rank 1 takes its place and its curve" {
    start --elastic
    await_lines 60
    kill_ranks 0
    finish 3 "rank 0"
}

@test "both ranks of a node are killed: the other node finishes, with checkpoints" {
    start --elastic --checkpoint "$PWD/saved" --checkpoint-every 25
    await_lines 60
    kill_ranks 2 3
    finish 2 "ranks 2 and 3"
    [ -n "$(find saved -name '*.muster')" ]
    [ -z "$(find saved -name '*.tmp')" ]
}

@test "a survivor that stands still is waited for" {
    start --elastic
    await_lines 60
    signal_ranks STOP 2
    kill_ranks 3
    sleep 2
    if grep -q 'go on' out; then return 1; fi
    signal_ranks CONT 2
    finish 3 "rank 3, and rank 2 stopped for 2 s"
}

# The death ends the whole job, with this sentence; nothing stays.
job_ends() { # pattern [status]
    local rc=0
    wait "$job" || rc=$?
    cat out
    [ "$rc" -eq "${2:-13}" ] || [ "$rc" -eq 137 ] || return 1
    grep -q "$1" out || return 1
    nothing_left
}

@test "a survivor that stands still for good is named at the deadline, with status 14" {
    MUSTER_TIMEOUT=4 start --elastic
    await_lines 60
    signal_ranks STOP 2
    kill_ranks 3
    job_ends '^muster: .*rank 2 (node [^ ]*) lives, but did not join the other survivors within [0-9.]* s' 14
}

@test "below the least number of ranks the job ends with status 13 and says so" {
    start --elastic=4
    await_lines 60
    kill_ranks 2
    job_ends '^muster: rank 2 .* died or left; 3 ranks are left, but MUSTER_ELASTIC asks for at least 4$'
}

@test "without --elastic a death ends the job with status 13" {
    start
    await_lines 60
    kill_ranks 2
    job_ends '^muster: rank 2 .*died'
}

@test "--elastic and --zero exclude each other" {
    run "$train" --zero --elastic
    echo "$output"
    [ "$status" -eq 10 ]
    [[ $output = *"--zero and --elastic exclude each other"* ]]
}

@test "srun's own default leaves the others alone too; -K ends them" {
    timeout -k 10 150 srun -Q --mpi=pmix -N2 --ntasks-per-node=2 "$train" --hidden 64 --samples 20000 \
        --test-samples 500 --epochs 2 --curve "$PWD/curve" --result "$PWD/result" --elastic >out 2>&1 &
    job=$!
    await_lines 60
    kill_ranks 1
    finish 3 "rank 1, srun without options"
    rm curve
    timeout -k 10 150 srun -Q -K --mpi=pmix -N2 --ntasks-per-node=2 "$train" --hidden 64 --samples 20000 \
        --test-samples 500 --epochs 20 --curve "$PWD/curve" --elastic >out 2>&1 &
    job=$!
    await_lines 60
    kill_ranks 1
    rc=0
    wait "$job" || rc=$?
    cat out
    echo "srun -K: $rc"
    [ "$rc" -eq 137 ] || [ "$rc" -eq 143 ]
    [ "$(grep -c 'Training time' out)" -eq 0 ]
    nothing_left
}
