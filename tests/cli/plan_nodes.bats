#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# muster plan --nodes: the order of a job's nodes from a measurement.
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
    has "$messages" "--nodes goes with --tasks, --hostfile and --format only"
    m plan --hostfile x
    [ "$status" -eq 2 ]
    has "$messages" "--hostfile belongs to --nodes"
}
