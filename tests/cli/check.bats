#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# muster topo --check: what NCCL would stumble over, and what is wrong with a file.
# messages, output, status, data and top are set by common.bash.
# shellcheck disable=SC2154

setup() {
    load common
}

# Write a small sound file; $1 is a sed program that spoils it.
spoil() {
    sed -e "$1" > "$BATS_TEST_TMPDIR/f.xml" << 'END'
<system version="1">
  <cpu numaid="0" affinity="00000000,000000ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:10:00.0" class="0x060400" link_speed="16 GT/s" link_width="16">
      <pci busid="0000:11:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
      <pci busid="0000:12:00.0" class="0x020700" link_speed="16 GT/s" link_width="16"/>
    </pci>
  </cpu>
  <cpu numaid="1" affinity="00000000,0000ff00" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:21:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
  </cpu>
</system>
END
    m topo --check "$BATS_TEST_TMPDIR/f.xml"
}

@test "a sound file: no error, no warning" {
    spoil ''
    [ $status -eq 0 ]
    has "$output" "0 errors, 0 warnings, 0 hints"
}

@test "what NCCL's reader stops at is exit 3, with the line" {
    while IFS='|' read -r line part program; do
        spoil "$program"
        [ $status -eq 3 ] || { echo "$program: $status"; return 1; }
        has "$output" "f.xml:$line: error: NCCL stops reading here"
        has "$output" "$part"
    done << 'END'
1|an XML declaration|1i <?xml version="1.0"?>
2|a tab|2s/^  /\t/
3|'7' where a tag must start|3s/$/7/
2|a line break|2s/ vendor=.*$/\n&/
10|the file ends within <cpu>|10,11d
4|an attribute's value starts with a line break, not a quote|4s/link_speed=.*/link_speed=/
4|a value is longer than 255|4s/0x030200/&xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx/
11|a name is longer than 255 characters|11s/$/<@/;11s/@/@@@@@@@@/;s/@/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx/g
10|the file ends within a value|9s/ class.*/ class="/;10,11d
12|a comment is not closed|2s/.*/<!-- cut/
7|a closing tag has no '>' right behind its name|7s,</cpu>,</cpu >,
7|</numa> closes cpu|7s/cpu/numa/
12|</system> closes nothing|11s,$,\n</system>,
4|expected '>' or a blank and an attribute, got 'x'|4s,/>,/x>,
4|expected '>' or a blank and an attribute, got character 0x01|4s,/>,/\x01>,
11|elements are nested too deep|11s/.*/@@@@@@@@/;s/@/<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>/g
END
}

@test "NCCL's reader stops where the last line ends within a tag" {
    printf '<system version="1">\n  <cpu' > "$BATS_TEST_TMPDIR/f.xml"
    m topo --check "$BATS_TEST_TMPDIR/f.xml"
    [ $status -eq 3 ]
    has "$output" "f.xml:2: error: NCCL stops reading here: the file ends within a tag"
}

@test "errors are exit 1, each with its line" {
    while IFS='|' read -r line part program; do
        spoil "$program"
        [ $status -eq 1 ] || { echo "$program: $status $output"; return 1; }
        has "$output" "f.xml:$line: error: "
        has "$output" "$part"
    done << 'END'
8|the same affinity|8s/0000ff00/000000ff/
8|overlaps|8s/0000ff00/0000ff80/
8|a second <cpu> has numaid 0 (the first is on line 2)|8s/numaid="1"/numaid="0"/
8|exchanged|2s/numaid="0"/numaid="2"/;8s/numaid="1"/numaid="0"/
2|not a mask|2s/000000ff/00g0ff/
2|as CPUs none, not 0-7: write lower-case digits without 0x|2s/"00000000,/"0x00000000,/
2|as CPUs none, not 0-7|2s/000000ff/000000FF/
2|as CPUs 32-39, not 0-7,32-39|2s/00000000,000000ff/ff,000000FF/
2|as CPUs 0-7, not 0-7,64-71: write|2s/00000000,000000ff/ff00000000000000ff/
2|no numaid|2s/numaid="0" //
9|a second <pci> has busid 0000:11:00.0 (the first is on line 4)|9s/0000:21/0000:11/
4|must be written 0000:1a:00.0|4s/0000:11/0000:1A/
4|not a PCI address|4s/0000:11:00.0/GPU0/
4|class|4s/0x030200/gpu/
4|link_width|4s/"16"/"wide"/
5|<pci> has no busid|5s/busid="[^"]*" //
8|a <pci> outside any <cpu>|7s,$,\n<pci busid="0000:31:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>,
4|link count "0" is not a number from 1 to 1000|4s,/>,><nvlink target="0000:21:00.0" count="0" tclass="0x030200"/></pci>,
END
}

@test "warnings and hints leave the status 0" {
    while IFS='|' read -r line part program; do
        spoil "$program"
        [ $status -eq 0 ] || { echo "$program: $status $output"; return 1; }
        has "$output" "f.xml:$line: "
        has "$output" "$part"
    done << 'END'
4|is not one that NCCL recognises: NCCL assumes 8 GT/s|4s,16 GT/s,fast,
4|is not one that NCCL recognises: NCCL assumes 8 GT/s|4s,16 GT/s,16.0 GT/s,
2|NCCL recognises x86_64, arm64 and ppc64 only|2s/x86_64/aarch64/
4|is probably the rate of an idle link|4s,16 GT/s,2.5 GT/s,
4|NCCL assumes 16 lanes|4s/link_width="16"/link_width="0"/
2|no affinity|2s/affinity="[^"]*" //
4|more than 16 attributes: NCCL drops the rest|4s,/>, a="" b="" c="" d="" e="" f="" g="" h="" i="" j="" k="" l="" m=""/>,
4|1 <gpu> and 0 <net>|4s,/>,><gpu dev="0"/></pci>,
4|0000:11:00.0 has a link to 0000:31:00.0, which is not in the file|4s,/>,><nvlink target="0000:31:00.0" count="2" tclass="0x030200"/></pci>,
4|2 links from 0000:11:00.0 to 0000:21:00.0, but 0 back|4s,/>,><nvlink target="0000:21:00.0" count="2" tclass="0x030200"/></pci>,
8|does not name the NUMA node of these devices|8s/numaid="1"/numaid="-1"/
END
}

@test "a version that NCCL does not read" {
    spoil '1s/1/3/'
    [ $status -eq 3 ]
    has "$output" 'f.xml:1: error: version is "3"'
}

@test "unreadable: exit 3" {
    m topo --check /nowhere.xml
    [ $status -eq 3 ]
    has "$messages" "/nowhere.xml"
    m topo --check "$data/cases/039-azure-ncv4-4gpu-graph.xml"
    [ $status -eq 3 ]
    has "$output" "not a topology file but an NCCL graph"
    has "$output" "1 error, 0 warnings, 0 hints"
    sed '/^<?xml/d; /DOCTYPE/d' "$data/hwloc-xml/synthetic-opa-hfi.xml" > "$BATS_TEST_TMPDIR/hwloc.xml"
    m topo --check "$BATS_TEST_TMPDIR/hwloc.xml"
    [ $status -eq 3 ]
    has "$output" "not a topology file but hwloc's; muster topo --topology FILE --format nccl-xml converts it"
}

@test "published files: the good ones have no error" {
    for f in azure-ndv2 azure-ndv5 aws-g5-48xl aws-p4d-24xl aws-p4de-24xl oci-bm-gpu-h100-8 8x3090-pcie-2switch \
        rccl-3p_pcie rccl-4p1h rccl-4p2h rccl-4p2h_2nic rccl-4p3l rccl-4p_940 rccl-8p1h rccl-8p1h_3 rccl-8p6l \
        rccl-8p6l_6nic rccl-8p_90a_1 rccl-8p_940 rccl-8p_rome_4n_1 rccl-8p_rome_n2_1 rccl-8p_rome_vm1 rccl-8p_ts1_n4; do
        m topo --check "$data/nccl-xml/$f.xml"
        [ $status -eq 0 ] || { echo "$output"; return 1; }
        has "$output" "0 errors"
    done
}

@test "published files: the bad ones are bad for the right reason" {
    while IFS='|' read -r code file part; do
        m topo --check "$data/nccl-xml/$file.xml"
        [ $status -eq "$code" ] || { echo "$file: $status $output"; return 1; }
        has "$output" "$part"
    done << 'END'
1|oci-bm-gpu-b4-8-a100-flattened|:18: error: affinity of numaid 7 is incomplete: CPUs 240-251 are 12 where 112-127 are 16, so 252-255 are missing
1|azure-ndv5-variant-numa-affinity-swapped|:2: error: CPU 0 is in the affinity of numaid 1
1|azure-ncv4|:5: error: impossible link: GPU 0001:00:00.0 has 12 links to itself
1|rccl-8p1h_1|:114: error: a second <pci> has busid 0000:a1:00.0 (the first is on line 63)
3|dgx-a100|:3: error: NCCL stops reading here: '0' where a tag must start
0|aws-p5-48xl|:2: warning: all 8 GPUs are on numaid 0, whose CPUs end at 47 in a mask of 128
END
}

@test "case 018: AWS's own p4d file is sound" {
    m topo --check "$data/nccl-xml/aws-p4d-24xl.xml"
    [ $status -eq 0 ]
}

@test "case 036: a dump of a flat virtual machine has no locality" {
    m topo --check "$data/cases/036b-h200-kvm-flat-nccl-dump.xml"
    [ $status -eq 0 ]
    has "$output" "warning: numaid -1"
    has "$output" "1 <gpu> and 1 <net>"
    m topo --check "$data/cases/036a-h200-baremetal-numa0-nccl-dump.xml" # the same dump of the bare machine
    [ $status -eq 0 ]
    has "$output" "3 <gpu> and 3 <net>"
    [[ $output != *"numaid -1"* ]]
}

@test "case 039: a file for four GPUs on a machine with two" {
    sed '18,33{/0003\|0004/,/<\/pci>/d}' "$data/cases/039-azure-ncv4-4gpu-topo.xml" > "$BATS_TEST_TMPDIR/two.xml"
    m topo --check "$data/cases/039-azure-ncv4-4gpu-topo.xml" --topology "$BATS_TEST_TMPDIR/two.xml"
    [ $status -eq 1 ]
    has "$output" "made for another size of machine: 4 GPUs in the file, 2 on the machine"
    has "$output" "the machine has no GPU 0003:00:00.0"
    m topo --check "$data/cases/039-azure-ncv4-4gpu-topo.xml" --here
    [ $status -eq 1 ]
    has "$output" "this node has no GPU 0001:00:00.0"
}

@test "case 040: Azure's wrong masks, by themselves and against the fixed machine" {
    m topo --check "$data/cases/040-azure-ndv4-2024-same-mask-everywhere.xml"
    [ $status -eq 1 ]
    [ "$(printf '%s\n' "$output" | grep -c 'have the same affinity')" -eq 3 ]
    m topo --check "$data/cases/040-azure-ndv4-2024-same-mask-everywhere.xml" --topology "$data/cases/040-azure-ndv4-fixed.xml"
    for n in 1 2 3; do
        has "$output" "error: numaid $n has CPUs 0-15,32-47; NUMA node $n of the machine has"
    done
    m topo --check "$data/cases/040-azure-ndv4-2023-numa-swapped.xml" --topology "$data/cases/040-azure-ndv4-fixed.xml"
    has "$output" "is under numaid 0; on the machine it is at NUMA node 1"
    m topo --check "$data/cases/040-azure-ndv2-same-mask-everywhere.xml"
    [ $status -eq 1 ]
    m topo --check "$data/cases/040-azure-ndv5-masks-swapped.xml" --topology "$data/cases/040-azure-ndv5-fixed.xml"
    has "$output" "numaid 0 has CPUs 48-95, which belong to NUMA node 1: masks or numaids are exchanged"
    for f in ndv2 ndv4 ndv5; do
        m topo --check "$data/cases/040-azure-$f-fixed.xml" --topology "$data/cases/040-azure-$f-fixed.xml"
        [ $status -eq 0 ]
        has "$output" "0 errors"
    done
}

@test "a mask that is shorter than all the others" {
    sed -e 's/affinity="00000000,0000ffff,ff000000"/affinity="00000000,0000ffff,fe000000"/' \
        "$data/nccl-xml/azure-ncv4.xml" | grep -v nvlink > "$BATS_TEST_TMPDIR/f.xml"
    m topo --check "$BATS_TEST_TMPDIR/f.xml"
    [ $status -eq 1 ]
    has "$output" "affinity of numaid 1 is incomplete: 23 CPUs where every other node has 24"
}

@test "an irregular machine's masks are not taken for masks that lack a digit" {
    local f=$BATS_TEST_TMPDIR/f.xml
    # threads that are no whole digits short, and CPUs that another node has
    printf '%s\n' '<system version="1">' '  <cpu numaid="0" affinity="2ffc" arch="x86_64" vendor="GenuineIntel"/>' '</system>' > "$f"
    m topo --check "$f"
    has "$output" "0 errors"
    printf '%s\n' '<system version="1">' '  <cpu numaid="0" affinity="ff00f" arch="x86_64" vendor="GenuineIntel"/>' \
        '  <cpu numaid="1" affinity="ff0" arch="x86_64" vendor="GenuineIntel"/>' '</system>' > "$f"
    m topo --check "$f"
    has "$output" "0 errors"
    # the same without the other node
    sed -i '/numaid="1"/d' "$f"
    m topo --check "$f"
    [ $status -eq 1 ]
    has "$output" "affinity of numaid 0 is incomplete: CPUs 0-3 are 4 where 12-19 are 8, so 4-7 are missing"
}
