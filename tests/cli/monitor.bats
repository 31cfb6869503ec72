#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# muster monitor: one look as text, JSON and for Prometheus; by job; the view in a terminal.

top=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
build=${MUSTER_BUILDDIR:-$top/build-test}

setup_file() {
    make -s -C "$build" tests/unit/write_ledgers
}

setup() {
    cd "$BATS_TEST_TMPDIR" || return
    mkdir ledgers bin
    "$build/tests/unit/write_ledgers" ledgers 4 120 2
    cat > bin/nvidia-smi <<'SMI'
#!/bin/sh
echo '00000000:1A:00.0, 97, 612.31, 1980, 61234, 143771'
echo '00000000:3B:00.0, [N/A], [N/A], 1200, 10, 143771'
SMI
    chmod +x bin/nvidia-smi
    monitor=("$build/muster-monitor")
}

teardown() {
    [ -z "${sleeper:-}" ] || pkill -P "$sleeper" || true
    [ -z "${sleeper:-}" ] || kill "$sleeper" || true
    [ -z "${session:-}" ] || tmux -S "$session" kill-server || true
}

once() {
    run env PATH="$PWD/bin:$PATH" "${monitor[@]}" --once --interval 0.1 "$@"
}

@test "one look has ranks, who waits for whom, GPUs and interfaces" {
    once ledgers
    [ "$status" -eq 0 ]
    [ "${lines[0]}" = "program: 4 ranks" ]
    [[ ${lines[1]} = "rank 2 (n1) was last in 79 of steps 40 to 118"* ]]
    [[ $output = *" 00000000:1A:00.0         97      612     1980     61234    143771"* ]]
    [[ $output = *" 00000000:3B:00.0          -        -     1200        10    143771"* ]]
}

# The GPU that a rank of this host uses: struct mu_ledger_head.
use_gpu() { # rank pci
    printf '%s\0' "$(hostname)" | dd of="ledgers/rank$1.ledger" bs=1 seek=64 conv=notrunc status=none
    printf '%s\0' "$2" | dd of="ledgers/rank$1.ledger" bs=1 seek=160 conv=notrunc status=none
}

@test "GPUs of the job that are slow, idle or nearly empty have a line each, others have none" {
    cat > bin/nvidia-smi << 'SMI'
#!/bin/sh
cat "$(dirname "$0")/answer"
SMI
    while IFS='|' read -r one two three advice; do
        rm -r ledgers
        mkdir ledgers
        "$build/tests/unit/write_ledgers" ledgers 4 120 2
        use_gpu 2 0000:1a:00.0
        use_gpu 0 0000:3b:00.0
        printf '%s\n' "00000000:1A:00.0, $one" "00000000:3B:00.0, $two" "00000000:5E:00.0, $three" > bin/answer
        once --format json ledgers
        [ "$(jq -r '.advice | join("/")' <<< "$output")" = "$advice" ] || { jq .advice <<< "$output"; return 1; }
    done << 'CASES'
97, 600, 1980, 80, 100|97, 600, 1980, 80, 100|0, 70, 300, 0, 100|
97, 600, 1200, 80, 100|97, 600, 1980, 80, 100|0, 70, 300, 0, 100|rank 2 is late, and its GPU 00000000:1A:00.0 runs at 1200 MHz, the others at 1980: nvidia-smi -q -d PERFORMANCE,TEMPERATURE
97, 300, 1980, 80, 100|97, 600, 1980, 80, 100|0, 70, 300, 0, 100|rank 2 is late, and its GPU 00000000:1A:00.0 takes 300 W, the others 600: it waits for its CPUs or its data
97, 600, 1980, 80, 100|69, 600, 1200, 80, 100|0, 70, 300, 0, 100|GPU 00000000:3B:00.0 of rank 0 is busy 69 % of the time, below 70 %: more num_workers, a larger batch
97, 600, 1980, 69, 100|97, 600, 1980, 96, 100|0, 70, 300, 0, 100|GPU 00000000:1A:00.0 of rank 2 has 69 % of its memory in use, below 70 %: a larger batch fits/GPU 00000000:3B:00.0 of rank 0 has 96 % of its memory in use, above 95 %: a little more ends the job
[N/A], [N/A], [N/A], [N/A], [N/A]|97, 600, 1980, 80, 100|0, 70, 300, 0, 100|
CASES
    echo '00000000:3B:00.0, 12, 90, 1980, 80, 100' > bin/answer
    once ledgers
    [[ ${lines[2]} = "GPU 00000000:3B:00.0 of rank 0 is busy 12 % of the time, "* ]]
}

@test "JSON has the same figures, null where one is unknown" {
    once --format json ledgers
    [ "$status" -eq 0 ]
    [ "$(jq -c '[.format, .version, (.ranks | length)]' <<< "$output")" = '["muster-monitor",1,4]' ]
    [ "$(jq '[.ranks[].rank] == [0,1,2,3]' <<< "$output")" = true ]
    [ "$(jq '.ranks[2].last_share > 0.6 and .ranks[1].last_share == 0' <<< "$output")" = true ]
    [ "$(jq '.ranks[2].collective_share < .ranks[1].collective_share' <<< "$output")" = true ]
    [ "$(jq '.ranks[0] | .step > 115 and .step < 125' <<< "$output")" = true ]
    [ "$(jq '(.ranks[0].step_ms * 10 | round) == 152' <<< "$output")" = true ]
    [ "$(jq -c '.gpus | map(.watts)' <<< "$output")" = '[612.31,null]' ]
    rm bin/nvidia-smi
    once --format json ledgers
    command -v nvidia-smi > /dev/null || [ "$(jq '.gpus | length' <<< "$output")" -eq 0 ]
}

@test "a textfile for node_exporter: every line a comment or a sample, and no file half written" {
    PATH=$PWD/bin:$PATH "${monitor[@]}" --once --interval 0.1 --textfile out.prom ledgers > /dev/null
    [ "$(grep -cvE '^# (HELP|TYPE) muster_[a-z_]+ |^muster_[a-z_]+\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\} [-0-9.e+]+$' out.prom)" -eq 0 ]
    grep -q '^muster_step_seconds{job="",host="n1",rank="2"} 0.0152$' out.prom
    grep -q '^muster_gpu_power_watts{gpu="00000000:1A:00.0"} 612.31$' out.prom
    [ "$(grep -c '^muster_gpu_power_watts{' out.prom)" -eq 1 ]
    [ ! -e out.prom.new ]
    # A link that another user of the folder has made there.
    echo precious > precious
    ln -s "$PWD/precious" out.prom.new
    "${monitor[@]}" --once --interval 0.1 --textfile out.prom ledgers > /dev/null
    [ "$(cat precious)" = precious ]
    [ -f out.prom ] && [ ! -L out.prom ]
    run "${monitor[@]}" --once --interval 0.1 --textfile none/out.prom ledgers
    [ "$status" -eq 1 ]
    [ "$output" = "muster monitor: none/out.prom cannot be written" ]
}

# A process of the job, below one that looks like a slurmstepd.
start_task() { # job, command in front of it...
    SLURM_JOB_ID=$1 MUSTER_PROFILE=ledgers "${@:2}" \
        bash -c 'exec -a "slurmstepd: [$SLURM_JOB_ID.0]" bash -c "sleep 60; :"' 3>&- &
    sleeper=$!
    for ((i = 0; i < 100; i++)); do
        ! pgrep -P "$sleeper" sleep > /dev/null || return 0
        sleep 0.1
    done
    return 1
}

@test "a job is found by its number, through the environment of its processes" {
    local job=9$$ # of no other run of this test
    for ((i = 0; i < 4; i++)); do
        mv ledgers/rank$i.ledger "ledgers/$((i < 3 ? job : job / 100)).0-rank$i-n-1.ledger" # the last is another job's
    done
    start_task $job
    once --format json $job
    [ "$status" -eq 0 ]
    [ "$(jq -c '[.ranks[].rank]' <<< "$output")" = '[0,1,2]' ]
    once $((job + 1))
    [ "$status" -eq 3 ]
    [[ $output = "muster monitor: job $((job + 1)) has no process of yours with MUSTER_PROFILE on this node; "* ]]
}

@test "root finds no process that only claims a job's number" {
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    local job=8$$
    chmod 755 .
    start_task $job setpriv --reuid 65534 --regid 65534 --clear-groups
    once $job
    [ "$status" -eq 3 ]
    [[ $output = "muster monitor: job $job has no process "* ]]
}

@test "GPUs are recorded for muster report, and an earlier file goes on" {
    for _ in 1 2; do
        run env PATH="$PWD/bin:$PATH" "${monitor[@]}" --record ledgers --once
        [ "$status" -eq 0 ]
        [ -z "$output" ]
    done
    samples=ledgers/$(hostname).samples
    [ "$(head -n 1 "$samples")" = "muster-samples 1" ]
    [ "$(grep -vc '^#' "$samples")" -eq 5 ]
    [ "$(cut -f2- "$samples" | tail -n 1)" = "$(hostname)"$'\t00000000:3B:00.0\t-\t-\t1200\t10\t143771' ]
    [ "$(tail -n 1 "$samples" | awk -v now="$(date +%s)" '$1 > now - 60 && $1 < now + 60' | wc -l)" -eq 1 ]
    run "$build/muster-report" ledgers
    [ "$status" -eq 0 ]
    [[ $output = "4 processes, "* ]]
    # until it is ended
    rm "$samples"
    env PATH="$PWD/bin:$PATH" "${monitor[@]}" --record ledgers --interval 0.1 3>&- &
    sleeper=$!
    for ((i = 0; i < 100; i++)); do
        [ ! -e "$samples" ] || [ "$(grep -c 1A:00 "$samples")" -lt 3 ] || break
        sleep 0.1
    done
    [ "$(grep -c 1A:00 "$samples")" -ge 3 ]
    kill "$sleeper"
    run wait "$sleeper"
    sleeper=
    # without a GPU, without a folder, with another option
    echo 'exit 9' > bin/nvidia-smi
    run env PATH="$PWD/bin:$PATH" "${monitor[@]}" --record ledgers
    [ "$status" -eq 3 ]
    [ "$output" = "muster monitor: nvidia-smi shows no GPU of this node; nothing is recorded" ]
    run "${monitor[@]}" --record none
    [ "$status" -eq 1 ]
    [ "$output" = "muster monitor: none/$(hostname).samples cannot be written: No such file or directory" ]
    ln -sf "$PWD/precious" "$samples"
    run "${monitor[@]}" --record ledgers --once
    [ "$status" -eq 1 ]
    [ ! -e precious ]
    run "${monitor[@]}" --record ledgers ledgers
    [ "$status" -eq 2 ]
    [[ $output = *"--record goes with --once and --interval only"* ]]
}

@test "what is wrong is one sentence" {
    once
    [ "$status" -eq 2 ]
    once none
    [ "$status" -eq 3 ]
    [ "${lines[0]}" = "muster report: none: the file cannot be read: No such file or directory" ]
    once --format xml ledgers
    [ "$status" -eq 2 ]
    run "${monitor[@]}" --format json ledgers
    [ "$status" -eq 2 ]
    run "${monitor[@]}" ledgers
    [ "$status" -eq 2 ]
    [[ $output = *"add --once"* ]]
    echo 1 > ledgers/rank3.ledger
    once ledgers
    [ "$status" -eq 0 ]
    [ "${lines[0]}" = "muster report: ledgers/rank3.ledger: this is no ledger file of Muster" ]
    [[ $output = *"program: 3 ranks"* ]]
}

@test "the view in a terminal has the ranks, arrows move it, and q ends it" {
    command -v tmux > /dev/null || skip "no tmux"
    "${monitor[@]}" ledgers 2>&1 | grep -q 'no ncurses' && skip "built without ncurses"
    session=$PWD/tmux
    tmux -S "$session" -f /dev/null new-session -d -x 100 -y 30 \
        "PATH=$PWD/bin:$PATH ${monitor[*]} --interval 0.2 ledgers; echo ended \$?; sleep 60"
    for ((i = 0; i < 50; i++)); do
        shown=$(tmux -S "$session" capture-pane -p)
        [[ $shown != *"q quit"* ]] || break
        sleep 0.1
    done
    [[ $shown = *"program: 4 ranks"*"last in"*" 3 n1 "*"00000000:1A:00.0"*"q quit"* ]]
    tmux -S "$session" send-keys Down
    for ((i = 0; i < 50; i++)); do
        shown=$(tmux -S "$session" capture-pane -p)
        [[ $shown = *"program: 4 ranks"* ]] || break
        sleep 0.1
    done
    [[ $shown != *"program: 4 ranks"* && $shown = *" 3 n1 "* ]]
    tmux -S "$session" send-keys q
    for ((i = 0; i < 50; i++)); do
        shown=$(tmux -S "$session" capture-pane -p)
        [[ $shown != *"ended 0"* ]] || break
        sleep 0.1
    done
    [[ $shown = *"ended 0"* ]]
}

@test "every option of muster monitor has a line in its manual" {
    diff <("${monitor[@]}" --help | grep -oE -- '--[a-z]+' | sort -u) \
        <(grep -E '^\.It Fl ' "$top/runtime/tools/muster-monitor.1" | grep -oE 'Fl \\-[a-z]*' | sed 's/Fl \\-/--/' | sort -u)
}
