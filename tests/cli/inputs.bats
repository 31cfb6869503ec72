#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# What people hand to --topology: files as mail, editors, terminals and other tools left
# them. Either the machine is read as it was, or one sentence names file, line and remedy.
# messages, output, status, data and top are set by common.bash.
# shellcheck disable=SC2154

setup() {
    load common
}

# The plan from the file $1, as text.
plan_of() {
    m plan --topology "$1" --format tsv
    printf '%s\n' "$output"
}

# A file that is refused: exit 3, nothing printed, one line that holds each part.
refused() { # file, part...
    local file=$1 part
    shift
    m plan --topology "$file"
    [ $status -eq 3 ] || { echo "$file: $status $messages"; return 1; }
    [ -z "$output" ]
    [ "$(printf '%s\n' "$messages" | wc -l)" -eq 1 ]
    for part in "muster plan: $file: " "$@"; do
        has "$messages" "$part"
    done
}

@test "case 097: nvidia-smi's header cut at any width: the NUMA column counts" {
    local text=$data/cases/001-dgx-a100-topo-m.txt header devices n want
    header=$(grep -m 1 'CPU Affinity' "$text")
    devices=${header%%CPU Affinity*}
    want=$(plan_of "$text")
    [[ $want == *$'\t3\t'* ]] # memory is bound to NUMA node 3
    for ((n = ${#devices}; n <= ${#header}; n++)); do
        { printf '%s\n' "${header:0:n}"; grep -v 'CPU Affinity' "$text"; } > "$BATS_TEST_TMPDIR/topo"
        [ "$(plan_of "$BATS_TEST_TMPDIR/topo")" = "$want" ] ||
            { echo "cut behind '${header:0:n}': $messages"; return 1; }
    done
    # among the devices too: the rows have the titles
    header=$(grep -m 1 'CPU Affinity' "$text" | expand)
    for n in 28 29 43 64 80 100 130 160; do
        { printf '%s\n' "${header:0:n}"; grep -v 'CPU Affinity' "$text" | expand; } > "$BATS_TEST_TMPDIR/topo"
        [ "$(plan_of "$BATS_TEST_TMPDIR/topo")" = "$want" ] ||
            { echo "cut behind '${header:0:n}': $messages"; return 1; }
    done
    header=$(grep -m 1 'CPU Affinity' "$text")
    # a remark behind the columns is none
    sed 's/$/   <- ours/' "$text" | sed "1s/.*/$header/" > "$BATS_TEST_TMPDIR/topo"
    [ "$(plan_of "$BATS_TEST_TMPDIR/topo")" = "$want" ]
}

@test "case 071: nvidia-smi's text from reports is the same machine" {
    local text=$data/cases/001-dgx-a100-topo-m.txt way want
    want=$(plan_of "$text")
    while IFS= read -r way; do
        sed "$way" "$text" > "$BATS_TEST_TMPDIR/topo"
        [ "$(plan_of "$BATS_TEST_TMPDIR/topo")" = "$want" ] || { echo "$way: $messages"; return 1; }
    done << 'END'
s/^/> /
s/^/>> /
s/^/0: /
s/^/12: /
s/^/node01: /
s/^/# /
s/^/+ /
s/^/[rank0] /
s/^/\/\/ /
1s/^/\xef\xbb\xbf/
s/$/\r/
s/$/\r\r/
s/^/    /
s/\t/\xc2\xa0\t/g
s/GPU[0-9]/\x1b[4m&\x1b[0m/
1s/^/user@node01:~$ nvidia-smi topo -m\n/
1s/CPU Affinity/CPU-Affinit\xc3\xa4t/
END
    # the matrix of topo -p2p behind it, with another header
    { cat "$text"; printf '\n \tGPU0\tGPU1\nGPU0\tX\tOK\nGPU1\tOK\tX\n\nLegend:\n'; } > "$BATS_TEST_TMPDIR/topo"
    [ "$(plan_of "$BATS_TEST_TMPDIR/topo")" = "$want" ]
    tr '\n' '\r' < "$text" > "$BATS_TEST_TMPDIR/topo"
    [ "$(plan_of "$BATS_TEST_TMPDIR/topo")" = "$want" ]
    # two nodes' answers in one file: the first
    { sed 's/^/node01: /' "$text"; sed 's/^/node02: /; s/48-63/0-15/' "$text"; } > "$BATS_TEST_TMPDIR/topo"
    [ "$(plan_of "$BATS_TEST_TMPDIR/topo")" = "$want" ]
}

# A machine of four GPUs and two NICs; $1 is a sed program that spoils it.
spoil() {
    sed -e "$1" > "$BATS_TEST_TMPDIR/topo" << 'END'
	GPU0	GPU1	GPU2	GPU3	NIC0	NIC1	CPU Affinity	NUMA Affinity	GPU NUMA ID
GPU0	 X 	NV12	SYS	SYS	PXB	SYS	0-31	0		N/A
GPU1	NV12	 X 	SYS	SYS	PXB	SYS	0-31	0		N/A
GPU2	SYS	SYS	 X 	NV12	SYS	PXB	32-63	1		N/A
GPU3	SYS	SYS	NV12	 X 	SYS	PXB	32-63	1		N/A
NIC0	PXB	PXB	SYS	SYS	 X 	SYS				
NIC1	SYS	SYS	PXB	PXB	SYS	 X 				

Legend:

  X    = Self

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
END
}

@test "a table of nvidia-smi with parts missing: the rest is read" {
    local want
    spoil ''
    plan_of "$BATS_TEST_TMPDIR/topo"
    want=$output
    [ "$(plan_line 3)" = "0-15 16-31 32-47 48-63 " ]
    spoil 's/\t/| /g; s/^/| /; s/$/ |/' # a table in a report
    [ "$(plan_of "$BATS_TEST_TMPDIR/topo" | sed 's/NIC\([01]\)/mlx5_\1/')" = "$want" ]
    spoil '8,$d' # no legend: the columns' own names
    [ "$(plan_of "$BATS_TEST_TMPDIR/topo" | sed 's/NIC\([01]\)/mlx5_\1/')" = "$want" ]
    spoil 's/NV12/NODE/g' # topo -mp
    [ "$(plan_of "$BATS_TEST_TMPDIR/topo")" = "$want" ]
    spoil '3i\  MIG 1g.10gb     Device  0: (UUID: MIG-11111111-2222-3333-4444-555555555555)'
    [ "$(plan_of "$BATS_TEST_TMPDIR/topo")" = "$want" ]
    spoil 's/\tNUMA Affinity.*//; s/\t[01]\t\tN\/A//' # an old driver: CPUs only
    plan_of "$BATS_TEST_TMPDIR/topo"
    [ $status -eq 0 ]
    [ "$(plan_line 3)" = "0-15 16-31 32-47 48-63 " ]
    [ "$(plan_columns 4 | sort -u)" = - ]
    # a NIC with a comma in its name is one device
    spoil '8,$d; s/NIC0/mlx5_0,mlx5_1/'
    plan_of "$BATS_TEST_TMPDIR/topo"
    [ "$(plan_columns 5 | head -n 1)" = mlx5_0,mlx5_1 ]
}

@test "72 GPUs on one node" {
    awk 'BEGIN { for (g = 0; g < 72; g++) printf "\tGPU%d", g; print "\tCPU Affinity\tNUMA Affinity"
        for (g = 0; g < 72; g++) { printf "GPU%d", g
            for (k = 0; k < 72; k++) printf "\t%s", k == g ? " X " : "NV18"
            printf "\t%d-%d\t%d\n", g * 4, g * 4 + 3, g / 18 } }' > "$BATS_TEST_TMPDIR/topo"
    plan_of "$BATS_TEST_TMPDIR/topo"
    [ $status -eq 0 ]
    [ "$(plan_columns 2 | tail -n 1)" = GPU71 ]
    [ "$(plan_columns 3 | tail -n 1)" = 284-287 ]
}

@test "a table of nvidia-smi that cannot be right is refused with line and reason" {
    while IFS='|' read -r program part; do
        spoil "$program"
        refused "$BATS_TEST_TMPDIR/topo" "$part" || { echo "$program"; return 1; }
    done << 'END'
4,$d|GPU2 has a column but no row: the file may be cut off
5s/32-63/32-99999/|line 5: CPU Affinity of GPU3: '32-99999' is not a list like 0-3,8 with numbers below
5s/32-63/63-32/|line 5: CPU Affinity of GPU3: '63-32'
5s/\t1\t/\tone\t/|line 5: NUMA Affinity of GPU3: 'one'
2s/SYS/sys/|line 2: 'sys' in column GPU2 is none of X PIX PXB PHB NODE SYS SOC NV#
2s/NV12/ X /|line 2: row GPU0 has 'X' in column GPU1; a device has X with itself
1s/GPU3/GPU2/|line 1: two columns are named GPU2
5s/GPU3/GPU9/|line 5: row GPU9 has no column
1d|no line starts with GPU0: this is not the output of nvidia-smi topo -m
END
    # the end of a file that was cut off within its last row
    spoil '6,$d'
    head -c -11 "$BATS_TEST_TMPDIR/topo" > "$BATS_TEST_TMPDIR/cut"
    refused "$BATS_TEST_TMPDIR/cut" "line 5: the file ends within row GPU3: it is cut off"
}

@test "two rows of a matrix with one label are refused" {
    cat > "$BATS_TEST_TMPDIR/rows" << 'END'
     GPU0 GPU1 CPU Affinity NUMA Affinity
GPU0 X    NV4  0-15         0
GPU0 NV4  X    16-31        1
END
    m plan --topology "$BATS_TEST_TMPDIR/rows"
    [ $status -eq 3 ]
    has "$messages" "line 3: a second row is labelled GPU0 (the first is on line 2): label each row as its column"
}

@test "hwloc's XML with what editors do to it is the same machine" {
    local text=$data/hwloc-xml/turin-nps4-4xh200-nvml.xml way want
    want=$(plan_of "$text")
    while IFS= read -r way; do
        sed "$way" "$text" > "$BATS_TEST_TMPDIR/topo.xml"
        [ "$(plan_of "$BATS_TEST_TMPDIR/topo.xml")" = "$want" ] || { echo "$way: $messages"; return 1; }
    done << 'END'
s/$/\r/
1s/^/\xef\xbb\xbf/
1s/^/\n\n/
$s/$/\nnode01:~$ /
/^<?xml/d
/DOCTYPE/d
s/^<topology/<!-- saved on Monday -->\n&/
END
}

@test "an hwloc 3 file is refused by hwloc 2 with what to do" {
    m plan --topology "$data/hwloc-xml/nvidia-dgx-spark-gb10-v3format.xml"
    [ $status -eq 0 ] && skip "this hwloc reads version 3"
    [ $status -eq 3 ]
    has "$messages" "line 3"
    has "$messages" "format version 3.0"
    has "$messages" "converts it"
}

@test "a file from which hwloc drops the PCI tree is refused with the line" {
    m plan --topology "$data/hwloc-xml/nvidia-dgx2h-16xv100-10ib-comments-crlf.xml"
    [ $status -eq 3 ]
    has "$messages" "dropped 194 of its 324 PCI devices"
    has "$messages" "line 545"
}

@test "exit 3: a file that is not there, is empty, is broken or is something else" {
    m plan --topology /nowhere/machine.xml
    [ $status -eq 3 ]
    has "$messages" "/nowhere/machine.xml: No such file"
    : > "$BATS_TEST_TMPDIR/empty"
    m plan --topology "$BATS_TEST_TMPDIR/empty"
    [ $status -eq 3 ]
    has "$messages" "empty: line 1: the file is empty"
    head -c 9000 "$data/hwloc-xml/turin-nps4-4xh200-nvml.xml" > "$BATS_TEST_TMPDIR/cut.xml"
    m plan --topology "$BATS_TEST_TMPDIR/cut.xml"
    [ $status -eq 3 ]
    [[ $messages =~ cut.xml:\ line\ [0-9]+: ]]
    [ "$(printf '%s\n' "$messages" | wc -l)" -eq 1 ]
    m plan --topology "$data/SOURCES.md"
    [ $status -eq 3 ]
    has "$messages" "not the output of nvidia-smi topo -m"
    m plan --topology "$data"
    [ $status -eq 3 ]
}

@test "exit 3: the kind of file, by its first bytes or lines" {
    local f=$BATS_TEST_TMPDIR/f xml=$data/hwloc-xml/turin-nps4-4xh200-nvml.xml
    printf 'GPU0\0' > "$f"
    refused "$f" "not a text file"
    gzip -c "$xml" > "$f"
    refused "$f" "not a text file but a compressed one: unpack it"
    iconv -f UTF-8 -t UTF-16 "$xml" > "$f"
    refused "$f" "UTF-16: save it as UTF-8"
    sed 's/version="2.0"/version="9.0"/' "$xml" > "$f"
    refused "$f" "format version 9.0); save it again on the machine with lstopo FILE.xml"
    printf '<html></html>\n' > "$f"
    refused "$f" "line 1: neither hwloc's <topology> nor NCCL's <system>"
    printf '       GPU0         GPU1\nGPU0   0            XGMI\nGPU1   XGMI         0\n' > "$f"
    refused "$f" "AMD's tools" "lstopo FILE.xml"
    printf 'NVIDIA-SMI has failed\n' > "$f"
    refused "$f" "not the output of nvidia-smi topo -m"
}

@test "NCCL's XML with a declaration, tabs, CRLF or capital bus ids is the same machine" {
    local text=$data/nccl-xml/azure-ndv5.xml way want
    want=$(plan_of "$text")
    while IFS= read -r way; do
        sed "$way" "$text" > "$BATS_TEST_TMPDIR/topo.xml"
        [ "$(plan_of "$BATS_TEST_TMPDIR/topo.xml")" = "$want" ] || { echo "$way: $messages"; return 1; }
    done << 'END'
1s/^/<?xml version="1.0"?>\n/
s/^ */\t/
s/$/\r/
s/busid="\([^"]*\)"/busid="\U\1"/
1s/^/<!-- ND v5 -->\n/
END
}

@test "NCCL's XML that is incomplete or wrong is refused with line and reason" {
    while IFS='|' read -r program part; do
        sed -e "$program" "$data/nccl-xml/azure-ndv5.xml" > "$BATS_TEST_TMPDIR/topo.xml"
        refused "$BATS_TEST_TMPDIR/topo.xml" "$part" || { echo "$program"; return 1; }
    done << 'END'
s/ class="[^"]*"//|line 3: no <pci> has a class, so GPUs cannot be recognised: give them class="0x030200"
s/ affinity="[^"]*"//|lists no CPUs
2s/affinity="[^"]*"/affinity="0-47"/|line 2: affinity is not a CPU mask: '0-47'
2s/numaid="0"/numaid="-2"/|line 2: numaid is not a NUMA node number: '-2'
20,$d|line 1: <system> is never closed
END
}

@test "XML that is broken is refused with the line" {
    while IFS='|' read -r program part; do
        sed -e "$program" "$data/nccl-xml/azure-ndv5.xml" > "$BATS_TEST_TMPDIR/topo.xml"
        refused "$BATS_TEST_TMPDIR/topo.xml" "$part" || { echo "$program"; return 1; }
    done << 'END'
3s/">$/>/|line 3: a quote is not closed
4s/class="/class=/|line 4: this is not XML
4s/busid/& busid/|line 4: this is not XML
4s/class="/&A\&B/|line 4: this is not XML; save it as UTF-8, and write & as &amp;
4s/class="/&\xfc/|line 4: this is not XML; save it as UTF-8
5s/>/></|line 5: this is not XML
4{s/ [^ ]*$//;q}|line 4: the file ends within this tag or comment
5{s/$/<!-- cut/;q}|line 5: the file ends within this tag or comment
5s/$/<\/cpu>/|line 5: this tag does not close <pci> of line 3
$s/$/<system\/>/|junk after document element
END
}

@test "XML with dashes or foreign bytes in a comment, or a prompt behind the end, is the same machine" {
    local text=$data/nccl-xml/azure-ndv5.xml way want
    want=$(plan_of "$text")
    [ -n "$want" ]
    while IFS= read -r way; do
        sed "$way" "$text" > "$BATS_TEST_TMPDIR/topo.xml"
        [ "$(plan_of "$BATS_TEST_TMPDIR/topo.xml")" = "$want" ] || { echo "$way: $messages"; return 1; }
    done << 'END'
2s/^/<!------ NUMA 0 ------>\n/
2s/^/<!-- f\xfcr & mit -->\n/
1s/^/\n  \n<?xml version="1.0"?>\n/
$s/$/\n[root@node01 ~]# /
END
}

@test "XML that grows when it is read, or that has no end of elements or attributes, is refused" {
    local f=$BATS_TEST_TMPDIR/f.xml i
    {
        printf '\n<?xml version="1.0"?>\n<!DOCTYPE system [\n<!ENTITY a "aaaaaaaaaa">\n'
        printf '<!ENTITY %s>\n' 'b "&a;&a;&a;&a;&a;&a;"' 'c "&b;&b;&b;&b;&b;&b;"' 'd "&c;&c;&c;&c;&c;&c;"'
        printf ']>\n<system version="1"><cpu numaid="&d;"/></system>\n'
    } > "$f"
    refused "$f" "line 3: <!DOCTYPE> declares something in [ ]: remove that part"
    printf '<!DOCTYPE system [<!ATTLIST cpu affinity CDATA "ff">]>\n<system version="1"><cpu/></system>\n' > "$f"
    refused "$f" "line 1: <!DOCTYPE> declares something"
    { echo '<system version="1">'; for ((i = 0; i < 200; i++)); do echo '<pci>'; done; } > "$f"
    refused "$f" "line 129: elements are nested more than 128 deep"
    { echo '<system version="1">'; printf '<cpu'; printf ' a%d="1"' {1..65}; echo '/></system>'; } > "$f"
    refused "$f" "line 2: more than 64 attributes in one element"
    { echo '<topology>'; yes '<a/>' | head -n 1100000; echo '</topology>'; } > "$f"
    refused "$f" "line 1048577: more than 1048576 elements"
}
