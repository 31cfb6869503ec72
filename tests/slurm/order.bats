#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# GPUs whose device files are not numbered along the PCI bus, as on a DGX A100: the first GPU of
# the bus is gpu2. Real here: Slurm, its device cgroups, character devices. Not real: the GPUs,
# which are in a recorded /sys with what NVIDIA's driver would show of them.

source "$BATS_TEST_DIRNAME/common.bash"

# The root of the recorded /sys: $root.
find_root() {
    root=$(dirname "$(find "$MUSTER_DIR/fs" -maxdepth 3 -type d -name sys | head -n 1)")
}

setup_file() {
    [ "$(id -u)" -eq 0 ] || skip "device files need root"
    command -v bzip2 > /dev/null || skip "needs bzip2"
    export MUSTER_DIR
    MUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/mord.XXXXXX")
    mkdir "$MUSTER_DIR/fs"
    tar -C "$MUSTER_DIR/fs" -xjf "$top/tests/data/hwloc-sysfs/40intel64-2g2n4c+pcilocality.tar.bz2"
    find_root
    add_gpu 80 2
    add_gpu 90 3
    add_gpu a0 0
    add_gpu b0 1
    chmod -R a+rX "$MUSTER_DIR"
    {
        printf '[defaults]\nbind = none\n'
        printf '[node ord1]\ndevices = %s\n' "$MUSTER_DIR/c/dev/ord1/gpu"
    } > "$MUSTER_DIR/site.conf"
    cat > "$MUSTER_DIR/show" <<'SHOW'
#!/bin/bash
opens=''
for f in "$MUSTER_DIR"/c/dev/ord1/gpu*; do
    { : < "$f"; } 2>&1 | grep -q 'not permitted' || opens=$opens${f##*gpu}
done
plan=$(sed -n 's/.*;gpus=\([^;]*\);.*/\1/p' <<< "$MUSTER_PLAN" | sed 's/0000:\(..\):01.0/\1/g')
echo "$SLURM_PROCID slurm=$SLURM_STEP_GPUS opens=$opens plan=$plan visible=$CUDA_VISIBLE_DEVICES"
SHOW
    chmod +x "$MUSTER_DIR/show"
}

teardown() {
    [ -z "${MUSTER_DIR:-}" ] || "$top/tests/slurm/cluster" down --dir "$MUSTER_DIR/c"
}

teardown_file() {
    [ -z "${MUSTER_DIR:-}" ] || rm -rf "$MUSTER_DIR"
}

setup() {
    true
}

add_gpu() { # bus, minor number
    local dir=$root/sys/devices/pci0000:$1/0000:$1:01.0 driver=$root/proc/driver/nvidia/gpus/0000:$1:01.0
    mkdir -p "$dir" "$driver"
    echo 0x030200 > "$dir/class"
    echo 0x10de > "$dir/vendor"
    echo 0x2330 > "$dir/device"
    echo 0x10de > "$dir/subsystem_vendor"
    echo 0x0001 > "$dir/subsystem_device"
    cp "$(find "$root/sys/devices/pci0000:40" -maxdepth 1 -name '0000:40:14.0')/config" "$dir/config"
    echo 0022,22222222 > "$dir/local_cpus"
    echo 1 > "$dir/numa_node"
    ln -sfn "../../../devices/pci0000:$1/0000:$1:01.0" "$root/sys/bus/pci/devices/0000:$1:01.0"
    printf 'Model: \t\t NVIDIA A100\nDevice Minor: \t %s\n' "$2" > "$driver/information"
}

up() { # option of the cluster...
    find_root
    HWLOC_FSROOT=$root HWLOC_COMPONENTS=linux,stop "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/c" --prefix ord \
        --nodes 1 --gpus 4 --plugin "$build/.libs/muster.so" --site-file "$MUSTER_DIR/site.conf" "$@" > "$MUSTER_DIR/env"
    eval "$(cat "$MUSTER_DIR/env")"
}

shown() { # srun option...
    timeout 60 srun -Q "$@" --muster=on "$MUSTER_DIR/show" 2> "$MUSTER_DIR/err" | sort
}

@test "device cgroups: Slurm's number is a line of gres.conf, and its device file tells the GPU" {
    need_cgroups devices
    up --constrain
    run shown -n1 --gres=gpu:1
    cat "$MUSTER_DIR/err"
    echo "$output"
    [ "$output" = "0 slurm=0 opens=0 plan=a0 visible=0" ]
    run shown -n1 --gres=gpu:2
    echo "$output"
    [ "$output" = "0 slurm=0,1 opens=01 plan=a0,b0 visible=0,1" ]
}

@test "no device cgroups: Slurm's number is CUDA's, along the PCI bus" {
    up
    run shown -n1 --gres=gpu:1
    cat "$MUSTER_DIR/err"
    echo "$output"
    [ "$output" = "0 slurm=0 opens=0123 plan=80 visible=0" ]
}

# The driver lists them as b0, 80, a0, 90 behind a processor's own graphics unit.
amd_gpus() {
    local n=1 bus nodes
    find_root
    nodes=$root/sys/class/kfd/kfd/topology/nodes
    for bus in 80 90 a0 b0; do
        echo 0x1002 > "$root/sys/devices/pci0000:$bus/0000:$bus:01.0/vendor"
        echo 0x120000 > "$root/sys/devices/pci0000:$bus/0000:$bus:01.0/class"
    done
    mkdir -p "$nodes/0"
    printf 'cpu_cores_count 16\nlocation_id 0\ndomain 0\n' > "$nodes/0/properties"
    for bus in 05 b0 80 a0 90; do
        mkdir -p "$nodes/$n"
        printf 'cpu_cores_count 0\nlocation_id %d\ndomain 0\ndrm_render_minor %d\n' \
            $((0x${bus}08)) $((127 + n)) > "$nodes/$n/properties"
        n=$((n + 1))
    done
    chmod -R a+rX "$MUSTER_DIR"
}

# ROCR_VISIBLE_DEVICES names the devices of MUSTER_PLAN, in the order of the driver's list.
shown_amd() { # srun option...
    cat > "$MUSTER_DIR/show-amd" <<'SHOW'
#!/bin/bash
plan=$(sed -n 's/.*;gpus=\([^;]*\);.*/\1/p' <<< "$MUSTER_PLAN" | sed 's/0000:\(..\):01.0/\1/g')
echo "$SLURM_PROCID plan=$plan rocr=$ROCR_VISIBLE_DEVICES" \
    "others=${CUDA_VISIBLE_DEVICES-}${GPU_DEVICE_ORDINAL-}${ZE_AFFINITY_MASK-}"
SHOW
    chmod +x "$MUSTER_DIR/show-amd"
    timeout 60 srun -Q "$@" "$MUSTER_DIR/show-amd" 2> "$MUSTER_DIR/err" | sort
}

@test "AMD: numbers are those of the KFD driver's order, not of the PCI bus" {
    amd_gpus
    up
    run shown_amd -n4 -O --gres=gpu:4 --muster=visible=own
    cat "$MUSTER_DIR/err"
    echo "$output"
    [ "$output" = "0 plan=80 rocr=2 others=
1 plan=90 rocr=4 others=
2 plan=a0 rocr=3 others=
3 plan=b0 rocr=1 others=" ]
    run shown_amd -n1 --gres=gpu:4 --muster=on
    echo "$output"
    [ "$output" = "0 plan=80,90,a0,b0 rocr=2,4,3,1 others=" ]
    # Slurm's first GPU is the driver's first one of the node's.
    run shown_amd -n1 --gres=gpu:1 --muster=on
    echo "$output"
    [ "$output" = "0 plan=b0 rocr=1 others=" ]
}

@test "topo=FILE tells the plugin where the GPUs are, as it tells muster plan (case 036)" {
    find_root
    rm -rf "$root/sys/class/kfd"
    for bus in 80 90 a0 b0; do
        echo 00ff,ffffffff > "$root/sys/devices/pci0000:$bus/0000:$bus:01.0/local_cpus"
        echo -1 > "$root/sys/devices/pci0000:$bus/0000:$bus:01.0/numa_node"
    done
    {
        echo '<system version="1">'
        echo '  <cpu numaid="2" affinity="44,44444444" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">'
        printf '    <pci busid="0000:%s:01.0" class="0x030200"/>\n' 80 90 a0 b0
        echo '  </cpu>'
        echo '</system>'
    } > "$MUSTER_DIR/topo.xml"
    chmod -R a+rX "$MUSTER_DIR"
    up
    timeout 60 srun -Q -n1 --gres=gpu:1 --muster=verbose true 2> "$MUSTER_DIR/err"
    cat "$MUSTER_DIR/err"
    grep -q 'unknown' "$MUSTER_DIR/err"
    timeout 60 srun -Q -n1 --gres=gpu:1 --muster=verbose,topo="$MUSTER_DIR/topo.xml" true 2> "$MUSTER_DIR/err"
    cat "$MUSTER_DIR/err"
    grep -q "$MUSTER_DIR/topo.xml" "$MUSTER_DIR/err"
    grep -q 'topofile' "$MUSTER_DIR/err"
    [ "$(grep -c 'unknown' "$MUSTER_DIR/err")" -eq 0 ]
}
