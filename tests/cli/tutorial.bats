#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# What muster-tutorial(7) shows is what the jobscripts print. muster run is in place of srun.
# shellcheck disable=SC2030,SC2031 # each test has an environment of its own

setup_file() {
    local top=${MUSTER_SRCDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
    make -s -C "${MUSTER_BUILDDIR:-$top/build}" tests/unit/write_ledgers
}

setup() {
    load common
    export build=${MUSTER_BUILDDIR:-$top/build}
    export PATH=$BATS_TEST_TMPDIR:$build:$PATH MUSTER_LIBEXEC=$build
    export SLURM_JOB_ID=7 SLURM_CPUS_PER_TASK=1
    cd "$BATS_TEST_TMPDIR" || return 1
    # Slurm's number of the job would be one of a step without PMIx.
    cat > srun <<'SRUN'
#!/bin/bash
ranks=4
while [[ $1 = -* ]]; do
    case $1 in
        --ntasks=*) ranks=${1#*=} ;;
        --muster=profile=*) export MUSTER_PROFILE=${1#*profile=} ;;
    esac
    shift
done
exec env -u SLURM_JOB_ID muster run -n "$ranks" "$@" 2> errors
SRUN
    chmod +x srun
}

# Start a jobscript as Slurm does, apart from the ranks.
job() { # script
    export SLURM_JOB_NAME=${1#*_}
    run env SLURM_JOB_NAME="${SLURM_JOB_NAME%.sh}" bash "$top/jobscripts/$1"
    echo "$output"
    cat errors 2> /dev/null || true
}

# The lines of a literal block of the page, as a reader sees them.
block() { # name
    awk -v start=".\\\\\" output of $1" '$0 == start { on = 1 } on && /^\.Ed/ { exit } on && !/^\./' \
        "$top/jobscripts/muster-tutorial.7" | sed 's/\\e/\\/g'
}

# Without numbers, hashes, names of nodes and the width of columns.
shape() {
    sed -E 's/[0-9a-f]{16}/H/g; s/node [a-z][^ ,)]*/node X/g; s/CPUs [0-9,-]+/CPUs N/; s/[0-9]+(\.[0-9]+)?/N/g; s/ +/ /g; s/^ //'
}

# Each line of the block is printed, in its order; between " ..." no line is left out.
shown() { # name
    local line want gap=1 at=0 printed
    mapfile -t printed < <(shape <<< "$output")
    mapfile -t want < <(block "$1" | shape)
    [ "${#want[@]}" -gt 0 ] || { echo "the page has no output of $1"; return 1; }
    for line in "${want[@]}"; do
        [ "$line" != ... ] || { gap=1; continue; }
        while [ $gap -eq 1 ] && [ "$at" -lt "${#printed[@]}" ] && [ "${printed[at]}" != "$line" ]; do
            at=$((at + 1))
        done
        [ "${printed[at]-}" = "$line" ] || { printf 'the page: %s\nprinted:  %s\n' "$line" "${printed[at]-}"; return 1; }
        at=$((at + 1)) gap=0
    done
}

@test "02: a training on the ranks of one node" {
    EPOCHS=1 job 02_multi_gpu_single_node.sh
    [ "$status" -eq 0 ]
    shown 02
}

@test "05: a training that stops with its checkpoint is put back into the queue" {
    printf '#!/bin/bash\nexit 22\n' > srun
    printf '#!/bin/bash\necho "$@" > requeued\n' > scontrol
    chmod +x scontrol
    job 05_requeue.sh
    [ "$status" -eq 0 ]
    shown 05
    [ "$(cat requeued)" = "requeue 7" ]
}

@test "06: the links are measured, then the training runs" {
    PAIRS="--host --max 64K --batches 3 --slow 1000" EPOCHS=1 job 06_bandwidth.sh
    [ "$status" -eq 0 ]
    shown 06
    [ -s bandwidth-7.json ]
}

@test "06: a slow pair is named, and the training does not start" {
    bad_pair "$PWD/bad_pair.so"
    sed -i "s|-u SLURM_JOB_ID|& MUSTER_TRANSPORT=tcp LD_PRELOAD=$PWD/bad_pair.so|" srun
    # Other pairs may share a core, which makes them slower, but not by so much.
    BAD_PAIR="0 2 slow" PAIRS="--host --max 64K --batches 20 --slow 20" job 06_bandwidth.sh
    [ "$status" -eq 1 ]
    shown "06 where a pair is slow"
    [ ! -e bandwidth-7.json ]
}

@test "07: a profile of ledgers, exactly as the page has it" {
    PYTHON=muster-train TRAIN="--steps 60 --samples 2000 --test-samples 100" job 07_profile.sh
    [ "$status" -eq 0 ]
    [[ $output = *"4 processes, "*" records"* ]]
    [ -s profile-7.html ]
    mkdir made
    "$build/tests/unit/write_ledgers" made 4 120 2
    diff <(block 07 | grep -v '^ \.\.\.$') <(muster report made | head -10)
}

@test "07: a program without collectives has no ledger, and one sentence reports it" {
    PYTHON=true job 07_profile.sh
    [ "$status" -eq 1 ]
    [ "$output" = "no process has written a ledger: the program has used neither NCCL nor libmuster" ]
}

@test "08: ranks are doubled up to the tasks of the job" {
    printf '#!/bin/bash\necho "$1" >> ranks\n' > srun
    SLURM_NTASKS=2 job 08_compare.sh
    [ "$(paste -sd' ' ranks)" = "--ntasks=1 --ntasks=2" ]
    rm ranks
    SLURM_NTASKS=8 job 08_compare.sh
    [ "$(paste -sd' ' ranks)" = "--ntasks=1 --ntasks=2 --ntasks=4 --ntasks=8" ]
}

@test "08: the same work on one, two and four ranks" {
    EPOCHS=1 job 08_compare.sh
    [ "$status" -eq 0 ]
    shown 08
}

@test "the page has each jobscript, and names no other" {
    local script
    for script in "$top"/jobscripts/0*.sh; do
        grep -qF "$(basename "$script")" "$top/jobscripts/muster-tutorial.7"
    done
    while IFS= read -r script; do
        [ -x "$top/jobscripts/$script" ]
    done < <(grep -oE '0[0-9]_[a-z_]+\.sh' "$top/jobscripts/muster-tutorial.7")
}

@test "each command that stands for a figure of other tutorials is one, with its options" {
    local command n=0
    while read -r command; do
        # shellcheck disable=SC2086
        set -- $command
        [ "$1" = muster ]
        run "$build/muster" "$2" --help
        [ "$status" -eq 0 ]
        for word in "${@:3}"; do
            [[ $word = [[:upper:]]* || $output = *"${word%,}"* ]] || { echo "$command: no $word"; return 1; }
        done
        n=$((n + 1))
    done < <(sed -n '/^.Sh WHAT OTHER/,/^.Sh SEE/s/^\.Li \(muster [^,;:]*\).*/\1/p' "$top/jobscripts/muster-tutorial.7" |
        sed 's/\\-/-/g; s/ Ar .*//; s/ *$//')
    [ "$n" -ge 25 ]
}
