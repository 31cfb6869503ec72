#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# muster doctor --nodes: 64 nodes, each a small recorded tree; srun is a script that asks one after the
# other. The real step is in tests/slurm/doctor_nodes.bats.
# shellcheck disable=SC2154 # common.bash sets top and muster
load common

setup_file() {
    export NODES=$BATS_FILE_TMPDIR
    mkdir -p "$NODES/bin"
    local kind
    for kind in good bad; do
        tree "$NODES/$kind"
    done
    # Another driver, firmware and window; a port that is down; no device file; a GPU that is slow.
    echo 535.104.05 > "$NODES/bad/sys/module/nvidia/version"
    echo 28.36.1010 > "$NODES/bad/sys/class/infiniband/mlx5_0/fw_ver"
    rm "$NODES/bad/dev/infiniband/uverbs1"
    echo '1: DOWN' > "$NODES/bad/sys/class/infiniband/mlx5_1/ports/1/state"
    echo 4096 131072 6291456 > "$NODES/bad/proc/sys/net/ipv4/tcp_rmem"
    cat > "$NODES/bin/nvidia-smi" << 'SMI'
#!/bin/sh
slow='Not Active'
[ "$SLURMD_NODENAME" != n07 ] || slow=Active
for gpu in 0 1; do
    echo "NVIDIA H200, 96.00.A5.00.01, Enabled, Default, Enabled, Disabled, 700.00 W, 1980 MHz, 3201 MHz, [N/A], [N/A], $slow, Not Active, Not Active, 5, 16, 143771 MiB, No, 550.54.15"
done
SMI
    cat > "$NODES/bin/srun" << 'SRUN'
#!/bin/bash
# srun OPTION... PROGRAM ARGUMENT...: on each node; n12 does not answer.
[ "$1" != -V ] || { echo "slurm 22.05.8"; exit; }
echo "$*" >> "$NODES/srun"
[ ! -e "$NODES/fails" ] || exit 1
while [[ $1 = -* ]]; do shift; done
echo 'a line of the shell: welcome'
for i in $(seq -w 64); do
    kind=good
    [ "$i" != 63 ] || kind=bad
    [ "$i" = 12 ] && [ -e "$NODES/silent" ] || SLURMD_NODENAME=n$i HWLOC_FSROOT=$NODES/$kind "$@"
done
SRUN
    chmod +x "$NODES/bin"/*
}

# Two RDMA devices, an interface, a driver.
tree() { # folder
    local d=$1/sys/class/infiniband i
    mkdir -p "$1"/sys/{module/nvidia,class/net/eth0/device} "$1/proc/sys/net/ipv4" "$1/proc/self"
    echo 550.54.15 > "$1/sys/module/nvidia/version"
    echo 4096 131072 33554432 > "$1/proc/sys/net/ipv4/tcp_rmem"
    ln -s ../../../../bus/pci/drivers/ice "$1/sys/class/net/eth0/device/driver"
    echo 9000 > "$1/sys/class/net/eth0/mtu"
    cat > "$1/proc/self/mounts" << 'MOUNTS'
filer.example.org:/vol/home /home nfs4 rw,vers=4.2,clientaddr=10.0.0.7,addr=10.0.0.1 0 0
tmpfs /dev/shm tmpfs rw,nosuid,size=131072000k 0 0
proc /proc proc rw 0 0
MOUNTS
    for i in 0 1; do
        mkdir -p "$d/mlx5_$i/ports/1/gids" "$d/mlx5_$i/ports/1/gid_attrs/types"
        echo 28.39.2048 > "$d/mlx5_$i/fw_ver"
        echo '4: ACTIVE' > "$d/mlx5_$i/ports/1/state"
        echo '400 Gb/sec (4X NDR)' > "$d/mlx5_$i/ports/1/rate"
        echo 0000:0000:0000:0000:0000:ffff:0a00:0$((100 + i)) > "$d/mlx5_$i/ports/1/gids/0"
        echo 'RoCE v2' > "$d/mlx5_$i/ports/1/gid_attrs/types/0"
        mkdir -p "$1/dev/infiniband" "${d}_verbs/uverbs$i"
        echo mlx5_$i > "${d}_verbs/uverbs$i/ibdev"
        touch "$1/dev/infiniband/uverbs$i"
    done
}

setup() {
    export PATH=$NODES/bin:$PATH SLURM_JOB_ID=7 SLURM_JOB_NODELIST='n[01-64]' HWLOC_COMPONENTS=linux,stop
    unset SLURMD_NODENAME
    rm -f "$NODES/srun" "$NODES/silent" "$NODES/fails"
}

report='driver.nvidia                      550.54.15            n[01-62,64]
                                   535.104.05           n63
gpu.0.clocks_throttle_reasons.hw_slowdown  Not Active           n[01-06,08-64]
                                   Active               n07
gpu.1.clocks_throttle_reasons.hw_slowdown  Not Active           n[01-06,08-64]
                                   Active               n07
rdma.mlx5_0.fw_ver                 28.39.2048           n[01-62,64]
                                   28.36.1010           n63
rdma.mlx5_1.device_file            opens                n[01-62,64]
                                   No such file or directory n63
rdma.mlx5_1.port1.state            4: ACTIVE            n[01-62,64]
                                   1: DOWN              n63
sysctl.net.ipv4.tcp_rmem           4096 131072 33554432 n[01-62,64]
                                   4096 131072 6291456  n63'

@test "64 nodes: only what differs is printed, and which nodes do" {
    local begin=$EPOCHREALTIME end
    m doctor --nodes
    end=$EPOCHREALTIME
    echo "# 64 nodes, one after the other, in $(((${end/./} - ${begin/./}) / 1000)) ms" >&3
    echo "$output"
    [ "$status" -eq 1 ]
    [ "$(head -n 1 <<< "$output" | tr -d 0-9)" = ' nodes,  facts:  differ' ]
    [ "$(sed '1d; /^n/,$d' <<< "$output" | tr -s ' ')" = "$(tr -s ' ' <<< "$report")" ]
    [ "$(grep -A9 '^n' <<< "$output")" = 'n63 differs from most nodes in 5 facts
n07 differs from most nodes in 2 facts
-> make them alike, or leave them out: --exclude=n[07,63]' ]
    grep -q -- '--overlap.* --nodes=64 --ntasks=64 --ntasks-per-node=1 .*/muster doctor --node-facts$' "$NODES/srun"
}

@test "as tasks of a step the first one compares, the others print nothing" {
    : > "$NODES/srun"
    for rank in 1 2; do
        SLURM_STEP_ID=0 SLURM_PROCID=$rank m doctor --nodes
        [ "$status" -eq 0 ]
        [ -z "$output$messages" ]
    done
    [ ! -s "$NODES/srun" ]
    SLURM_STEP_ID=0 SLURM_PROCID=0 m doctor --nodes
    [ "$status" -eq 1 ]
    [ -s "$NODES/srun" ]
}

@test "a node that does not answer is named, the others are compared" {
    touch "$NODES/silent"
    m doctor --nodes
    [ "$status" -eq 1 ]
    [ "$(head -n 1 <<< "$output")" = 'n12: no facts came back from there' ]
    has "$output" '63 nodes, '
}

# A user may mount a FUSE file system in a folder of any name.
@test "the name of a user's mount forges no fact, and no control byte reaches the terminal" {
    local mounts=$NODES/bad/proc/self/mounts
    cp "$mounts" "$BATS_TEST_TMPDIR/mounts"
    printf '%s\n' $'u\033[2J /tmp/u\033[2J\\012muster-fact\\040n64\\040boot.x=y fuse.glusterfs rw 0 0' >> "$mounts"
    m doctor --nodes
    cp "$BATS_TEST_TMPDIR/mounts" "$mounts"
    cat -v <<< "$output$messages"
    [ "$status" -eq 1 ]
    has "$output" 'mount./tmp/u?[2J?muster-fact n64 boot.x'
    [ "$(grep -c $'\033' <<< "$output$messages")" -eq 0 ]
    [ "$(grep -c '^boot.x' <<< "$output")" -eq 0 ]
    printf 'muster-fact n%d a\033[2J=\033[%dJ\n' 1 1 2 2 > "$BATS_TEST_TMPDIR/facts"
    tar -C "$BATS_TEST_TMPDIR" -cf "$BATS_TEST_TMPDIR/foreign.tar" facts
    m doctor --nodes --replay "$BATS_TEST_TMPDIR/foreign.tar"
    has "$output" '?[1J'
    [ "$(grep -c $'\033' <<< "$output")" -eq 0 ]
}

@test "--capture has no name and no address; --replay prints the same differences elsewhere" {
    m doctor --nodes --capture "$BATS_TEST_TMPDIR/facts.tar"
    [ "$status" -eq 1 ]
    local live=$output
    run tar -xOf "$BATS_TEST_TMPDIR/facts.tar"
    [ "$(grep -c '^muster-fact node63 ' <<< "$output")" -gt 20 ]
    [ "$(grep -acE 'n63|n\[|filer|example|10\.0\.0|/vol' "$BATS_TEST_TMPDIR/facts.tar")" -eq 0 ]
    run tar -tvf "$BATS_TEST_TMPDIR/facts.tar"
    [[ $output != *"$(id -un)"* || $(id -un) = root ]]
    unset SLURM_JOB_ID SLURM_JOB_NODELIST
    PATH=/usr/bin:/bin m doctor --nodes --replay "$BATS_TEST_TMPDIR/facts.tar"
    [ "$status" -eq 1 ]
    local plain=$output
    gzip "$BATS_TEST_TMPDIR/facts.tar"
    m doctor --nodes --replay "$BATS_TEST_TMPDIR/facts.tar.gz"
    [ "$output" = "$plain" ]
    # the names are masked, n07 is node7
    [ "$(tr -s ' ' <<< "$output")" = "$(sed 's/n\([0-9[]\)/node\1/g; s/node\[\([-0-9,]*\)\]/node[\1]/g' <<< "$live" |
        sed -E 's/([[,-]|node)0+([1-9])/\1\2/g' | tr -s ' ')" ]
}

@test "JSON has the same" {
    m doctor --nodes --format json
    [ "$status" -eq 1 ]
    run jq -r '.nodes, .silent, (.differences | length), .away[0].node, .away[0].facts,
        (.differences[] | select(.fact == "driver.nvidia").groups[1] | .value, .count, .nodes)' <<< "$output"
    [ "$output" = "64

7
n07
2
535.104.05
1
n63" ]
}

@test "outside a job, with a step that fails, or with a file that is no capture: one sentence, status 3" {
    touch "$NODES/fails"
    m doctor --nodes
    [ "$status" -eq 3 ]
    has "$messages" "the step failed (srun's status 1): see what this prints: srun --overlap --nodes=64"
    unset SLURM_JOB_NODELIST
    m doctor --nodes
    [ "$status" -eq 3 ]
    has "$messages" 'run it under sbatch or salloc, or give --replay FILE'
    echo text > "$BATS_TEST_TMPDIR/text"
    m doctor --nodes --replay "$BATS_TEST_TMPDIR/text"
    [ "$status" -eq 3 ]
    has "$messages" 'is not an archive that --capture wrote'
    m doctor --nodes --replay "$BATS_TEST_TMPDIR/none"
    [ "$status" -eq 3 ]
    has "$messages" 'none: No such file'
    printf 'muster-fact n1\n' > "$BATS_TEST_TMPDIR/facts"
    tar -C "$BATS_TEST_TMPDIR" -cf "$BATS_TEST_TMPDIR/bad.tar" facts
    m doctor --nodes --replay "$BATS_TEST_TMPDIR/bad.tar"
    [ "$status" -eq 3 ]
    has "$messages" "bad.tar: line 1 is no fact of a node: 'n1'"
    mkfifo "$BATS_TEST_TMPDIR/pipe"
    m doctor --nodes --replay "$BATS_TEST_TMPDIR/pipe"
    [ "$status" -eq 3 ]
    has "$messages" 'pipe is not an archive that --capture wrote'
    echo hello > "$BATS_TEST_TMPDIR/facts"
    tar -C "$BATS_TEST_TMPDIR" -cf "$BATS_TEST_TMPDIR/none.tar" facts
    m doctor --nodes --replay "$BATS_TEST_TMPDIR/none.tar"
    [ "$status" -eq 3 ]
    has "$messages" 'none.tar has no fact of any node'
    m doctor --nodes --capture /nonexistent/x.tar --replay "$BATS_TEST_TMPDIR/bad.tar"
    [ "$status" -eq 2 ]
    m doctor --capture x.tar
    [ "$status" -eq 2 ]
    has "$messages" '--capture and --replay belong to --nodes'
}
