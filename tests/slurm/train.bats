#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# muster-train under a real Slurm: ranks that agree, and ends that say what happened.

source "$BATS_TEST_DIRNAME/common.bash"
train=$build/muster-train

setup_file() {
    export MUSTER_DIR
    MUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/mtrain.XXXXXX")
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/cluster" --nodes 2 --gpus 4 --cpus 4 \
        --plugin "$build/.libs/muster.so" > "$MUSTER_DIR/env"
}

teardown_file() {
    [ -n "${MUSTER_DIR:-}" ] || return 0
    "$top/tests/slurm/cluster" down --dir "$MUSTER_DIR/cluster"
    rm -rf "$MUSTER_DIR"
}

setup() {
    eval "$(cat "$MUSTER_DIR/env")"
    export MUSTER_TIMEOUT=60 MUSTER_INIT_TIMEOUT=60
    cd "$BATS_TEST_TMPDIR" || return 1
}

# A step of N ranks; the rest are options of srun up to --, then of muster-train.
ranks() {
    local n=$1 options=()
    shift
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    timeout -k 10 200 srun --mpi=pmix --ntasks="$n" --overlap "${options[@]}" \
        "$train" --test-samples 1000 "$@"
}

# The losses of two curves agree within BOUND, relative, in the first N lines of each.
agree() { # file, file, bound, lines
    awk -v bound="$3" -v lines="$4" '
        NR == FNR { a[FNR] = $2; next }
        FNR <= lines { d = ($2 - a[FNR]) / a[FNR]; if (d < 0) d = -d; if (d > worst) worst = d; n++ }
        END {
            printf "%d losses, largest relative difference %g\n", n, worst
            exit !(n == lines && worst <= bound && a[1] > 1)
        }' "$1" "$2"
}

one_weight_hash() { # output: every rank printed the same
    [ "$(grep -o 'weights [0-9a-f]*' <<< "$1" | sort -u | wc -l)" -eq 1 ]
}

@test "fp32: four ranks of 32 and one of 128 agree in 50 losses within 1e-5, weights equal in all bits" {
    run ranks 4 -N1 --gres=gpu:4 -- --steps 60 --curve four --result four.json
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"World size:           4 ranks on 1 node"* ]]
    [[ $output = *"CPU ranks, fake GPUs"* ]]
    [[ $output = *"Effective batch size: 32 x 4 = 128"* ]]
    [[ $output = *"Communication:        shared memory"* ]]
    [ "$(grep -c '^RANK: [0-3] | 60 steps, weights' <<< "$output")" -eq 4 ]
    one_weight_hash "$output"
    run ranks 1 -N1 --gres=gpu:1 -- --batch 128 --steps 60 --curve one --result one.json
    [ "$status" -eq 0 ]
    agree one four 1e-5 50
    run "$build/muster-report" speedup one.json four.json
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"SPEEDUP ANALYSIS (CPU ranks, fake GPUs)"*"Efficiency per core:"* ]]
}

@test "fp64: over two nodes every loss of an epoch agrees within 1e-6, also with accumulation" {
    run ranks 4 -N2 -- --dtype fp64 --epochs 1 --samples 20000 --curve four
    [ "$status" -eq 0 ]
    [[ $output = *"4 ranks on 2 nodes"* ]]
    one_weight_hash "$output"
    run ranks 1 -N1 -- --dtype fp64 --epochs 1 --samples 20000 --batch 128 --curve one
    [ "$status" -eq 0 ]
    agree one four 1e-6 157
    run ranks 2 -N1 -- --dtype fp64 --epochs 1 --samples 20000 --batch 16 --accumulate 4 --curve accumulated
    [ "$status" -eq 0 ]
    agree one accumulated 1e-6 157
}

@test "cnn: two ranks and one agree, over TCP between ranks of one node" {
    run ranks 2 -N1 -- --model cnn --batch 16 --steps 20 --samples 2000 --transport tcp --curve two
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"Communication:        TCP"* ]]
    run ranks 1 -N1 -- --model cnn --batch 32 --steps 20 --samples 2000 --curve one
    [ "$status" -eq 0 ]
    agree one two 1e-5 20
}

@test "ZeRO-1: four ranks with parts of the momenta agree with one; two go on from their checkpoint" {
    run ranks 1 -N1 -- --dtype fp64 --batch 128 --steps 60 --curve one --result one.json
    [ "$status" -eq 0 ]
    run ranks 4 -N2 -- --dtype fp64 --zero --steps 40 --curve zero --result zero.json --checkpoint parts --sharded
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"optimizer state sharded (ZeRO-1)"* ]]
    one_weight_hash "$output"
    # A quarter of 2154576 bytes, and at most the padding of three buckets on top.
    local part
    part=$(awk -F'[: ,]+' '/"momenta"/ { print $3 }' zero.json)
    echo "momenta: $part bytes"
    [ "$part" -ge 538644 ] && [ "$part" -le $((538644 + 3 * 512)) ]
    run ranks 2 -N1 -- --dtype fp64 --zero --batch 64 --steps 60 --curve zero --checkpoint parts --sharded --resume must
    echo "$output"
    [ "$status" -eq 0 ]
    agree one zero 1e-6 60
}

@test "compressed gradients: the same weights on all ranks, fewer bytes, a loss like plain" {
    run ranks 4 -N2 -- --steps 100 --samples 12800 --curve none --result none.json
    [ "$status" -eq 0 ]
    local how bytes
    while read -r how bytes; do
        run ranks 4 -N2 -- --steps 100 --samples 12800 --compress "$how" --curve "$how" --result "$how.json"
        echo "$output"
        [ "$status" -eq 0 ]
        [[ $output = *"Gradients:            $how"* ]]
        one_weight_hash "$output"
        grep -q "\"gradient_bytes_per_step\": $bytes," "$how.json"
        # The mean of the last 20 losses, within a tenth of plain's.
        awk 'NR == FNR { if (FNR > 80) a += $2; next } FNR > 80 { b += $2 }
            END { print a / 20, b / 20; exit !(a > 0 && b > 0 && b < 1.1 * a) }' none "$how"
    done << 'BYTES'
bf16 538688
fp16 538688
int8 273536
powersgd:4 31176
BYTES
}

@test "int8 and powersgd: a run that stops and goes on has the undisturbed one's losses, bit for bit, with ZeRO-1 too" {
    local how
    for how in int8 "int8 --zero" "powersgd:2"; do
        rm -rf parts
        # shellcheck disable=SC2086 # two words
        run ranks 3 -N1 -- --steps 60 --samples 6000 --compress $how --curve whole
        [ "$status" -eq 0 ]
        # shellcheck disable=SC2086
        run ranks 3 -N1 -- --steps 60 --samples 6000 --compress $how --curve parted --checkpoint parts --sharded --checkpoint-every 35
        [ "$status" -eq 0 ]
        rm parts/*-000000000060.muster
        # shellcheck disable=SC2086
        run ranks 3 -N1 -- --steps 60 --samples 6000 --compress $how --curve parted --checkpoint parts --sharded --resume must
        echo "$output"
        [ "$status" -eq 0 ]
        [[ $output = *"step 35, epoch 1"* ]]
        cmp whole parted
    done
    # Two ranks take it up without what was left on three.
    run ranks 2 -N1 -- --steps 70 --samples 6000 --compress int8 --checkpoint parts --sharded --resume must
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"checkpoint of step 60 has no compression state of 2 ranks: compression starts without it"* ]]
}

@test "without PMIx each task says which srun to use, status 11" {
    run timeout 60 srun --mpi=none -n2 "$train" --steps 5
    echo "$output"
    [ "$status" -eq 11 ]
    [[ $output = *"srun --mpi=pmix"* ]]
}

@test "in a batch script without srun it says so, status 20" {
    run batch_job 60 -n4 -o out --wrap "$train --steps 5"
    [ "$status" -eq 20 ]
    run cat out
    [[ $output = *"started this program without srun"* ]]
}

@test "a wrong number of ranks is refused, status 12" {
    run ranks 2 -N1 -- --ranks 4 --steps 5
    [ "$status" -eq 12 ]
    [[ $output = *"this run has 2 ranks, but --ranks is 4"* ]]
}

@test "a missing, a truncated and a damaged data file are named, status 21" {
    run ranks 2 -N1 -- --data "$PWD/none"
    [ "$status" -eq 21 ]
    [[ $output = *"$PWD/none/train-images-idx3-ubyte.gz cannot be read: No such file"* ]]
    cp -r /usr/share/datasets/fashion-mnist cut
    truncate -s 300000 cut/t10k-images-idx3-ubyte.gz
    run ranks 2 -N1 -- --data cut
    [ "$status" -eq 21 ]
    [[ $output = *"cut/t10k-images-idx3-ubyte.gz is truncated"* ]]
    cp /usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz cut/
    printf 'x' | dd of=cut/train-labels-idx1-ubyte.gz bs=1 seek=20000 conv=notrunc status=none
    run ranks 2 -N1 -- --data cut
    echo "$output"
    [ "$status" -eq 21 ]
    [[ $output = *"cut/train-labels-idx1-ubyte.gz"* ]]
}

@test "a full disk ends all ranks with status 16, and the last good checkpoint resumes" {
    mkdir small
    mount -t tmpfs -o size=5m none small 2>/dev/null || skip "no right to mount a file system"
    run ranks 2 -N1 -- --steps 200 --checkpoint small --checkpoint-every 20
    echo "$output"
    local code=$status
    cp -a small saved
    umount small
    [ "$code" -eq 16 ]
    [[ $output = *"rank 0 (node n1): small/muster-train-000000000060.muster cannot be written: No space left on device"* ]]
    [[ $output = *"the last good checkpoint is small/muster-train-000000000040.muster"* ]]
    run ranks 2 -N1 -- --steps 60 --checkpoint saved --resume must
    [ "$status" -eq 0 ]
    [[ $output = *"resumed from saved/muster-train-000000000040.muster: step 40"* ]]
}

@test "kill -9 of one of three ranks ends the others with status 13 within 5 s, and a checkpoint stays" {
    ranks 3 -N1 -- --epochs 50 --checkpoint kept --checkpoint-every 10 > out 2>&1 &
    local step=$! victim killed code=0
    wait_for 60 test -e kept/muster-train-latest.muster
    victim=$(process_of_rank 'muster-train .*--checkpoint kept' 2)
    killed=$SECONDS
    kill -9 "$victim"
    wait "$step" || code=$?
    cat out
    [ "$code" -eq 13 ]
    [ $((SECONDS - killed)) -le 5 ]
    grep -q 'rank 2 (node n1, pid [0-9]*) died' out
    run ranks 2 -N1 -- --steps 1 --checkpoint kept --resume must
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"resumed from kept/"* ]]
}

@test "USR1 to the step gives a checkpoint and status 22; gone on with in another world it ends where an undisturbed run ends" {
    ranks 4 -N1 --job-name=stopme -- --dtype fp64 --epochs 1 --checkpoint stop --curve stopped > out 2>&1 &
    local step=$! code=0
    wait_for 60 has_lines stopped 1
    scancel --signal=USR1 --name=stopme
    wait "$step" || code=$?
    cat out
    [ "$code" -eq 22 ]
    grep -q 'stopped by a signal after step' out
    run ranks 2 -N1 -- --dtype fp64 --epochs 1 --batch 64 --checkpoint stop --resume must --curve stopped
    echo "$output"
    [ "$status" -eq 0 ]
    run ranks 1 -N1 -- --dtype fp64 --epochs 1 --batch 128 --curve undisturbed
    [ "$status" -eq 0 ]
    agree undisturbed stopped 1e-6 469
}

@test "shards of four ranks are taken up by three" {
    run ranks 4 -N2 -- --steps 40 --samples 6000 --checkpoint parts --sharded --checkpoint-every 20
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(find parts -name "*-000000000040.*-of-0004.shard" | wc -l)" -eq 4 ]
    run ranks 3 -N1 -- --epochs 1 --samples 6000 --checkpoint parts --resume must
    [ "$status" -eq 0 ]
    [[ $output = *"step 40, epoch 1, sample 5120"* ]]
    one_weight_hash "$output"
}

@test "on a terminal there is a bar with ETA, else plain lines of rank 0" {
    run script -qec "$train --single --steps 300 --test-samples 1000" /dev/null
    [ "$status" -eq 0 ]
    [[ $output = *$'\r'*"epoch 1/5"*"█"*"ETA "* ]]
    run "$train" --single --steps 300 --test-samples 1000
    [ "$status" -eq 0 ]
    [[ $output != *"█"* ]]
}
