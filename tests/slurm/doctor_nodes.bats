#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# muster doctor --nodes as a step over two real nodes, which share one kernel: they differ in what the
# test gives one of them.

# Each test is a subshell.
# shellcheck disable=SC2030,SC2031

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    export MUSTER_DIR
    MUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/mdn.XXXXXX")
    mkdir "$MUSTER_DIR/bin"
    # The driver of the second node is older.
    cat > "$MUSTER_DIR/bin/nvidia-smi" <<'SMI'
#!/bin/sh
driver=550.54.15
[ "$SLURMD_NODENAME" != mdn2 ] || driver=535.104.05
echo "NVIDIA H200, 96.00.A5.00.01, Enabled, Default, Enabled, Disabled, 700.00 W, 1980 MHz, 3201 MHz, [N/A], [N/A], Not Active, Not Active, Not Active, 5, 16, 143771 MiB, No, $driver"
SMI
    chmod +x "$MUSTER_DIR/bin/nvidia-smi"
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/c" --prefix mdn --nodes 2 --gpus 2 \
        --plugin "$build/.libs/muster.so" > "$MUSTER_DIR/env"
}

nodes() { # option...: in a job of both nodes, whose own layout is another one
    PATH=$MUSTER_DIR/bin:$PATH timeout 60 salloc -Q -N2 --ntasks-per-node=2 --gpus-per-task=1 \
        "$build/muster" doctor --nodes "$@" < /dev/null
}

@test "what differs between two nodes of a job is printed, what is alike is not" {
    run nodes
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "${lines[0]}" =~ ^2\ nodes,\ [0-9]+\ facts:\ 1\ differs$ ]]
    [ "$(sed 1d <<< "$output" | tr -s ' ')" = "gpu.0.driver_version 535.104.05 mdn2
 550.54.15 mdn1" ]
}

@test "a node whose nvidia-smi hangs has no facts of its GPUs; the rest is compared" {
    cp "$MUSTER_DIR/bin/nvidia-smi" "$MUSTER_DIR/smi"
    printf '#!/bin/sh\n[ "$SLURMD_NODENAME" != mdn2 ] || exec sleep 300\nexec %s\n' "$MUSTER_DIR/smi" > "$MUSTER_DIR/bin/nvidia-smi"
    run nodes
    mv "$MUSTER_DIR/smi" "$MUSTER_DIR/bin/nvidia-smi"
    echo "$output"
    [ "$status" -eq 1 ]
    grep -q '^gpu.0.clocks.max.memory *3201 MHz *mdn1$' <<< "$output"
    grep -q '^ *absent *mdn2$' <<< "$output"
    grep -q '^ *and [0-9]* more facts of gpu$' <<< "$output"
}

@test "a capture of the job is compared again without Slurm" {
    run nodes --capture "$MUSTER_DIR/facts.tar"
    [ "$status" -eq 1 ]
    local live=$output
    run env -i PATH=/usr/bin:/bin "$build/muster" doctor --nodes --replay "$MUSTER_DIR/facts.tar"
    [ "$status" -eq 1 ]
    [ "$output" = "${live//mdn/node}" ]
    [ "$(tar -xOf "$MUSTER_DIR/facts.tar" | grep -c 'mdn\|127\.0\.0')" -eq 0 ]
}
