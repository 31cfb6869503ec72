#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# In a real slurmstepd one call of muster.so fails in each step: memory, files, processes, Slurm's own
# functions (failing_calls.c). No hook returns an error, so that `required` and `optional` act alike: the
# step runs, with its plan or with a message (that of init is in slurmd's log); slurmd lives; the node is
# not drained. STRIDE=1 lets each call fail in turn, which takes minutes; without it some of each kind.

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    command -v cc > /dev/null || skip "no C compiler"
    four_gpus_on_two_cpus mfc
    printf '%s\n' '[defaults]' 'enable = all' "topology = $MUSTER_DIR/machine.xml" > "$MUSTER_DIR/site.conf"
    cc -shared -fPIC -O1 -D_GNU_SOURCE -I"$top" -o "$MUSTER_DIR/failing_calls.so" \
        "$BATS_TEST_DIRNAME/failing_calls.c"
    export FAILING_CALLS=$MUSTER_DIR/fails
    plugin_cluster --prefix mfc --nodes 1 --preload "$MUSTER_DIR/failing_calls.so"
    eval "$(cat "$MUSTER_DIR/env")"
    cp "$MUSTER_DIR/c/etc/plugstack.conf" "$MUSTER_DIR/muster.line"
    slurmd > "$MUSTER_DIR/slurmd.pid"
}

slurmd() { pgrep -f "slurmd .*$MUSTER_DIR/c/etc/"; }

stack() { # required or optional
    sed "s/^[a-z]*/$1/" "$MUSTER_DIR/muster.line" > "$MUSTER_DIR/c/etc/plugstack.conf"
}

fails() { # kind, number, srun option...: srun's status; false where the step has no such call
    rm -f "$FAILING_CALLS.hit"
    truncate -s 0 "$MUSTER_DIR"/c/log/slurmd*.log
    echo "$1 $2" > "$FAILING_CALLS"
    shift 2
    status=0
    output=$(timeout 60 srun -Q -n1 --gres=gpu:1 "$@" printenv SLURM_PROCID MUSTER_PLAN \
        < /dev/null 2> "$MUSTER_DIR/err") || status=$?
    [ -e "$FAILING_CALLS.hit" ]
}

is_idle() { [ "$(sinfo -h -o %T)" = idle ]; }

# The node takes the next step, by the same slurmd.
node_is_well() {
    wait_for 60 is_idle
    [ "$(slurmd)" = "$(cat "$MUSTER_DIR/slurmd.pid")" ]
}

each_call_fails() { # kind, stride
    local word at=1 failed=0
    while fails "$1" $at; do
        # printenv's status is 1 without a plan, and the first line is there in any case.
        if [ "${output%%$'\n'*}" != 0 ] || { [ $status -ne 0 ] && ! grep -q muster: "$MUSTER_DIR/err" "$MUSTER_DIR"/c/log/slurmd*.log; }; then
            echo "kind $1, call $at: status $status, printed $output, $(cat "$MUSTER_DIR/err")"
            failed=1
        fi
        at=$((at + $2))
    done
    echo "# kind $1: $((at / $2)) steps, up to call $((at - $2))" >&3
    [ $failed -eq 0 ] && [ $at -gt "$2" ] && node_is_well
}

stride() { echo "${STRIDE:-$1}"; }

@test "optional: memory runs out" { stack optional; each_call_fails 0 "$(stride 10)"; }
@test "optional: files run out" { stack optional; each_call_fails 1 "$(stride 3)"; }
@test "optional: processes run out" { stack optional; each_call_fails 2 "$(stride 2)"; }
@test "optional: Slurm's functions fail" { stack optional; each_call_fails 3 "$(stride 10)"; }
@test "required: memory runs out" { stack required; each_call_fails 0 "$(stride 10)"; }
@test "required: files run out" { stack required; each_call_fails 1 "$(stride 3)"; }
@test "required: processes run out" { stack required; each_call_fails 2 "$(stride 1)"; }
@test "required: Slurm's functions fail" { stack required; each_call_fails 3 "$(stride 10)"; }

# The step whose user wants the plan or nothing is refused.
@test "strict: a task has its plan, or ends with the reason, under either word" {
    local word at refused
    for word in optional required; do
        stack $word
        refused=0 at=1
        while fails 0 $at --muster=strict; do
            if [ $status -ne 0 ]; then
                refused=$((refused + 1))
                grep -q 'muster: .*strict' "$MUSTER_DIR/err" || { echo "call $at: $(cat "$MUSTER_DIR/err")"; false; }
            fi
            at=$((at + $(stride 24)))
        done
        [ $refused -gt 0 ]
    done
    node_is_well
}
