#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# muster plan: the contract of its options, formats and statuses, and the cases that are
# recorded as nvidia-smi text or as whole machines.
# messages, output, status, data and top are set by common.bash.
# shellcheck disable=SC2154

setup() {
    load common
}

@test "tsv: the header and a line per task" {
    m plan --topology "$data/hwloc-xml/turin-nps4-4xh200-nvml.xml" --format tsv
    [ $status -eq 0 ]
    golden << 'END'
task	gpus	cpus	mems	nics	nic_path	note
0	0000:06:00.0	16-31,144-159	1	mlx5_0	PXB	-
1	0000:16:00.0	32-47,160-175	2	mlx5_3	PXB	-
2	0000:96:00.0	96-111,224-239	6	mlx5_4	PXB	-
3	0000:e6:00.0	112-127,240-255	7	mlx5_5	PXB	-
END
}

@test "json: the same facts, and numbers as numbers" {
    m plan --topology "$data/hwloc-xml/turin-nps4-4xh200-nvml.xml" --format json --tasks 1 --gpus 3
    [ $status -eq 0 ]
    golden << 'END'
{
  "source": "hwloc xml",
  "as_asked": true,
  "own_visible": false,
  "tasks": [
    {
      "task": 0,
      "gpus": [
        "0000:e6:00.0"
      ],
      "bound": true,
      "cpus": "112-127,240-255",
      "mems": "7",
      "nics": [
        "mlx5_5"
      ],
      "nic_path": "PXB",
      "note": null
    }
  ],
  "warnings": [],
  "facts": [
    "NUMA nodes 0-6: no GPU of this step is near"
  ]
}
END
}

@test "text: a table for people" {
    m plan --topology "$data/hwloc-xml/turin-nps4-4xh200-nvml.xml"
    [ $status -eq 0 ]
    has "$output" "0000:e6:00.0"
}

@test "/K selects one of several devices on one PCI function" {
    m plan --topology "$data/hwloc-xml/llnl-tuolumne-4xmi300a-cpx.xml" --format tsv
    [ $status -eq 0 ]
    [ "$(plan_columns 2 | head -n 2 | tail -n 1)" = 0000:02:00.0/1 ]
    [ "$(plan_columns 2 | sort -u | wc -l)" -eq 24 ]
    # The bus id alone names all of them, /K one.
    m plan --topology "$data/hwloc-xml/llnl-tuolumne-4xmi300a-cpx.xml" --format tsv --gpus 0001:02:00.0
    [ "$(plan_columns 2 | wc -l)" -eq 6 ]
    m plan --topology "$data/hwloc-xml/llnl-tuolumne-4xmi300a-cpx.xml" --format tsv --gpus 0001:02:00.0/4
    [ "$(plan_columns 2)" = 0001:02:00.0/4 ]
}

@test "GPUs by index, range, bus id in short form, and UUID" {
    local f=$data/hwloc-xml/turin-nps4-4xh200-nvml.xml
    for which in 2 96:00.0 0000:96:00.0 GPU-00000000-0000-4000-8000-000000000003; do
        m plan --topology "$f" --format tsv --gpus $which
        [ "$(plan_columns 2)" = 0000:96:00.0 ]
    done
    m plan --topology "$f" --format tsv --gpus 1-2
    [ "$(plan_line 2)" = "0000:16:00.0 0000:96:00.0 " ]
    m plan --topology "$f" --format tsv --gpus none
    [ $status -eq 0 ]
    [ "$(plan_columns 2)" = - ]
}

@test "exit 1: planned, but not as asked, and the warning names the difference" {
    m plan --topology "$data/hwloc-xml/turin-nps4-4xh200-nvml.xml" --format tsv --cpus 0-15
    [ $status -eq 1 ]
    has "$messages" "warning: the step owns no CPU near GPU 0000:06:00.0 (NUMA node 1)"
    [ "$(printf '%s\n' "$output" | wc -l)" -eq 5 ]
}

@test "topo= that a machine with the place of each GPU does not need is reported, not read" {
    local f=$data/hwloc-xml/turin-nps4-4xh200-nvml.xml plain
    m plan --topology "$f" --format tsv
    plain=$output
    [ -z "$messages" ]
    m plan --topology "$f" --format tsv --opt topo=/nope
    [ $status -eq 0 ]
    [ "$output" = "$plain" ]
    [ "$messages" = "muster plan: warning: topo=/nope is not read here: $f gives the place of each GPU" ]
    m plan --topology "$data/hwloc-xml/llnl-quartz-cpuonly-opa.xml" --format tsv --opt topo=/nope
    [ $status -eq 0 ]
    has "$messages" "topo=/nope is not read here: $data/hwloc-xml/llnl-quartz-cpuonly-opa.xml has no GPU"
    # topo=none names no file
    m plan --topology "$f" --format tsv --opt topo=none
    [ -z "$messages" ]
}

@test "exit 2: bad usage, each with a sentence on standard error" {
    local f=$data/hwloc-xml/turin-nps4-4xh200-nvml.xml
    while read -r part words; do
        # shellcheck disable=SC2086
        m plan --topology "$f" $words
        [ $status -eq 2 ] || { echo "$words: $status"; return 1; }
        [ -z "$output" ]
        has "$messages" "${part//_/ }"
    done << 'END'
--tasks --tasks 0
--tasks --tasks four
--cpus --cpus 3-1
256 --cpus 0-300
--gpus --gpus 4
--gpus --gpus 0000:99:00.0
--format --format yaml
--colour --colour
needs --cpus
only,    extra
cpus --opt cpus=some
--gpu-bind:_'nearest'_is --gpu-bind nearest
--gpu-bind_takes_a_value --gpu-bind=
--gpu-bind:_single:_takes_a_number --gpu-bind single:0
END
}

@test "exit 2: a GPU of a machine that has none" {
    m plan --topology "$data/hwloc-xml/llnl-quartz-cpuonly-opa.xml" --gpus 0
    [ $status -eq 2 ]
    has "$messages" "there is no GPU 0; the machine has 0"
    m plan --topology "$data/hwloc-xml/llnl-quartz-cpuonly-opa.xml" --gpus 06:00.0
    [ $status -eq 2 ]
    has "$messages" "there is no GPU '06:00.0'; the machine has none"
}

@test "exit 3: a topology file without any CPU" {
    m plan --topology "$data/nccl-xml/aws-g5-48xl.xml"
    [ $status -eq 3 ]
    has "$messages" "lists no CPUs"
}

@test "case 001: GPU order against NUMA order on a DGX A100" {
    m plan --topology "$data/cases/001-dgx-a100-topo-m.txt" --format tsv
    [ $status -eq 0 ]
    golden << 'END'
task	gpus	cpus	mems	nics	nic_path	note
0	GPU0	48-55,176-183	3	mlx5_0,mlx5_1	PXB	-
1	GPU1	56-63,184-191	3	mlx5_0,mlx5_1	PXB	-
2	GPU2	16-23,144-151	1	mlx5_2,mlx5_3	PXB	-
3	GPU3	24-31,152-159	1	mlx5_2,mlx5_3	PXB	-
4	GPU4	112-119,240-247	7	mlx5_6,mlx5_7	PXB	-
5	GPU5	120-127,248-255	7	mlx5_6,mlx5_7	PXB	-
6	GPU6	80-87,208-215	5	mlx5_8,mlx5_9	PXB	-
7	GPU7	88-95,216-223	5	mlx5_8,mlx5_9	PXB	-
END
}

@test "case 002: no CPU near GPU4-7; the allowed ones are shared and a line reports it" {
    m plan --topology "$data/cases/002a-8xa100-pcie-c32-topo-m.txt" --format tsv
    [ $status -eq 1 ]
    [ "$(plan_line 3)" = "0-1,56-57 2-3,58-59 4-5,60-61 6-7,62-63 8-9,64-65 10-11,66-67 12-13,68-69 14-15,70-71 " ]
    [ "$(plan_columns 4 | sort -u)" = 0 ]
    has "$messages" "GPU4, GPU5, GPU6, GPU7 (NUMA node 1)"
    has "$messages" "--exclusive"
    m plan --topology "$data/cases/002b-2xa100-c64-topo-m.txt" --format tsv
    [ $status -eq 1 ]
    [ "$(plan_line 3)" = "0-31 32-63 " ]
    has "$messages" "NUMA node 1"
}

@test "case 002: six CPUs of a cgroup on a 32-CPU machine, from its recorded /sys" {
    recorded_sys 32amd64-4s2n4c-cgroup2.tar.bz2
    HWLOC_FSROOT=$root HWLOC_COMPONENTS=linux,stop m plan --tasks 2 --format tsv
    [ $status -eq 0 ]
    [ "$(plan_columns 3 | tr ',' '\n' | wc -l)" -ge 2 ]
    HWLOC_FSROOT=$root HWLOC_COMPONENTS=linux,stop m topo
    has "$output" "6 cores, 6 CPUs, 8 NUMA nodes"
}

@test "case 005: GPU numbers run against CPU numbers" {
    local machine=$data/plugin/four-gpus-against-the-cpus.txt
    m plan --topology "$machine" --format tsv
    [ $status -eq 0 ]
    [ "$(plan_line 3)" = "48-63,112-127 32-47,96-111 16-31,80-95 0-15,64-79 " ]
    # -c 16 gave CPUs 0-31,64-95: two GPUs have nothing near.
    m plan --topology "$machine" --format tsv --cpus 0-31,64-95 --cpus-per-task 16
    [ $status -eq 1 ]
    has "$messages" "GPU0"
    has "$messages" "GPU1"
}

@test "case 006: reserved cores, each task in its own L3 block" {
    local cpus=1-7,9-15,17-23,25-31,33-39,41-47,49-55,57-63
    m plan --topology "$data/hwloc-xml/llnl-tioga-4xmi250x-trento.xml" --cpus $cpus --format tsv
    [ $status -eq 0 ]
    [ "$(plan_line 3)" = "49-55 57-63 17-23 25-31 1-7 9-15 33-39 41-47 " ]
    [ "$(plan_line 4)" = "3 3 1 1 0 0 2 2 " ]
}

@test "case 008: GPUs counted backwards inside each socket" {
    echo '3:0-15&2:16-31&1:32-47&0:48-63&7:64-79&6:80-95&5:96-111&4:112-127' > "$BATS_TEST_TMPDIR/numa_config"
    m plan --topology "$BATS_TEST_TMPDIR/numa_config" --format tsv
    [ $status -eq 0 ]
    [ "$(plan_line 4)" = "3 2 1 0 7 6 5 4 " ]
    [ "$(plan_columns 3 | head -n 1)" = 48-63 ]
}

@test "case 009: lopsided machines" {
    m plan --topology "$data/cases/009a-4xt4-asym-topo-m.txt" --format tsv
    [ "$(plan_line 3)" = "0-15,32-47 16-21,48-53 22-26,54-58 27-31,59-63 " ]
    m plan --topology "$data/cases/009b-5gpu-gpu0-on-numa1-topo-m.txt" --format tsv
    [ "$(plan_line 3)" = "8-15,24-31 0-1,16-17 2-3,18-19 4-5,20-21 6-7,22-23 " ]
    m plan --topology "$data/cases/009c-4xa100-all-on-numa1-topo-m.txt" --format tsv
    [ "$(plan_line 3)" = "32-39,96-103 40-47,104-111 48-55,112-119 56-63,120-127 " ]
    [ "$(plan_columns 6 | sort -u)" = SYS ]
    m plan --topology "$data/cases/009d-6gpu-4plus2-topo-m.txt" --format tsv
    [ "$(plan_line 3)" = "0-5,48-53 6-11,54-59 12-17,60-65 18-23,66-71 24-35,72-83 36-47,84-95 " ]
    m plan --topology "$data/cases/009e-4gpu-all-sys-one-numa-topo-m.txt" --format tsv
    [ "$(plan_line 3)" = "0-11 12-23 24-35 36-47 " ]
}

@test "case 012: POWER9's GPU memory nodes are never a target, sparse node numbers" {
    m plan --topology "$data/hwloc-xml/llnl-lassen-power9-4xv100-hwloc1.xml" --format tsv
    [ $status -eq 0 ]
    [ "$(plan_line 4)" = "0 0 8 8 " ]
    m topo --topology "$data/hwloc-xml/llnl-lassen-power9-4xv100-hwloc1.xml"
    [ "$(printf '%s\n' "$output" | grep -c '(GPU memory)')" -eq 4 ]
    recorded_sys power9-nvidia-gpu-numa-nodes.tar.bz2
    export HWLOC_FSROOT=$root HWLOC_COMPONENTS=linux,stop HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES=1
    m plan --tasks 4 --opt mem=strict --format tsv
    [ $status -eq 0 ]
    [[ ! $(plan_columns 4) =~ 25[0-5] ]]
}

@test "case 018: a task's CPUs lie inside NCCL's mask for its GPU" {
    m plan --topology "$data/nccl-xml/aws-p4d-24xl.xml" --format tsv
    [ $status -eq 0 ]
    [ "$(plan_line 3)" = "0-5,48-53 6-11,54-59 12-17,60-65 18-23,66-71 24-29,72-77 30-35,78-83 36-41,84-89 42-47,90-95 " ]
}

@test "case 032: the same NIC has another name on the next node" {
    m plan --topology "$data/cases/032-nodeA-topo-m.txt" --format tsv
    [ "$(plan_line 5)" = "rocep4s0f0,rocep4s0f1 rocep137s0f0,rocep137s0f1 " ]
    m plan --topology "$data/cases/032-nodeB-topo-m.txt" --format tsv
    [ "$(plan_line 5)" = "mlx5_0,mlx5_1 mlx5_2,mlx5_3 " ]
}

@test "case 036: locality unknown on a virtual machine is reported and not guessed" {
    cat > "$BATS_TEST_TMPDIR/vm" << 'END'
	GPU0	GPU1	GPU2	GPU3	CPU Affinity	NUMA Affinity	GPU NUMA ID
GPU0	 X 	SYS	SYS	SYS	0-95	0-1		N/A
GPU1	SYS	 X 	SYS	SYS	0-95	0-1		N/A
GPU2	SYS	SYS	 X 	SYS	0-95	0-1		N/A
GPU3	SYS	SYS	SYS	 X 	0-95	0-1		N/A
END
    m plan --topology "$BATS_TEST_TMPDIR/vm" --format tsv
    [ $status -eq 1 ]
    [ "$(plan_line 3)" = "0-23 24-47 48-71 72-95 " ]
    [ "$(plan_columns 4 | sort -u)" = - ]
    has "$messages" "locality unknown"
}

@test "case 038: NIC i belongs to GPU 7-i" {
    m plan --topology "$data/cases/038-h20-vm-reversed-nics-topo-m.txt" --format tsv
    [ $status -eq 0 ]
    [ "$(plan_columns 6 | sort -u)" = PIX ]
    [ "$(plan_columns 5 | head -n 2 | tr '\n' ' ')" = "NIC7 NIC6 " ]
    m plan --topology "$data/cases/038-h20-vm-reversed-nics-topo-m.txt" --format tsv --gpus 0,1
    [ "$(plan_line 3)" = "0-31 32-63 " ]
}

@test "case 040: after the fix, ND v4 ranks go to NUMA 1,1,0,0,3,3,2,2" {
    m plan --topology "$data/cases/040-azure-ndv4-fixed.xml" --format tsv
    [ $status -eq 0 ]
    [ "$(plan_line 4)" = "1 1 0 0 3 3 2 2 " ]
    [ "$(plan_line 3)" = "24-35 36-47 0-11 12-23 72-83 84-95 48-59 60-71 " ]
}

@test "case 010: Grace Hopper's memory nodes are no place for tasks" {
    cat > "$BATS_TEST_TMPDIR/gh200x4" << 'END'
	GPU0	GPU1	GPU2	GPU3	CPU Affinity	NUMA Affinity	GPU NUMA ID
GPU0	 X 	NV6	NV6	NV6	0-71	0,4-11		4
GPU1	NV6	 X 	NV6	NV6	72-143	1,12-19		12
GPU2	NV6	NV6	 X 	NV6	144-215	2,20-27		20
GPU3	NV6	NV6	NV6	 X 	216-287	3,28-35		28
END
    m plan --topology "$BATS_TEST_TMPDIR/gh200x4" --format tsv
    [ $status -eq 0 ]
    [ "$(plan_line 3)" = "0-71 72-143 144-215 216-287 " ]
    [ "$(plan_line 4)" = "0 1 2 3 " ]
    m topo --topology "$BATS_TEST_TMPDIR/gh200x4"
    [ "$(printf '%s\n' "$output" | grep -c '(GPU memory)')" -eq 32 ]
}

@test "case 012: a node without memory is no target for memory" {
    cat > "$BATS_TEST_TMPDIR/threadripper.xml" << 'END'
<system version="1">
  <cpu numaid="0" affinity="3f00003f" muster="package=0;smt=2;stride=24;memory=0;distance=10,12,12,12">
    <pci busid="0000:10:00.0" class="0x030200"/>
  </cpu>
  <cpu numaid="1" affinity="f,c0000fc0" muster="package=0;smt=2;stride=24;distance=12,10,12,12"/>
  <cpu numaid="2" affinity="3f0,0003f000" muster="package=0;smt=2;stride=24;distance=12,12,10,12"/>
  <cpu numaid="3" affinity="fc00,00fc0000" muster="package=0;smt=2;stride=24;memory=0;distance=12,12,12,10">
    <pci busid="0000:40:00.0" class="0x030200"/>
  </cpu>
</system>
END
    m plan --topology "$BATS_TEST_TMPDIR/threadripper.xml" --opt mem=strict --format tsv
    [ $status -eq 0 ]
    [ "$(plan_line 3)" = "0-5,24-29 18-23,42-47 " ]
    [ "$(plan_columns 4 | sort -u)" = 1 ]
    [ "$(plan_columns 7 | sort -u)" = memless ]
}

@test "case 026: tasks follow the PCI order, whatever the file's order and models" {
    cat > "$BATS_TEST_TMPDIR/mixed.xml" << 'END'
<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:08:00.0" class="0x030000" vendor="0x10de" device="0x1381"><gpu dev="0"/></pci>
    <pci busid="0000:02:00.0" class="0x030000" vendor="0x10de" device="0x1380"><gpu dev="1"/></pci>
    <pci busid="0000:01:00.0" class="0x030000" vendor="0x10de" device="0x1381"><gpu dev="2"/></pci>
  </cpu>
</system>
END
    m plan --topology "$BATS_TEST_TMPDIR/mixed.xml" --format tsv
    [ $status -eq 0 ]
    [ "$(plan_line 2)" = "0000:01:00.0 0000:02:00.0 0000:08:00.0 " ]
}

@test "a GPU that has other devices below it counts, and they are near it" {
    cat > "$BATS_TEST_TMPDIR/below.xml" << 'END'
<system version="1">
  <cpu numaid="0" affinity="0f" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:10:00.0" class="0x060400">
      <pci busid="0000:11:00.0" class="0x030200">
        <gpu dev="0"/>
        <pci busid="0000:12:00.0" class="0x020700"><nic><net name="mlx5_0"/></nic></pci>
      </pci>
      <pci busid="0000:13:00.0" class="0x020700"><nic><net name="mlx5_1"/></nic></pci>
    </pci>
  </cpu>
  <cpu numaid="1" affinity="f0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:20:00.0" class="0x030200" vendor="0x10de" device="0x2335">
      <pci busid="0000:21:00.0" class="0x060400">
        <pci busid="0000:22:00.0" class="0x020700"><nic><net name="mlx5_2"/></nic></pci>
        <pci busid="0000:23:00.0" class="0x030200" vendor="0x10de" device="0x2335"/>
      </pci>
    </pci>
  </cpu>
</system>
END
    m plan --topology "$BATS_TEST_TMPDIR/below.xml" --format tsv
    [ $status -eq 0 ]
    [ "$(plan_line 2)" = "0000:11:00.0 0000:20:00.0 0000:23:00.0 " ]
    [ "$(plan_line 5)" = "mlx5_0,mlx5_1 mlx5_2 mlx5_2 " ]
    m topo --check "$BATS_TEST_TMPDIR/below.xml"
    [ $status -eq 0 ]
}

@test "case 074: GPUs of a NUMA node of which the job has neither CPUs nor memory" {
    m plan --topology "$data/cases/001-dgx-a100-topo-m.txt" --gpus 6-7 --cpus 48-63,176-191 --mems 3 --format tsv
    [ $status -eq 1 ]
    [ "$(plan_line 3)" = "48-55,176-183 56-63,184-191 " ]
    [ "$(plan_line 4)" = "3 3 " ]
    [ "$(plan_line 7)" = "remote remote " ]
    has "$messages" "the step owns no CPU near GPU GPU6, GPU7 (NUMA node 5)"
}

@test "--mems: memory that the step may not use gives way to the nearest" {
    m plan --topology "$data/hwloc-xml/turin-nps4-4xh200-nvml.xml" --format tsv --mems 0-1,7
    [ $status -eq 0 ]
    [ "$(plan_line 4)" = "1 0 7 7 " ]
    [ "$(plan_line 7)" = "- mem-away mem-away - " ]
    m plan --topology "$data/hwloc-xml/turin-nps4-4xh200-nvml.xml" --format tsv --mems 0-1,7 --opt mem=strict
    [ $status -eq 1 ]
    [[ "$messages" == *"mem=strict: tasks run on NUMA node 2,6, but the step may use memory of NUMA node 0-1,7 only"* ]]
    m plan --topology "$data/hwloc-xml/turin-nps4-4xh200-nvml.xml" --mems 9
    [ $status -eq 2 ]
}

@test "an NCCL file: a device that NCCL merged out of several lies below its <cpu>, as sockets do" {
    cat > "$BATS_TEST_TMPDIR/merged.xml" << 'END'
<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:08:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:0f:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1"/>
      </pci>
    </pci>
    <nic>
      <net name="mlx5_0+mlx5_1" dev="0" speed="800000" port="1" latency="0.0" guid="0x1234" maxconn="131072" gdr="1"/>
    </nic>
    <nic>
      <net name="eth0" dev="1" speed="10000" port="0" latency="0.0" guid="0x0" maxconn="65536" gdr="0"/>
    </nic>
  </cpu>
  <cpu numaid="1" affinity="ff00" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:8f:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="90" rank="1" gdr="1"/>
    </pci>
  </cpu>
</system>
END
    m plan --topology "$BATS_TEST_TMPDIR/merged.xml" --format tsv
    [ "$(plan_line 5)" = "mlx5_0+mlx5_1 mlx5_0+mlx5_1 " ]
    [ "$(plan_line 6)" = "PHB SYS " ]
    # sockets are no RDMA devices
    sed '/mlx5_0+mlx5_1/d' "$BATS_TEST_TMPDIR/merged.xml" > "$BATS_TEST_TMPDIR/sockets.xml"
    m plan --topology "$BATS_TEST_TMPDIR/sockets.xml" --format tsv
    [ "$(plan_line 5)" = "- - " ]
}
