#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# muster plan --nodes: the order of a job's nodes, from a measurement and measured.
# messages, output, status and top are set by common.bash.
# shellcheck disable=SC2154

setup() {
    load common
}

# Eight nodes, in turns on two switches; four GPUs each.
measured() {
    local i j
    for ((i = 1; i <= 8; i++)); do echo "muster-node n$i gpus=4 $1"; done
    for ((i = 1; i <= 8; i++)); do
        for ((j = i + 1; j <= 8; j++)); do echo "muster-pair n$i n$j $(((i + j) % 2 ? 41 : 20)).$j"; done
    done
}

@test "nodes in turns on two switches: classes, ring before and after, order, advice" {
    measured > "$BATS_TEST_TMPDIR/m"
    m plan --nodes="$BATS_TEST_TMPDIR/m"
    [ "$status" -eq 0 ]
    diff <(tr -s ' ' <<< "$output") - << 'END'
8 nodes, by round trip
distance pairs median us least to most us ring before ring after
a round trip of 21 us 12 20.7 20.3 to 20.8 0 6
a round trip of 42 us 16 41.6 41.2 to 41.8 8 2
order: n[1,3,5,7,2,4,6,8]
advice: a ring in Slurm's order has 8 edges of a round trip of 42 us, in the order above 2; write it with --hostfile FILE, then SLURM_HOSTFILE=FILE srun --distribution=arbitrary
advice: the nodes are in 2 groups by round trip, but Slurm names no switches: with topology.conf (topology/tree) the site lets --switches place a job compactly
END
}

@test "the host file has a line per task, a GPU each or as --tasks says" {
    measured > "$BATS_TEST_TMPDIR/m"
    m plan --nodes="$BATS_TEST_TMPDIR/m" --hostfile "$BATS_TEST_TMPDIR/h" --format tsv
    [ "$status" -eq 0 ]
    [ "$(uniq -c "$BATS_TEST_TMPDIR/h" | tr -s ' ' | paste -sd,)" = " 4 n1, 4 n3, 4 n5, 4 n7, 4 n2, 4 n4, 4 n6, 4 n8" ]
    [ "$(sed -n 2p <<< "$output")" = $'0\tn1\t4\t-\t-\t1\t20.3' ]
    [ "$(sed -n 9p <<< "$output")" = $'7\tn8\t4\t-\t-\t2\t41.8' ]
    has "$messages" "SLURM_HOSTFILE=$BATS_TEST_TMPDIR/h srun --distribution=arbitrary"
    m plan --nodes="$BATS_TEST_TMPDIR/m" --hostfile "$BATS_TEST_TMPDIR/h" --tasks 2
    [ "$(wc -l < "$BATS_TEST_TMPDIR/h")" -eq 16 ]
}

@test "one node, and control bytes, which a terminal would obey" {
    printf 'muster-node n\0331 gpus=4 nvlink=\033a\n' > "$BATS_TEST_TMPDIR/m"
    m plan --nodes="$BATS_TEST_TMPDIR/m"
    [ "$status" -eq 0 ]
    [ "${output%%$'\n'*}" = "1 node, by nothing: no distance is known" ]
    has "$output" 'NVLink domain ?a: 1 node, n?1'
}

@test "JSON has the same; NVL72 units and Grace" {
    measured "cpu=grace near=4" | sed 's/\(muster-node n[1256] .*\)/\1 nvlink=aa.1/; s/\(muster-node n[3478] .*\)/\1 nvlink=aa.2/' \
        > "$BATS_TEST_TMPDIR/m"
    m plan --nodes="$BATS_TEST_TMPDIR/m" --format json
    [ "$status" -eq 0 ]
    run jq -r '.by, (.order | map(.node) | join(" ")), .order[0].nvlink, .order[0].gpus_near_cpu,
        (.classes[0] | .name, .pairs, .ring_before, .ring_after), (.advice | length)' <<< "$output"
    [ "$output" = "round trip
n1 n2 n5 n6 n3 n4 n7 n8
aa.1
4
one NVLink domain
12
4
6
2" ]
    m plan --nodes="$BATS_TEST_TMPDIR/m"
    has "$output" "NVLink domain aa.2: 4 nodes, n[3-4,7-8]"
    has "$output" "Grace: 8 nodes, 32 of 32 GPUs in one package with their CPUs (NVLink-C2C)"
}

@test "a node that does not answer is named, status 1" {
    measured | sed 's/\(muster-pair .*n3 .*\) [0-9.]*$/\1 -/; s/\(muster-pair n[12] n3\) .*/\1 -/' > "$BATS_TEST_TMPDIR/m"
    m plan --nodes="$BATS_TEST_TMPDIR/m"
    [ "$status" -eq 1 ]
    has "$output" "advice: n3 answers no other node: leave it out with --exclude=n3"
}

@test "as tasks of a step the first one measures, the others print nothing" {
    SLURM_STEP_ID=0 SLURM_PROCID=1 m plan --nodes
    [ "$status" -eq 0 ]
    [ -z "$output$messages" ]
    SLURM_STEP_ID=0 SLURM_PROCID=0 m plan --nodes # outside of a job
    [ "$status" -ne 0 ]
    [ -n "$messages" ]
}

@test "what cannot be read is one sentence" {
    m plan --nodes=/nonexistent
    [ "$status" -eq 3 ]
    has "$messages" "/nonexistent"
    echo 'muster-node a gpus=many' > "$BATS_TEST_TMPDIR/m"
    m plan --nodes="$BATS_TEST_TMPDIR/m"
    [ "$status" -eq 3 ]
    has "$messages" "muster plan: $BATS_TEST_TMPDIR/m: line 1: gpus takes a number from 0 to 1024, not 'many'"
    m plan --nodes="$BATS_TEST_TMPDIR/m" --gpus 1
    [ "$status" -eq 2 ]
    has "$messages" "--nodes goes with --save, --tasks, --hostfile and --format only"
    m plan --hostfile x
    [ "$status" -eq 2 ]
    has "$messages" "--hostfile and --save belong to --nodes"
}

# ---- Measured: srun is a script that starts the tasks side by side -----------------------------

# All nodes on this machine; $without does not start.
local_srun() {
    mkdir -p "$BATS_TEST_TMPDIR/bin"
    cat > "$BATS_TEST_TMPDIR/bin/srun" << 'SRUN'
#!/bin/bash
for word; do case $word in --nodes=*) n=${word#*=} ;; esac; done
[ -z "${fails-}" ] || exit 7
while [[ $1 = -* ]]; do shift; done
for i in $(seq -w "$n"); do
    [ "$i" = "${without-}" ] || SLURMD_NODENAME=n$i SLURM_LAUNCH_NODE_IPADDR=127.0.0.1 "$@" &
done
wait
SRUN
    chmod +x "$BATS_TEST_TMPDIR/bin/srun"
    export PATH=$BATS_TEST_TMPDIR/bin:$PATH SLURM_JOB_ID=7
}

@test "64 nodes: every pair is measured once, in seconds" {
    local_srun
    local begin=$EPOCHREALTIME end
    SLURM_JOB_NODELIST='n[01-64]' m plan --nodes --save "$BATS_TEST_TMPDIR/m"
    end=$EPOCHREALTIME
    echo "# 64 nodes, 2016 pairs, in $(((${end/./} - ${begin/./}) / 1000)) ms" >&3
    [ "$status" -eq 0 ]
    [ "$(head -n 1 <<< "$output")" = "64 nodes, by round trip" ]
    [ "$(grep -c '^muster-node n' "$BATS_TEST_TMPDIR/m")" -eq 64 ]
    [ "$(awk '/^muster-pair/ && $4 > 0 { print ($2 < $3) ? $2 $3 : $3 $2 }' "$BATS_TEST_TMPDIR/m" | sort -u | wc -l)" -eq 2016 ]
    [ "$(grep -c ^muster-pair "$BATS_TEST_TMPDIR/m")" -eq 2016 ]
    local live=$output
    m plan --nodes="$BATS_TEST_TMPDIR/m"
    [ "$output" = "$live" ]
}

@test "Slurm's switches and GPUs of each node are in the measurement" {
    local_srun
    SLURM_JOB_NODELIST='n[1-2]' SLURM_TOPOLOGY_ADDR=s0.s3.n1 SLURM_TOPOLOGY_ADDR_PATTERN=switch.switch.node SLURM_GPUS_ON_NODE=4 \
        m plan --nodes --save "$BATS_TEST_TMPDIR/m"
    [ "$status" -eq 0 ]
    [ "$(grep -c '^muster-node n[12] gpus=4 switches=s0.s3$' "$BATS_TEST_TMPDIR/m")" -eq 2 ]
    # Without a topology Slurm's address is the node alone.
    SLURM_JOB_NODELIST='n[1-2]' SLURM_TOPOLOGY_ADDR=n1 SLURM_TOPOLOGY_ADDR_PATTERN=node m plan --nodes --save "$BATS_TEST_TMPDIR/m"
    [ "$(grep -c '^muster-node n[12]$' "$BATS_TEST_TMPDIR/m")" -eq 2 ]
}

@test "outside a job, and where the step fails: one sentence, status 3" {
    local_srun
    m plan --nodes
    [ "$status" -eq 3 ]
    has "$messages" "run it under sbatch or salloc, or give --nodes=FILE"
    fails=1 SLURM_JOB_NODELIST='n[1-2]' m plan --nodes
    [ "$status" -eq 3 ]
    has "$messages" "the step failed (srun's status 7): see what this prints: srun --overlap --nodes=2"
    m plan --node-probe 1
    [ "$status" -eq 2 ]
    env -u SLURM_LAUNCH_NODE_IPADDR "$muster" plan --node-probe 1 0123456789abcdef 2>&1 | grep "SLURM_LAUNCH_NODE_IPADDR has no IPv4 address"
}

# The nodes are network namespaces behind a switch that delays: near pairs 2 ms, far ones 8 ms.
delayed() { # groups; sets ns[]
    local i program=${MUSTER_BUILDDIR:-$top/build}/tests/cli/delay_switch
    [ -x "$program" ] || skip "no $program: make check builds it"
    mkfifo "$BATS_TEST_TMPDIR/stop"
    "$program" "$1" 2000 8000 < "$BATS_TEST_TMPDIR/stop" > "$BATS_TEST_TMPDIR/ns" 3>&- &
    switch=$!
    exec 4> "$BATS_TEST_TMPDIR/stop"
    for ((i = 0; i < 100; i++)); do
        [ "$(wc -l < "$BATS_TEST_TMPDIR/ns")" -le ${#1} ] || break
        kill -0 $switch 2> /dev/null || break
        sleep 0.05
    done
    [ "$(wc -l < "$BATS_TEST_TMPDIR/ns")" -gt ${#1} ] || skip "no right to make network namespaces with TUN devices"
    mapfile -t ns < "$BATS_TEST_TMPDIR/ns"
    mkdir -p "$BATS_TEST_TMPDIR/bin"
    cat > "$BATS_TEST_TMPDIR/bin/srun" << 'SRUN'
#!/bin/bash
while [[ $1 = -* ]]; do shift; done
i=0
while read -r space; do
    i=$((i + 1))
    [ "$i" -gt "$NODES" ] || SLURMD_NODENAME=n$i SLURM_LAUNCH_NODE_IPADDR=10.77.0.200 nsenter --net="$space" "$@" &
done < "$SPACES"
wait
SRUN
    chmod +x "$BATS_TEST_TMPDIR/bin/srun"
    export PATH=$BATS_TEST_TMPDIR/bin:$PATH SLURM_JOB_ID=7 SPACES=$BATS_TEST_TMPDIR/ns NODES=${#1}
    export SLURM_JOB_NODELIST="n[1-${#1}]"
}

teardown() { exec 4>&- || true; }

@test "behind a delaying switch: two classes, and ring neighbours of one class together" {
    delayed abababab
    run nsenter --net="${ns[8]}" "$muster" plan --nodes --save "$BATS_TEST_TMPDIR/m"
    echo "$output"
    [ "$status" -eq 0 ]
    has "$output" "order: n[1,3,5,7,2,4,6,8]"
    [[ $output = *"a ring in Slurm's order has 8 edges of a round trip of "*" us, in the order above 2;"* ]]
    # No pair is faster than the switch lets it be.
    awk '/^muster-pair/ { split($2 $3, n, "n"); far = (n[2] + n[3]) % 2; if ($4 < (far ? 8000 : 2000)) exit 1 }' "$BATS_TEST_TMPDIR/m"
}

@test "a node that the others do not reach is named within the time of its pairs" {
    delayed aaa-
    local begin=$SECONDS
    run nsenter --net="${ns[4]}" "$muster" plan --nodes
    echo "$output"
    [ "$status" -eq 1 ]
    [ $((SECONDS - begin)) -lt 15 ]
    has "$output" "n4 answers no other node: leave it out with --exclude=n4"
    has "$output" "3 pairs of nodes did not answer each other, the first are n1 and n4"
}
