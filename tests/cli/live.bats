#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# "This node", by way of a recorded /sys and /proc with GPUs added: four NUMA nodes whose
# CPUs are dealt round, a NIC, and firmware that does not say where its PCI buses are.
# messages, output, status, data and top are set by common.bash.
# shellcheck disable=SC2154

setup() {
    load common
    # Without 6900 of its 11500 files, which hwloc and Muster do not open.
    recorded_sys 40intel64-2g2n4c+pcilocality.tar.bz2 \
        --exclude='memory[0-9]*' --exclude=cpuidle --exclude=microcode --exclude=thermal_throttle \
        --exclude='usb[0-9]*' --exclude='*.cluster/[0-9]*'
    export HWLOC_FSROOT=$root HWLOC_COMPONENTS=linux,stop
}

# A GPU: bus id, class, vendor, device, CPU mask, NUMA node.
add_gpu() {
    local dir=$root/sys/devices/pci${1%:*}/$1 template
    template=$(find "$root/sys/devices/pci0000:40" -maxdepth 1 -name '0000:40:14.0')
    mkdir -p "$dir"
    echo "$2" > "$dir/class"
    echo "$3" > "$dir/vendor"
    echo "$4" > "$dir/device"
    echo "$3" > "$dir/subsystem_vendor"
    echo 0x0001 > "$dir/subsystem_device"
    cp "$template/config" "$dir/config"
    echo "$5" > "$dir/local_cpus"
    echo "$6" > "$dir/numa_node"
    echo "16.0 GT/s PCIe" > "$dir/max_link_speed"
    echo 16 > "$dir/max_link_width"
    ln -sfn "../../../devices/pci${1%:*}/$1" "$root/sys/bus/pci/devices/$1"
}

node1=0022,22222222 # 1,5,9,...,37
node2=0044,44444444
anywhere=00ff,ffffffff

# What the NVIDIA driver shows: bus id, minor number, UUID.
add_driver() {
    mkdir -p "$root/proc/driver/nvidia/gpus/$1"
    printf 'Model: \t\t NVIDIA A100\nIRQ:   \t\t 41\nGPU UUID: \t %s\nDevice Minor: \t %s\n' "$3" "$2" \
        > "$root/proc/driver/nvidia/gpus/$1/information"
}

@test "GPUs by PCI ids, placed by their bus's CPUs; a BMC is none" {
    add_gpu 0000:80:01.0 0x030200 0x10de 0x20b0 $node1 1
    add_gpu 0000:90:01.0 0x038000 0x1002 0x740c $node2 2
    add_gpu 0000:a0:01.0 0x030000 0x1a03 0x2000 $node2 2
    add_gpu 0000:b0:01.0 0x030000 0x1002 0x515e $node2 2
    m plan --format tsv
    [ $status -eq 0 ]
    [ "$(plan_line 2)" = "0000:80:01.0 0000:90:01.0 " ]
    [ "$(plan_line 3)" = "1,5,9,13,17,21,25,29,33,37 2,6,10,14,18,22,26,30,34,38 " ]
    [ "$(plan_line 4)" = "1 2 " ]
}

@test "case 036: numa_node -1 is not node 0" {
    add_gpu 0000:80:01.0 0x030200 0x10de 0x20b0 $anywhere -1
    add_gpu 0000:90:01.0 0x030200 0x10de 0x20b0 $anywhere -1
    m plan --format tsv
    [ $status -eq 1 ]
    has "$messages" "PCI locality unknown"
    [ "$(plan_columns 4 | sort -u)" = - ]
    [ "$(plan_columns 3 | tr ',' '\n' | wc -l)" -gt 2 ]
    m topo --format json
    has "$output" '"local_known": false'
}

# A fifth NUMA node without CPUs: memory alone, or a socket whose CPUs are off line; its distances
# from nodes 0 to 3.
add_node4() {
    local nodes=$root/sys/devices/system/node n
    mkdir "$nodes/node4"
    sed 's/Node 1/Node 4/' "$nodes/node1/meminfo" > "$nodes/node4/meminfo"
    echo > "$nodes/node4/cpulist"
    echo 0000,00000000,00000000 > "$nodes/node4/cpumap"
    echo "$* 10" > "$nodes/node4/distance"
    for n in 0 1 2 3; do
        echo "$(cat "$nodes/node$n/distance") $1" > "$nodes/node$n/distance"
        shift
    done
    echo 0-4 > "$nodes/online"
    echo 0-4 > "$nodes/possible"
}

@test "a GPU of a NUMA node without CPUs has those of the nearest node" {
    add_node4 24 24 17 24
    add_gpu 0000:80:01.0 0x030200 0x10de 0x20b0 $node1 1
    add_gpu 0000:90:01.0 0x030200 0x10de 0x20b0 0000,00000000 4
    m plan --format tsv
    [ $status -eq 0 ]
    [ "$(plan_line 3)" = "1,5,9,13,17,21,25,29,33,37 2,6,10,14,18,22,26,30,34,38 " ]
    [ "$(plan_line 4)" = "1 2 " ]
}

@test "a GPU of a NUMA node without CPUs that two others are equally near has no place, and is named" {
    add_node4 24 17 17 24
    add_gpu 0000:80:01.0 0x030200 0x10de 0x20b0 $node1 1
    add_gpu 0000:90:01.0 0x030200 0x10de 0x20b0 0000,00000000 4
    m plan --format tsv
    [ $status -eq 1 ]
    has "$messages" "PCI locality unknown for GPU 0000:90:01.0:"
    [ "$(plan_columns 3 | head -n 1)" = 1,5,9,13,17,21,25,29,33,37 ]
    [ "$(plan_line 4)" = "1 - " ]
}

# A topology file of the two GPUs of unplaced, from the masks of their NUMA nodes.
topology_file() { # file, first GPU's mask and node, second's
    cat > "$1" << END
<system version="1">
  <cpu numaid="$3" affinity="$2" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:80:01.0" class="0x030200"/>
  </cpu>
  <cpu numaid="$5" affinity="$4" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:90:01.0" class="0x030200"/>
  </cpu>
</system>
END
}

@test "case 036: where the system does not place the GPUs, the file that /etc/nccl.conf names does, with a note" {
    add_gpu 0000:80:01.0 0x030200 0x10de 0x20b0 $anywhere -1
    add_gpu 0000:90:01.0 0x030200 0x10de 0x20b0 $anywhere -1
    mkdir -p "$root/etc"
    echo 'NCCL_TOPO_FILE=/topo.xml' > "$root/etc/nccl.conf"
    topology_file "$root/topo.xml" 22,22222222 1 44,44444444 2
    m plan --format tsv
    [ $status -eq 0 ]
    [ "$(plan_line 4)" = "1 2 " ]
    [ "$(plan_columns 7 | sort -u)" = topofile ]
    # one that contradicts itself is not believed
    sed -i 's/44,44444444/22,22222222/' "$root/topo.xml"
    m plan --format tsv
    [ $status -eq 1 ]
    has "$messages" "/etc/nccl.conf does not help with the GPUs' locality: the topology file gives NUMA nodes 1 and 2 the same CPUs"
    has "$messages" "PCI locality unknown"
    # nor one that anybody can write
    chmod 666 "$root/topo.xml"
    m plan --format tsv
    has "$messages" "topo.xml is writable by everybody; it is not read"
}

# Nearest NUMA nodes of the GPUs, as three commands have them.
nodes_of() { # option of plan and topo...
    m plan --format tsv "$@"
    planned=$(plan_line 4)
    shown=$("$muster" topo --format json "$@" 2> /dev/null | jq -r '.gpus[].numa' | tr '\n' ' ')
    echo "plan: $planned topo: $shown"
}

@test "case 036: topo=, the site's topo= and nccl.conf mean the same to plan, topo and doctor, in that order" {
    command -v jq > /dev/null || skip "needs jq"
    local dir=$BATS_TEST_TMPDIR
    add_gpu 0000:80:01.0 0x030200 0x10de 0x20b0 $anywhere -1
    add_gpu 0000:90:01.0 0x030200 0x10de 0x20b0 $anywhere -1
    topology_file "$root/conf.xml" 22,22222222 1 44,44444444 2
    topology_file "$dir/site.xml" 44,44444444 2 22,22222222 1
    topology_file "$dir/own.xml" 22,22222222 1 88,88888888 3
    printf 'optional /nowhere/muster.so conf=%s\n' "$dir/muster.conf" > "$dir/plugstack.conf"
    printf 'ClusterName=x\n' > "$dir/slurm.conf"
    export SLURM_CONF=$dir/slurm.conf
    nodes_of
    [ "$planned$shown" = "- - null null " ]
    mkdir -p "$root/etc"
    echo 'NCCL_TOPO_FILE=/conf.xml' > "$root/etc/nccl.conf"
    nodes_of
    [ "$planned$shown" = "1 2 1 2 " ]
    printf '[defaults]\ntopo = %s\n' "$dir/site.xml" > "$dir/muster.conf"
    nodes_of
    [ "$planned$shown" = "2 1 2 1 " ]
    # the doctor compares gres.conf with the place that the site's file gives
    printf 'Name=gpu File=/dev/nvidia0 Cores=0-3\nName=gpu File=/dev/nvidia1 Cores=0-3\n' > "$dir/gres.conf"
    m doctor --all --gres-conf "$dir/gres.conf"
    has "$output" "GPU0: Slurm has CPUs 0,4,8,12 ($dir/gres.conf line 1), the PCI bus reports CPUs 2,6,10,14,18,22,26,30,34,38 (NUMA 2)"
    nodes_of --opt "topo=$dir/own.xml"
    [ "$planned$shown" = "1 3 1 3 " ]
    # without the file of the option, the next one counts, and a line says why
    nodes_of --opt topo=/nonexistent.xml
    [ "$planned$shown" = "1 2 1 2 " ]
    has "$messages" "topo=/nonexistent.xml does not help with the GPUs' locality: /nonexistent.xml: No such file"
    # the site's machine in place of this one
    cp "$data/nccl-xml/azure-ncv4.xml" "$dir/ncv4.xml"
    chmod 644 "$dir/ncv4.xml"
    printf '[defaults]\ntopology = %s\n' "$dir/ncv4.xml" > "$dir/muster.conf"
    nodes_of
    [ "$planned" = "0 1 2 3 " ]
    has "$messages" "this node is $dir/ncv4.xml, topology= in $dir/muster.conf"
}

@test "topo= is reported, not read, where this node gives the place of each GPU; a site's is not reported" {
    local dir=$BATS_TEST_TMPDIR
    add_gpu 0000:80:01.0 0x030200 0x10de 0x20b0 $node1 1
    m plan --format tsv --opt topo=/nope
    [ "$status" -eq 0 ]
    [ "$(plan_columns 4)" = 1 ]
    [ "$messages" = "muster plan: warning: topo=/nope is not read here: this node gives the place of each GPU" ]
    printf 'optional /nowhere/muster.so conf=%s\n' "$dir/muster.conf" > "$dir/plugstack.conf"
    printf 'ClusterName=x\n' > "$dir/slurm.conf"
    printf '[defaults]\ntopo = /nope\n' > "$dir/muster.conf"
    SLURM_CONF=$dir/slurm.conf m plan --format tsv
    [ "$status" -eq 0 ]
    [ -z "$messages" ]
}

@test "case 036: a topology file without class or affinity is read by bus ids, the machine has the rest" {
    command -v jq > /dev/null || skip "needs jq"
    local dir=$BATS_TEST_TMPDIR
    add_gpu 0000:80:01.0 0x030200 0x10de 0x20b0 $anywhere -1
    add_gpu 0000:90:01.0 0x030200 0x10de 0x20b0 $anywhere -1
    # as a cloud ships it for one of its machines
    cat > "$dir/bare.xml" << 'END'
<system version="1">
  <cpu numaid="1">
    <pci busid="0000:80:01.0"/>
  </cpu>
  <cpu numaid="2">
    <pci busid="0000:90:01.0"/>
  </cpu>
</system>
END
    nodes_of --opt "topo=$dir/bare.xml"
    [ "$planned$shown" = "1 2 1 2 " ]
    # a class or an affinity in one place alone
    sed '3s:/>: class="0x030200"/>:; 5s:>: affinity="44,44444444">:' "$dir/bare.xml" > "$dir/half.xml"
    nodes_of --opt "topo=$dir/half.xml"
    [ "$planned$shown" = "1 2 1 2 " ]
    # empty, as a display without its vendor, or one of number and mask alone
    while IFS= read -r way; do
        sed "$way" "$dir/bare.xml" > "$dir/way.xml"
        nodes_of --opt "topo=$dir/way.xml"
        [ "$planned$shown" = "1 2 1 2 " ] || { echo "$way: $messages"; return 1; }
    done << 'END'
s/numaid="1"/numaid="1" affinity=""/
3s:/>: class=""/>:
3s:/>: class="0x030000" link_width=""/>:
s/numaid="1"/affinity="22,22222222"/
s/numaid="1"/numaid="-1" affinity="22,22222222"/
s/numaid="1"/numaid="1" affinity="0000,00000000"/
s/numaid="1"/numaid=" 1 "/
s/numaid="1"/numaid="" affinity="22,22222222"/
s/numaid="1"/affinity="2222,22222222"/
END
    # packages of two nodes each; a part of a node and all CPUs are no place, for the reason that is printed
    sed 's/numaid="1"/affinity="33,33333333"/; s/numaid="2"/numaid="-1" affinity="cc,cccccccc"/' "$dir/bare.xml" > "$dir/package.xml"
    nodes_of --opt "topo=$dir/package.xml"
    [ "$planned" = "0-1 2-3 " ]
    sed 's/numaid="1"/affinity="2,22222222"/' "$dir/bare.xml" > "$dir/part.xml"
    nodes_of --opt "topo=$dir/part.xml"
    has "$messages" "the topology file's CPUs near GPU 0000:80:01.0 are only a part of NUMA node 1"
    printf '%s\n' '<system version="1"><cpu numaid="-1" affinity="ff,ffffffff">' '<pci busid="0000:80:01.0"/>' \
        '<pci busid="0000:90:01.0"/>' '</cpu></system>' > "$dir/all.xml"
    nodes_of --opt "topo=$dir/all.xml"
    [ "$planned$shown" = "- - null null " ]
    has "$messages" "PCI locality unknown"
    # as the site's machine
    printf 'optional /nowhere/muster.so conf=%s\n' "$dir/muster.conf" > "$dir/plugstack.conf"
    printf 'ClusterName=x\n' > "$dir/slurm.conf"
    printf '[defaults]\ntopology = %s\n' "$dir/bare.xml" > "$dir/muster.conf"
    chmod 644 "$dir/bare.xml"
    SLURM_CONF=$dir/slurm.conf nodes_of
    [ "$planned" = "1 2 " ]
    # a GPU that is not in it is the reason, and the sentence says so
    sed 's/0000:90/0000:91/' "$dir/bare.xml" > "$dir/other.xml"
    nodes_of --opt "topo=$dir/other.xml"
    has "$messages" "the topology file does not name GPU 0000:90:01.0"
    # alone, without the machine, it is still no plan
    m plan --topology "$data/nccl-xml/aws-g5-48xl.xml"
    [ "$status" -ne 0 ]
}

@test "UUID, minor number and model from the driver's /proc files" {
    add_gpu 0000:80:01.0 0x030200 0x10de 0x20b0 $node1 1
    add_driver 0000:80:01.0 3 GPU-11111111-2222-3333-4444-555555555555
    m topo --format json
    [ $status -eq 0 ]
    has "$output" '"uuid": "GPU-11111111-2222-3333-4444-555555555555"'
    has "$output" '"minor": 3'
    has "$output" '"model": "NVIDIA A100"'
    # Question marks stand for what this user may not see.
    add_driver 0000:80:01.0 3 'GPU-????????-????-????-????-????????????'
    m topo --format json
    has "$output" '"uuid": null'
}

@test "case 024: MIG instances are devices of their own, near their parent" {
    add_gpu 0000:80:01.0 0x030200 0x10de 0x20b0 $node1 1
    add_driver 0000:80:01.0 0 GPU-11111111-2222-3333-4444-555555555555
    mkdir -p "$root"/proc/driver/nvidia/capabilities/gpu0/mig/gi{7,8,9}/ci0
    m plan --format tsv
    [ $status -eq 0 ]
    [ "$(plan_line 2)" = "0000:80:01.0/0 0000:80:01.0/1 0000:80:01.0/2 " ]
    [ "$(plan_columns 4 | sort -u)" = 1 ]
}

@test "case 024: the doctor counts the slices that can be opened, not their GPU" {
    local caps=$root/proc/driver/nvidia/capabilities/gpu0/mig n
    add_gpu 0000:80:01.0 0x030200 0x10de 0x20b0 $node1 1
    add_driver 0000:80:01.0 0 GPU-11111111-2222-3333-4444-555555555555
    mkdir -p "$root/dev/nvidia-caps" "$caps"/gi{7,8,9}/ci0
    touch "$root/dev/nvidia0" "$root"/dev/nvidia-caps/nvidia-cap{66,67,75,76}
    for n in 7 8 9; do # the third is another job's: its files do not open
        echo "DeviceFileMinor: $((3 + 9 * n))" > "$caps/gi$n/access"
        echo "DeviceFileMinor: $((4 + 9 * n))" > "$caps/gi$n/ci0/access"
    done
    SLURM_GPUS_ON_NODE=2 CUDA_VISIBLE_DEVICES=0,1 m doctor --all
    has "$output" "Slurm 2, CUDA_VISIBLE_DEVICES 2, can be opened 2,"
    [[ $output != *"ConstrainDevices is off"* ]]
    [[ $output != *"hides the other GPUs"* ]]
}

@test "isolated CPUs are not used" {
    add_gpu 0000:80:01.0 0x030200 0x10de 0x20b0 $node1 1
    echo 1,5,9 > "$root/sys/devices/system/cpu/isolated"
    m plan --format tsv
    [ "$(plan_columns 3)" = 13,17,21,25,29,33,37 ]
    # nor are they anybody's who has no GPU there
    m plan --format tsv --gpus none --tasks 1
    [[ ",$(plan_columns 3)," != *,[159],* ]]
    # a machine with every CPU isolated is used all the same
    cp "$root/sys/devices/system/cpu/online" "$root/sys/devices/system/cpu/isolated"
    m plan --format tsv
    [ "$status" -eq 0 ]
    [ "$(plan_columns 3)" = 1,5,9,13,17,21,25,29,33,37 ]
}

@test "several devices of one amdgpu function (CPX) by the kernel's own list" {
    local n
    add_gpu 0000:90:01.0 0x120000 0x1002 0x74a0 $node2 2
    for n in 0 1 2 4; do
        mkdir -p "$root/sys/class/kfd/kfd/topology/nodes/$n"
        # Node 0 is the processor. 0x9008 is bus 90, device 1.
        printf 'cpu_cores_count 0\nlocation_id %d\ndomain 0\n' $((n == 0 ? 0 : (n << 28) + 0x9008)) \
            > "$root/sys/class/kfd/kfd/topology/nodes/$n/properties"
    done
    # one that a device cgroup hides: the driver tells nothing of it
    mkdir "$root/sys/class/kfd/kfd/topology/nodes/3"
    : > "$root/sys/class/kfd/kfd/topology/nodes/3/properties"
    m plan --format tsv
    [ $status -eq 0 ]
    [ "$(plan_line 2)" = "0000:90:01.0/0 0000:90:01.0/1 0000:90:01.0/2 " ]
}

# The recorded NIC, as one with a port; its name is in $nic, the port's folder in $port.
one_port() { # state
    nic=$(find "$root/sys/class/infiniband" -mindepth 1 -maxdepth 1 -printf '%f\n' | head -n 1)
    [ -n "$nic" ]
    port=$root/sys/class/infiniband/$nic/ports/1
    mkdir -p "$port"
    rm -rf "$root/sys/class/infiniband/$nic"/ports/[2-4]
    echo "$1" > "$port/state"
}

@test "a NIC's port: state, rate and layer" {
    one_port "1: DOWN"
    echo "200 Gb/sec (4X HDR)" > "$port/rate"
    echo InfiniBand > "$port/link_layer"
    m topo
    [ $status -eq 0 ]
    [[ $output =~ $nic\ .*InfiniBand\ +down\ +200 ]]
    echo "4: ACTIVE" > "$port/state"
    echo Ethernet > "$port/link_layer"
    m topo
    [[ $output =~ $nic\ .*Ethernet\ +up\ +200 ]]
}

# An RDMA device over Ethernet, active: its name, its folder in sys/devices, its node type.
add_rdma() {
    local dir=$root/sys/devices/$2/infiniband/$1 up
    mkdir -p "$dir/ports/1" "$root/sys/class/infiniband"
    echo "$3" > "$dir/node_type"
    echo "4: ACTIVE" > "$dir/ports/1/state"
    echo "400 Gb/sec (4X NDR)" > "$dir/ports/1/rate"
    echo Ethernet > "$dir/ports/1/link_layer"
    up=../..
    ln -sfn "$up/devices/$2/infiniband/$1" "$root/sys/class/infiniband/$1"
    [[ $2 == virtual* ]] || ln -sfn "$root/sys/devices/$2" "$dir/device"
}

@test "case 077: RDMA devices in software are nobody's NIC, wherever they are" {
    local name
    rm -rf "$root/sys/class/infiniband"
    add_gpu 0000:80:01.0 0x030200 0x10de 0x20b0 $node1 1
    add_gpu 0000:80:02.0 0x020000 0x15b3 0x1021 $node1 1 # a function of a NIC
    add_gpu 0000:80:03.0 0x020000 0x8086 0x1521 $node1 1 # one of an Ethernet card
    add_gpu 0000:80:04.0 0x020000 0x1425 0x6001 $node1 1
    add_rdma mlx5_0 pci0000:80/0000:80:02.0 "1: CA"
    add_rdma siw_eth0 pci0000:80/0000:80:03.0 "4: RNIC"
    add_rdma renamed0 pci0000:80/0000:80:03.0 "4: RNIC"
    add_rdma soft1 pci0000:80/0000:80:03.0 "1: CA"
    echo eth0 > "$root/sys/class/infiniband/soft1/parent"
    add_rdma soft2 virtual "1: CA"
    add_rdma cxgb4_0 pci0000:80/0000:80:04.0 "4: RNIC"
    add_gpu 0000:80:05.0 0x020000 0x1ded 0x107f $node1 1 # eRDMA of a cloud
    add_rdma erdma_0 pci0000:80/0000:80:05.0 "4: RNIC"
    add_gpu 0000:80:06.0 0x020000 0x8086 0x1592 $node1 1
    add_rdma irdma0 pci0000:80/0000:80:06.0 "4: RNIC"
    echo 0 > "$root/sys/class/infiniband/irdma0/hw_rev"
    m plan --format tsv
    [ $status -eq 0 ]
    [ "$(plan_columns 5)" = mlx5_0,cxgb4_0,erdma_0,irdma0 ]
    m topo
    for name in siw_eth0 renamed0 soft1 soft2; do
        [[ $output != *$name* ]]
    done
    m doctor --all
    for name in siw_eth0 renamed0 soft1 soft2; do
        has "$output" "hint    network  $name is an RDMA device in software (siw or rxe), active: without NCCL_IB_HCA"
    done
    [ "$(grep -cE "(cxgb4_0|erdma_0|irdma0) is an RDMA device in software" <<< "$output")" -eq 0 ]
    NCCL_IB_HCA="=mlx5_0,soft2" m doctor --all
    has "$output" "warning network  soft2 is an RDMA device in software (siw or rxe), active: NCCL_IB_HCA selects it"
    has "$output" "ok      network  soft1 is an RDMA device in software (siw or rxe), active: NCCL_IB_HCA leaves it out"
}

@test "case 078: an RDMA device whose device file cannot be opened" {
    local verbs=$root/sys/class/infiniband_verbs
    rm -rf "$root/sys/class/infiniband"
    add_gpu 0000:80:01.0 0x030200 0x10de 0x20b0 $node1 1
    for i in 2 3 4; do
        add_gpu 0000:80:0$i.0 0x020000 0x15b3 0x1021 $node1 1
        add_rdma mlx5_$i pci0000:80/0000:80:0$i.0 "1: CA"
    done
    m doctor --all
    [[ $output != *"device file"* ]]
    mkdir -p "$verbs"/uverbs{0,1} "$root/dev/infiniband"
    echo mlx5_2 > "$verbs/uverbs0/ibdev"
    echo mlx5_3 > "$verbs/uverbs1/ibdev"
    touch "$root/dev/infiniband/uverbs0"
    m doctor --all
    has "$output" "warning network  mlx5_3 is active, but /dev/infiniband/uverbs1 cannot be opened (No such file or directory): NCCL leaves mlx5_3 out, and uses sockets where no other device is left"
    has "$output" "--device=/dev/infiniband"
    has "$output" "warning network  mlx5_4 is active, but has no device file: NCCL leaves mlx5_4 out"
    has "$output" "modprobe ib_uverbs"
    [[ $output != *"mlx5_2 is active, but"* ]]
    touch "$root/dev/infiniband/uverbs1"
    rm "$root/dev/infiniband/uverbs0"
    mkdir "$root/dev/infiniband/uverbs0" # open(2) refuses it, to root too
    m doctor
    has "$output" "mlx5_2 is active, but /dev/infiniband/uverbs0 cannot be opened"
    [[ $output != *"mlx5_3 is active, but"* ]]
    rm -rf "${root:?}/dev"
}

# An entry of an RDMA port's GID table: device, port, index, GID, type.
add_gid() {
    local port=$root/sys/class/infiniband/$1/ports/$2
    mkdir -p "$port/gids" "$port/gid_attrs/types"
    echo "$4" > "$port/gids/$3"
    [ -z "$5" ] || echo "$5" > "$port/gid_attrs/types/$3"
}

@test "case 096: GIDs of RoCE ports are read, and their addresses printed" {
    local none=0000:0000:0000:0000:0000:0000:0000:0000
    rm -rf "$root/sys/class/infiniband"
    add_gpu 0000:80:01.0 0x030200 0x10de 0x20b0 $node1 1
    for i in 2 3 4; do
        add_gpu 0000:80:0$i.0 0x020000 0x15b3 0x1021 $node1 1
        add_rdma mlx5_$((i - 2)) pci0000:80/0000:80:0$i.0 "1: CA"
        add_gid mlx5_$((i - 2)) 1 0 fe80:0000:0000:0000:0000:00ff:fe00:000$i "IB/RoCE v1"
        add_gid mlx5_$((i - 2)) 1 1 fe80:0000:0000:0000:0000:00ff:fe00:000$i "RoCE v2"
        add_gid mlx5_$((i - 2)) 1 2 $none ""
    done
    add_gid mlx5_0 1 3 0000:0000:0000:0000:0000:ffff:0a63:0005 "RoCE v2"
    add_gid mlx5_1 1 3 0000:0000:0000:0000:0000:ffff:0a63:0006 "IB/RoCE v1"
    # mlx5_2: a second port, with an address
    cp -r "$root/sys/class/infiniband/mlx5_2/ports/1" "$root/sys/class/infiniband/mlx5_2/ports/2"
    add_gid mlx5_2 2 4 fd00:0001:0000:0000:0000:0000:0000:0007 "RoCE v2"
    m doctor --all
    has "$output" "mlx5_0: Ethernet, active, 400 Gb/s, NUMA 1, RoCE v2 fe80::ff:fe00:2 (GID 1), 10.99.0.5 (GID 3), used"
    has "$output" "mlx5_1: Ethernet, active, 400 Gb/s, NUMA 1, RoCE v2 fe80::ff:fe00:3 (GID 1), no RoCE v2 GID with an"
    has "$output" "hint    network  mlx5_1 is active, but has no RoCE v2 GID with an address that other nodes can reach"
    has "$output" "mlx5_2: Ethernet, active, 400 Gb/s, NUMA 1, RoCE v2 fe80::ff:fe00:4 (GID 1), fd00:1::7 (GID 4), used"
    NCCL_IB_GID_INDEX=3 m doctor --all
    has "$output" "ok      network  NCCL_IB_GID_INDEX=3 (the environment) is 10.99.0.5 on mlx5_0"
    has "$output" "warning network  NCCL_IB_GID_INDEX=3 (the environment) is no RoCE v2 address on mlx5_2, which other nodes"
    NCCL_IB_GID_INDEX=1 m doctor
    has "$output" "NCCL_IB_GID_INDEX=1 (the environment) is fe80::ff:fe00:2 on mlx5_0, which other nodes cannot reach, RoCE v2"
    # mlx5_0: a bond with many VLANs, of which the last has the address
    rm -r "$root"/sys/class/infiniband/mlx5_0/ports/1/gid*
    for i in {0..19}; do
        add_gid mlx5_0 1 "$i" fe80:0000:0000:0000:0000:00ff:fe00:0001 "RoCE v2"
    done
    add_gid mlx5_0 1 20 0000:0000:0000:0000:0000:ffff:0a63:0005 "RoCE v2"
    # mlx5_1: every entry is empty, and the kernel fails to read its type (as open does a folder here)
    rm -r "$root"/sys/class/infiniband/mlx5_1/ports/1/gid*
    for i in {0..2}; do
        add_gid mlx5_1 1 "$i" $none ""
        mkdir -p "$root/sys/class/infiniband/mlx5_1/ports/1/gid_attrs/types/$i"
    done
    NCCL_IB_GID_INDEX=20 m doctor --all
    has "$output" "NCCL_IB_GID_INDEX=20 (the environment) is 10.99.0.5 on mlx5_0"
    has "$output" "hint    network  mlx5_1 is active, but has no RoCE v2 GID with an address that other nodes can reach"
}

@test "a card with two ports: the active one counts, not the last" {
    one_port "4: ACTIVE"
    echo "56 Gb/sec (4X FDR)" > "$port/rate"
    echo InfiniBand > "$port/link_layer"
    mkdir "${port%1}2"
    echo "1: DOWN" > "${port%1}2/state"
    echo "100 Gb/sec (4X EDR)" > "${port%1}2/rate"
    echo Ethernet > "${port%1}2/link_layer"
    m topo
    [[ $output =~ $nic\ .*InfiniBand\ +up\ +56 ]]
    # both active, of two kinds: one port of the device is used
    echo "4: ACTIVE" > "${port%1}2/state"
    m topo
    [[ $output =~ $nic\ .*Ethernet\ +up\ +100 ]]
}

@test "the doctor reports the limits under which CUDA and RDMA cannot start" {
    add_gpu 0000:80:01.0 0x030200 0x10de 0x20b0 $node1 1
    (ulimit -v 8388608; "$muster" doctor > "$BATS_TEST_TMPDIR/out") || true
    has "$(cat "$BATS_TEST_TMPDIR/out")" "may have 8 GiB of virtual memory (ulimit -v): CUDA"
    (ulimit -v unlimited; "$muster" doctor > "$BATS_TEST_TMPDIR/out") || true
    ! grep -q 'ulimit -v' "$BATS_TEST_TMPDIR/out" || false
}

@test "the doctor reports when NICs cannot reach the GPUs' memory, by the driver's version and modules" {
    add_gpu 0000:80:01.0 0x030200 0x10de 0x20b0 $node1 1
    one_port "4: ACTIVE"
    m doctor
    ! grep -q peermem <<< "$output" || false # no driver, nothing known
    mkdir -p "$root/proc/driver/nvidia" "$root/sys/module/nvidia_peermem"
    echo "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024" \
        > "$root/proc/driver/nvidia/version"
    m doctor
    [ $status -eq 1 ]
    has "$output" "$nic cannot access GPU memory: nvidia_peermem is not loaded"
    echo 535.183.01 > "$root/sys/module/nvidia_peermem/version"
    m doctor
    ! grep -q peermem <<< "$output" || false
    rm "$root/sys/module/nvidia_peermem/version"
    echo "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build" \
        > "$root/proc/driver/nvidia/version"
    m doctor
    ! grep -q peermem <<< "$output" || false
}

# This node's own file, $1 a sed program that spoils it, checked against this node.
check_here() {
    "$muster" topo --format nccl-xml | sed -e "$1" > "$BATS_TEST_TMPDIR/f.xml"
    m topo --check "$BATS_TEST_TMPDIR/f.xml" --here
}

@test "--check --here: this node's own file fits, and each difference is reported with its line" {
    add_gpu 0000:80:01.0 0x030200 0x10de 0x20b0 $node1 1
    add_gpu 0000:90:01.0 0x030200 0x10de 0x20b0 $node2 2
    check_here ''
    [ $status -eq 0 ] || { echo "$output"; return 1; }
    has "$output" ": 0 errors"
    gpu=$(grep -n 0000:80:01.0 "$BATS_TEST_TMPDIR/f.xml" | cut -d: -f1)
    while IFS='|' read -r want level part program; do
        check_here "$program"
        [ $status -eq "$want" ] || { echo "$program: $status $output"; return 1; }
        has "$output" "$level$part" || { echo "$program"; return 1; }
    done << END
1|f.xml:3: error: |this node has no NUMA node 7|3s/numaid="1"/numaid="7"/
1|f.xml:2: error: |numaid 0 has CPUs 0,4,8,12,16,20,24,28,32; NUMA node 0 of this node has 0,4,8,12,16,20,24,28,32,36|2s/"11,/"01,/
1|error: |numaid 1 has CPUs 2,6,10,14,18,22,26,30,34,38, which belong to NUMA node 2: masks or numaids are exchanged (node 1 has 1,5,9,13,17,21,25,29,33,37)|s/numaid="1"/numaid="x"/;s/numaid="2"/numaid="1"/;s/numaid="x"/numaid="2"/
1|f.xml:$gpu: error: |this node has no GPU 0000:81:01.0|s/0000:80:01.0/0000:81:01.0/
1|f.xml:$gpu: error: |0000:90:01.0 is under numaid 1; on this node it is at NUMA node 2|s/0000:80:01.0/x/;s/0000:90:01.0/0000:80:01.0/;s/"x"/"0000:90:01.0"/
0|f.xml:$gpu: warning: |link_speed 8 GT/s of 0000:80:01.0 is less than the card's 16 GT/s|${gpu}s,16.0 GT/s,8.0 GT/s,
1|f.xml:1: error: |made for another size of machine: 1 GPU in the file, 2 on this node|/0000:90:01.0/d
1|warning: |GPU 0000:90:01.0 of this node is not in the file: NCCL places it by sysfs|/0000:90:01.0/d
1|f.xml:1: error: |made for another machine: none of its devices is on this node|s/0000:80:01/0000:a0:01/;s/0000:90:01/0000:b0:01/
END
}

@test "--check --here: on a node with one NUMA node no file is needed, and a hint states it" {
    for n in 1 2 3; do rm -rf "$root/sys/devices/system/node/node$n"; done
    echo 0 > "$root/sys/devices/system/node/online"
    printf '<system version="1">\n  <cpu numaid="0" affinity="1" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">\n  </cpu>\n</system>\n' > "$BATS_TEST_TMPDIR/f.xml"
    m topo --check "$BATS_TEST_TMPDIR/f.xml" --here
    has "$output" "hint: this node has one NUMA node: NCCL needs no topology file for CPUs there"
}
