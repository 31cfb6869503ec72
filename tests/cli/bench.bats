#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# muster bench --host: collectives of host memory, on machines without GPUs.
# messages, output and status are set by common.bash.
# shellcheck disable=SC2154

setup() {
    load common
    export MUSTER_LIBEXEC=${MUSTER_BUILDDIR:-$top/build}
    unset MUSTER_BACKEND MUSTER_TRANSPORT
}

bench() { m bench "$@"; }

# Rows of --tsv without the header: the columns that are asked for.
rows() { grep -v '^#' <<< "$output" | tail -n +2 | cut -f "$1"; }

@test "every collective is timed and right over shared memory, with an odd number of ranks" {
    bench --host --ranks 3 --max 300 --batches 3 --tsv
    [ "$status" -eq 0 ]
    has "$output" "# 3 ranks on 1 node, host memory, shared memory"
    has "$output" $'kind\tpath\tbytes\tmedian_us\tmin_us\tmax_us\talg_GBs\tbus_GBs\tcopy_percent\tresult'
    # Bytes of a gather or scatter are whole elements of each rank.
    diff <(rows 1,2,3,10) - << 'ROWS'
allreduce	host	16	ok
allreduce	host	64	ok
allreduce	host	256	ok
allgather	host	12	ok
allgather	host	60	ok
allgather	host	252	ok
reduce-scatter	host	12	ok
reduce-scatter	host	60	ok
reduce-scatter	host	252	ok
broadcast	host	16	ok
broadcast	host	64	ok
broadcast	host	256	ok
reduce	host	16	ok
reduce	host	64	ok
reduce	host	256	ok
gather	host	12	ok
gather	host	60	ok
gather	host	252	ok
scatter	host	12	ok
scatter	host	60	ok
scatter	host	252	ok
alltoall	host	12	ok
alltoall	host	60	ok
alltoall	host	252	ok
send	host	16	ok
send	host	64	ok
send	host	256	ok
sendrecv	host	16	ok
sendrecv	host	64	ok
sendrecv	host	256	ok
barrier	host	0	-
ROWS
    # Least, median and most of a time that has passed.
    rows 4,5,6 | awk '{ if (!($2 > 0 && $2 <= $1 && $1 <= $3)) exit 1 }'
}

@test "one collective, over TCP, of each type" {
    local type
    for type in f32 f64 f16 bf16 i32 i64; do
        MUSTER_TRANSPORT=tcp bench --host allreduce --ranks 2 --min 4K --max 4K --batches 3 --dtype $type --tsv
        [ "$status" -eq 0 ]
        has "$output" "host memory, TCP"
        [ "$(rows 1,3,10)" = $'allreduce\t4096\tok' ]
    done
}

@test "an all-reduce of 2 MiB: the rates follow from the bytes and the median" {
    bench --host allreduce --ranks 2 --min 2M --max 2M --batches 3 --no-check --tsv
    [ "$status" -eq 0 ]
    # Two ranks: the bus carries 2 (n-1)/n times the bytes, which is as many.
    rows 3,4,7,8,10 | awk '{ e = $1 / $2 / 1000 - $3; if (e * e > 0.01 || $3 != $4 || $5 != "-") exit 1; n++ } END { exit n != 1 }'
}

@test "what needs GPUs, or other ranks, is refused with one sentence" {
    local line
    while IFS='|' read -r line sentence; do
        # shellcheck disable=SC2086
        bench $line
        [ "$status" -eq 2 ]
        [[ $messages = "muster bench: $sentence"?("; see muster bench --help") ]] || { printf '%s: %s\n' "$line" "$messages"; return 1; }
    done << 'LINES'
--host ddp --ranks 2|ddp needs GPUs; leave --host or ddp out
--host --graph --ranks 2|--graph needs GPUs; leave --host or --graph out
--host --path pull --ranks 2|--path needs GPUs; leave --host or --path out
--host pairs --dtype f16 --ranks 2|pairs takes --host, --ranks, --min, --max, --batches, --limit, --rating, --slow, --svg and --tsv only
--host pairs --limit 0 --ranks 2|--limit takes a number from 0.001 to 86400, not '0'
--host pairs --rating fast --ranks 2|--rating takes a number from 0.001 to 1e+06, not 'fast'
--host pairs --slow 0.5 --ranks 2|--slow takes a number from 1 to 1e+06, not '0.5'
--host allreduce --svg x.svg --ranks 2|--limit, --rating, --slow and --svg belong to pairs
--host compare --dtype bf16 --ranks 2|compare takes --host, --ranks, --model, --steps, --no-check and --tsv only
--host compare --graph --ranks 2|--graph needs GPUs; leave --host or --graph out
--host allreduce --model ./x --ranks 2|ddp needs --model, and only ddp and compare take it
--host tune --ranks 2|tune needs GPUs; leave --host or tune out
tune --ranks 2 --tsv|tune takes --ranks, --min, --max, --batches and --graph only
tune --ranks 2 --graph --own-grads|tune takes --ranks, --min, --max, --batches and --graph only
tune sendrecv --ranks 2|unknown collective of tune 'sendrecv'
barrier --ranks 2|barrier is measured with --host only
scatter --ranks 2|scatter is measured with --host only
--host --ranks 2 --max 4|--max is below --min
--ranks 2|give a collective, or --host for all of them in host memory
--host all_reduce --ranks 2|unknown collective 'all_reduce'
--host allreduce 1M --ranks 2|a word too many: 1M
--host allreduce -n 2|this option is unknown or lacks its value: -n
--host allreduce --iters 5 --ranks 2|this option is unknown or lacks its value: --iters
--host allreduce --dtype fp16 --ranks 2|unknown --dtype 'fp16'
--host allreduce --ranks|this option is unknown or lacks its value: --ranks
--host --ranks 0|--ranks takes a number from 1 to 64, not '0'
--host --ranks 1|one rank moves no data; start it by srun --mpi=pmix, or with --ranks N
LINES
}

@test "case 092: ranks connect with few descriptors" {
    ulimit -n 40
    bench --host barrier --ranks 2 --batches 3
    [ "$status" -eq 0 ]
}

@test "a build without CUDA names the option that measures host memory" {
    cp "$MUSTER_LIBEXEC/muster-bench" "$BATS_TEST_TMPDIR"
    MUSTER_LIBEXEC=$BATS_TEST_TMPDIR bench allreduce --ranks 2
    [ "$status" -eq 2 ]
    [ "$messages" = "muster bench: there is no $BATS_TEST_TMPDIR/muster-bench-gpu, which configure builds where it finds CUDA and NCCL; --host measures host memory" ]
    printf '#!/bin/sh\necho "$@"\nexit 7\n' > "$BATS_TEST_TMPDIR/muster-bench-gpu"
    chmod +x "$BATS_TEST_TMPDIR/muster-bench-gpu"
    MUSTER_LIBEXEC=$BATS_TEST_TMPDIR bench allreduce --ranks 2
    [ "$status" -eq 7 ]
    [ "$output" = "--ranks 2 allreduce" ]
}

# One pair of a world of three ranks is made bad: BAD_PAIR of bad_pair.c.
pairs() { # BAD_PAIR [option...]
    bad_pair "$BATS_TEST_TMPDIR/bad_pair.so"
    export BAD_PAIR=$1
    MUSTER_TRANSPORT=tcp LD_PRELOAD=$BATS_TEST_TMPDIR/bad_pair.so bench pairs --host --ranks 3 --max 256K --batches 3 --tsv "${@:2}"
}

# A model of two layers: 400 kB of gradients, in buckets when they may share one.
small_model() { # dtype
    printf '%s\n' "dtype $1" 'layer one' 'param a 60000' 'param b 12' 'gemm 64 64 64 1' \
        'layer two' 'param c 40000' 'param d 100' 'gemm 64 64 64 2' > "$BATS_TEST_TMPDIR/small.model"
}

@test "compare: every way of an exchange has its row, the bytes it sends, and what tutorials report" {
    small_model f32
    bench compare --host --ranks 2 --model "$BATS_TEST_TMPDIR/small.model" --steps 3 --tsv
    [ "$status" -eq 0 ]
    has "$output" "small.model: 4 tensors, 0.4 MB of f32 gradients, 3 steps of each way in 3 turns; computing takes "
    [[ $output =~ " ms, 4 times an exchange; about "[0-9]+" s in all" ]]
    diff <(rows 1,2,3,8,9) - << 'ROWS'
DataParallel to DDP	through rank 0	DDP, f32	3 to 5 times, 8 GPUs	ok
buckets	by tensor	DDP, f32	-	ok
overlap	after backward	DDP, f32	-	ok
buckets and overlap	by tensor, after backward	DDP, f32	1.1 to 1.2 times	ok
bf16	DDP, f32	DDP, bf16	50 % of the bytes	ok
INT8	DDP, f32	DDP, INT8	25 % of the bytes	ok
PowerSGD	DDP, f32	DDP, PowerSGD	-	ok
case study	by tensor, after backward	DDP, bf16	1.75 times	ok
ROWS
    # The gain follows from the two times, and a way sends what it should.
    rows 4,5,6 | awk '{ if (!($1 > 0 && $2 > 0 && ($1 / $2 - $3) ^ 2 < 1e-4)) exit 1 }'
    rows 1,7 | awk -F'\t' '{ sent[$1] = $2 } END {
        exit !(sent["buckets"] >= 100 && sent["buckets"] < 101 && sent["bf16"] >= 50 && sent["bf16"] < 51 &&
               sent["INT8"] > 25 && sent["INT8"] < 30 && sent["PowerSGD"] > 0 && sent["PowerSGD"] < 10) }'
    bench compare --host --ranks 2 --model "$BATS_TEST_TMPDIR/small.model" --steps 3
    [ "$status" -eq 0 ]
    [ "$(grep -c '^# .* ms (.* to .*)$' <<< "$output")" -eq 8 ]
}

@test "compare: a model with other gradients, or none, is refused with one sentence" {
    small_model bf16
    bench compare --host --ranks 2 --model "$BATS_TEST_TMPDIR/small.model"
    [ "$status" -ne 0 ]
    has "$messages" "compare takes a model of f32 gradients, and those of $BATS_TEST_TMPDIR/small.model are bf16"
    bench compare --host --ranks 2 --model none
    [ "$status" -ne 0 ]
    has "$messages" "none.model: No such file or directory"
}

@test "pairs: latency and bandwidth from each rank to each other one, over shared memory and TCP" {
    local transport
    for transport in shm tcp; do
        MUSTER_TRANSPORT=$transport bench pairs --host --ranks 3 --max 256K --batches 5 --tsv
        has "$output" $'from\tto\tfrom_node\tto_node\tlink\tlatency_us\tlatency_min_us\tlatency_max_us\tGBs\tmin_GBs\tmax_GBs\tboth_GBs\tboth_min_GBs\tboth_max_GBs\toutliers\tresult'
        [ "$(rows 1,2,5)" = $'0\t1\tnode\n0\t2\tnode\n1\t0\tnode\n1\t2\tnode\n2\t0\tnode\n2\t1\tnode' ]
        # Least, median and most of times and rates.
        rows 6-14 | awk '{ for (k = 1; k < 9; k += 3) if (!($(k + 1) > 0 && $(k + 1) <= $k && $k <= $(k + 2))) exit 1 }'
    done
}

@test "pairs: without --tsv three tables, a line of medians, and a picture" {
    command -v gnuplot > /dev/null || skip "no gnuplot"
    local picture=$BATS_TEST_TMPDIR/pairs.svg
    bench pairs --host --ranks 4 --max 64K --batches 3 --svg "$picture"
    [ "$(grep -c 'from.to        0        1        2        3$' <<< "$output")" -eq 3 ]
    [ "$(grep -cE '^        [0-3]( +([0-9.]+|-)){4}$' <<< "$output")" -eq 12 ]
    has "$output" "# inside a node: 12 pairs, one way "
    grep -q '^<svg' "$picture"
    grep -q '>GB/s one way<' "$picture"
    grep -q '</svg>' "$picture"
    bench pairs --host --ranks 2 --max 64K --batches 3 --svg /nowhere/x.svg
    [ "$status" -eq 1 ]
    [ "$messages" = "muster bench: cannot write /nowhere/x.svg: No such file or directory" ]
}

@test "pairs: a pair that is slower than the others is named, and the status reports it" {
    pairs "0 2 slow"
    [ "$status" -eq 1 ]
    [[ $output =~ "# slow from rank 0 (node "[^\)]+") to rank 2 (node "[^\)]+"): 0.0"[0-9]" GB/s, where the median inside a node is "[0-9] ]]
    [ "$(rows 1,2,16 | grep $'^0\t2')" = $'0\t2\tslow' ]
    pairs "0 2 slow" --slow 1000000
    [ "$status" -eq 0 ]
    [ "$(rows 16 | sort -u)" = ok ]
}

@test "pairs: a pair below the rating of the link is slow" {
    bench pairs --host --ranks 2 --max 64K --batches 3 --rating 100000
    [ "$status" -eq 1 ]
    [ "$(grep -c '^# slow from rank . .* GB/s, where the link is rated 100000.00 GB/s$' <<< "$output")" -eq 2 ]
}

@test "pairs: a pair that carries no data is named after its limit, and the others are measured" {
    pairs "0 2 lost" --limit 1
    [ "$status" -eq 14 ]
    has "$messages" "no message arrived within 1 s from rank 0 (node "
    diff <(rows 1,2,16 | sed 's/slow$/ok/') - << 'ROWS'
0	1	ok
0	2	overdue
1	0	ok
1	2	ok
2	0	skipped
2	1	ok
ROWS
}

@test "pairs: wrong data are reported" {
    pairs "2 1 wrong"
    [ "$status" -eq 1 ]
    has "$output" "# wrong data arrived from rank 2 (node "
    [ "$(rows 1,2,16 | grep -c WRONG)" -eq 1 ]
}

@test "lanes: 1, 2, ... pairs of the two halves send at once, and the last line has how many add" {
    MUSTER_PLAN='v=1;task=0;gpus=-;cpus=0-1;mems=0;nics=mlx5_2,mlx5_3;path=PIX' \
        bench lanes --host --ranks 5 --max 64K --batches 3 --tsv
    [ "$status" -eq 0 ]
    node=$(hostname)
    [ "$(grep '^# lane' <<< "$output")" = "# lane 1: rank 0 (node $node, NIC mlx5_2) to rank 2 (node $node, NIC mlx5_2)
# lane 2: rank 1 (node $node, NIC mlx5_2) to rank 3 (node $node, NIC mlx5_2)" ]
    [ "$(rows 1)" = $'1\n2' ]
    # least, median and most one way and both ways; each of the lanes; the share of linear
    rows 2,3,4,7,8,9 | awk '{ if (!($2 > 0 && $2 <= $1 && $1 <= $3 && $5 > 0 && $5 <= $4 && $4 <= $6)) exit 1 }'
    rows 1,2,5 | awk '{ if ($2 / $1 - $3 > 0.002 || $3 - $2 / $1 > 0.002) exit 1 }'
    [ "$(rows 1,6 | head -n 1)" = $'1\t100.0' ]
    [[ $(tail -n 1 <<< "$output") =~ ^"# "[12]" of 2 lanes add to the bandwidth: "[0-9.]+" GB/s, "[0-9.]+" times one"$ ]]
    bench lanes --host --ranks 2 --max 64K --batches 3 --dtype f16
    [ "$status" -eq 2 ]
    has "$messages" "muster bench: lanes takes --host, --ranks, --max, --batches and --tsv only"
}
