#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# muster and muster topo: the command itself, the node shown, drawn, and written for NCCL.
# messages, output, status, data and top are set by common.bash.
# shellcheck disable=SC2154

setup() {
    load common
}

@test "muster alone, an unknown command, and one that is not installed" {
    m
    [ $status -eq 2 ]
    has "$messages" "muster --help"
    m frobnicate
    [ $status -eq 2 ]
    has "$messages" "'frobnicate' is not a command"
    m ../bench
    [ $status -eq 2 ]
    MUSTER_LIBEXEC=/nowhere m bench
    [ $status -eq 2 ]
    has "$messages" "\`muster bench\` is not installed here (no /nowhere/muster-bench)"
}

@test "muster --version and --help" {
    m --version
    [ $status -eq 0 ]
    [[ $output =~ ^muster\ [0-9]+\.[0-9]+ ]]
    m --help
    [ $status -eq 0 ]
    for command in plan topo doctor verify run bench report; do
        has "$output" "  $command"
    done
    for command in plan topo; do
        m $command --help
        [ $status -eq 0 ]
        has "$output" "--topology FILE"
    done
}

@test "a program in libexec is started with its arguments and its status is kept" {
    mkdir "$BATS_TEST_TMPDIR/libexec"
    printf '#!/bin/sh\necho "$@"\nexit 7\n' > "$BATS_TEST_TMPDIR/libexec/muster-bench"
    chmod +x "$BATS_TEST_TMPDIR/libexec/muster-bench"
    MUSTER_LIBEXEC=$BATS_TEST_TMPDIR/libexec m bench pairs --size 8M
    [ $status -eq 7 ]
    [ "$output" = "pairs --size 8M" ]
}

@test "a full disk is reported, not ignored" {
    status=0
    "$muster" topo --topology "$data/hwloc-xml/synthetic-opa-hfi.xml" > /dev/full 2> "$BATS_TEST_TMPDIR/e" || status=$?
    [ $status -eq 3 ]
    grep -q 'cannot write the output' "$BATS_TEST_TMPDIR/e"
}

@test "this node" {
    m topo
    [ $status -eq 0 ]
    has "$output" "this node"
    m topo --format json
    [ $status -eq 0 ]
}

@test "text: nodes without a GPU are named (case 001)" {
    m topo --topology "$data/hwloc-xml/turin-nps4-4xh200-nvml.xml"
    [ $status -eq 0 ]
    has "$output" "NUMA nodes 0,3-5: no GPU there."
}

@test "case 098: a node whose CPUs the step does not own is not memory only" {
    m topo --topology "$data/hwloc-xml/32amd64-4s2n4c-cgroup2-restricted.xml"
    [ $status -eq 0 ]
    [[ $output =~ 1\ .*4-5$'\n' ]]
    [ "$(grep -c 'its CPUs are not of this step' <<< "$output")" -eq 4 ]
    [[ $output != *"memory only"* ]]
    m topo --topology "$data/hwloc-xml/32amd64-4s2n4c-cgroup2-restricted.xml" --format svg
    has "$output" "CPUs not of this step: NUMA 2-5"
}

@test "text: NICs that are no nearer than SYS are reported (case 009c)" {
    m topo --topology "$data/cases/009c-4xa100-all-on-numa1-topo-m.txt"
    has "$output" "4 of 4 GPUs without a NIC nearer than SYS."
}

# Write each machine of a folder as an NCCL file and call same FROM WRITTEN, which fails on a
# difference; prints those that failed.
written_anew() { # folder
    local f out=$BATS_TEST_TMPDIR/out.xml n=0 total=0 extra=${MUSTER_EXTRA_TOPOLOGIES:-}
    for f in "$data/$1"/*.xml ${extra:+"$extra/$1"/*.xml}; do
        "$muster" topo --topology "$f" --format nccl-xml > "$out" 2> /dev/null || continue
        total=$((total + 1))
        if same "$f" "$out"; then n=$((n + 1)); else echo "$f"; fi
    done
    echo "$n of $total"
    [ $total -ge 29 ]
    [ $n -eq $total ]
}

@test "nccl-xml: the plan made from the written file is the plan made from the machine" {
    same() {
        "$muster" topo --check "$2" &&
            diff -u <("$muster" plan --topology "$1" --format tsv 2> /dev/null) \
                <("$muster" plan --topology "$2" --format tsv 2> /dev/null)
    }
    written_anew hwloc-xml
}

@test "nccl-xml: an NCCL file written anew has every device in its place, in any order of its nodes" {
    placed() { "$muster" plan --topology "$1" --format tsv 2> /dev/null | cut -f 1-4,6; }
    same() {
        ! "$muster" topo --check "$2" --topology "$1" | grep 'is under numaid' &&
            diff -u <(placed "$1") <(placed "$2")
    }
    written_anew nccl-xml
}

@test "nccl-xml: NCCL's dialect, and no gpu or net elements" {
    m topo --topology "$data/hwloc-xml/turin-nps4-4xh200-nvml.xml" --format nccl-xml
    [ $status -eq 0 ]
    [ "$(printf '%s\n' "$output" | head -n 1)" = '<system version="1">' ]
    [[ ! $output =~ $'\t' ]]
    [[ ! $output =~ '<?xml' ]]
    [[ ! $output =~ '<gpu' ]]
    [[ ! $output =~ '<net' ]]
    has "$output" '<cpu numaid="1" affinity="ffff0000,00000000,00000000,00000000,ffff0000" arch="x86_64" vendor="AuthenticAMD" familyid="26" modelid="2"'
    has "$output" '<pci busid="0000:06:00.0" class="0x030200" vendor="0x10de" device="0x2335" subsystem_vendor="0x10de" subsystem_device="0x18bf"'
}

@test "nccl-xml: a source that names neither CPUs nor classes is not written as an empty file" {
    m topo --topology "$data/nccl-xml/aws-g5-48xl.xml" --format nccl-xml
    [ $status -eq 3 ]
    [ -z "$output" ]
    has "$messages" "neither CPUs nor classes of devices"
}

@test "nccl-xml: a machine beyond NCCL's limits is refused, a mask that is too long is left to the system" {
    local f=$BATS_TEST_TMPDIR/big.xml
    {
        printf '<system version="1">\n  <cpu numaid="0" affinity="f" arch="x86_64" vendor="AuthenticAMD" familyid="25" modelid="17">\n'
        for n in $(seq 0 299); do
            printf '    <pci busid="0000:%02x:%02x.0" class="0x020700"/>\n' $((n / 32 + 1)) $((n % 32))
        done
        printf '  </cpu>\n</system>\n'
    } > "$f"
    m topo --topology "$f" --format nccl-xml
    [ $status -eq 3 ]
    has "$messages" "$f: the machine needs 302 elements; NCCL reads files of at most 256"
    m topo --check "$f"
    [ $status -eq 3 ]
    has "$output" "more than 256 elements in one file"
    # 1024 CPUs are 32 words, NCCL's strings end in the 29th
    sed -i "2s/affinity=\"f\"/affinity=\"ffffffff$(printf ',00000000%.0s' $(seq 31))\"/; 4,302d" "$f"
    m topo --topology "$f" --format nccl-xml
    [ $status -eq 0 ]
    [[ ! $output =~ affinity ]]
    printf '%s\n' "$output" > "$BATS_TEST_TMPDIR/written.xml"
    m topo --check "$BATS_TEST_TMPDIR/written.xml"
    [ $status -eq 0 ]
    has "$output" "no affinity: NCCL takes the CPUs of numaid 0 from sysfs"
}

@test "nccl-xml: a source without PCI addresses cannot be written" {
    m topo --topology "$data/cases/001-dgx-a100-topo-m.txt" --format nccl-xml
    [ $status -eq 3 ]
    [ -z "$output" ]
    has "$messages" "001-dgx-a100-topo-m.txt: nvidia-smi has no PCI addresses"
}

@test "svg: well-formed, a rectangle per core, each task's colour" {
    m topo --topology "$data/hwloc-xml/turin-nps4-4xh200-nvml.xml" --format svg
    [ $status -eq 0 ]
    printf '%s\n' "$output" > "$BATS_TEST_TMPDIR/node.svg"
    if command -v xmllint > /dev/null; then
        xmllint --noout "$BATS_TEST_TMPDIR/node.svg"
    fi
    [ "$(grep -c 'width="18" height="18"' "$BATS_TEST_TMPDIR/node.svg")" -eq 128 ]
    has "$output" "task 3: GPU 0000:e6:00.0; CPUs 112-127,240-255; memory 7; NIC mlx5_5 PXB"
    # 16 cores, the GPU and the legend of task 0 have one colour.
    local colour
    colour=$(grep -m 1 'width="14"' "$BATS_TEST_TMPDIR/node.svg" | grep -o 'fill="#[0-9a-f]*"')
    [ "$(grep -c "$colour" "$BATS_TEST_TMPDIR/node.svg")" -eq 18 ]
}

@test "bad usage" {
    while read -r words; do
        # shellcheck disable=SC2086
        m topo $words
        [ $status -eq 2 ] || { echo "$words: $status"; return 1; }
        [ -z "$output" ]
    done << 'END'
--format png
--here
--check x --here --topology y
--check x --format json
--check
extra
END
}
