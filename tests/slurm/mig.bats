#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# MIG devices in steps of a real Slurm (case 024). Real here: Slurm, the child process that asks
# NVIDIA's library with the user's rights, the environment that tasks get. Not real: the GPUs
# (devices added to this machine's topology) and the library, see mig.c.

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    command -v lstopo-no-graphics cc > /dev/null || skip "needs lstopo-no-graphics and cc"
    [ "$(id -u)" -eq 0 ] || skip "device files need root"
    export MUSTER_DIR
    MUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/mmig.XXXXXX")
    chmod 755 "$MUSTER_DIR"
    mkdir "$MUSTER_DIR/lib"
    cc -shared -fPIC -I"$top" -o "$MUSTER_DIR/lib/libnvidia-ml.so.1" "$BATS_TEST_DIRNAME/mig.c" \
        "$top/tests/unit/fake_nvml.c"
    lstopo-no-graphics --no-io --of xml | awk '
        { line[NR] = $0 }
        /<\/object>/ { last = NR }
        END {
            for (i = 1; i < last; i++) print line[i]
            print "<object type=\"Bridge\" gp_index=\"100000\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[e0-ef]\">"
            for (g = 1; g <= 2; g++)
                print "<object type=\"PCIDev\" gp_index=\"" 100000 + g "\" pci_busid=\"0000:e" g ":00.0\" " \
                    "pci_type=\"0302 [10de:2330] [0000:0000] a1\" pci_link_speed=\"0.000000\"/>"
            print "</object>"
            for (i = last; i <= NR; i++) print line[i]
        }' > "$MUSTER_DIR/machine.xml"
    # what slurmd has in its environment, its slurmstepd has too
    LD_LIBRARY_PATH=$MUSTER_DIR/lib HWLOC_XMLFILE=$MUSTER_DIR/machine.xml \
        "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/c" --prefix mig --nodes 1 --gpus 2 \
        --plugin "$build/.libs/muster.so" > "$MUSTER_DIR/env"
    sed -i "1i required $MUSTER_DIR/lib/libnvidia-ml.so.1" "$MUSTER_DIR/c/etc/plugstack.conf"
}

seen() { # srun option...
    timeout 60 srun -Q -n2 --gres=gpu:2 "$@" bash -c \
        'echo "$CUDA_VISIBLE_DEVICES ${NCCL_MULTI_RANK_GPU_ENABLE-unset} $MUSTER_PLAN"' 2> "$MUSTER_DIR/err" | sort
}

@test "case 024: each task has its own MIG device alone, beside its GPU's place" {
    run seen --muster=verbose
    echo "$output"
    cat "$MUSTER_DIR/err"
    [[ "${lines[0]}" == "MIG-20 "*"task=0;gpus=MIG-20;"* ]]
    [[ "${lines[1]}" == "MIG-21 "*"task=1;gpus=MIG-21;"* ]]
    # one parent: several ranks on one GPU
    [[ "${lines[0]}" == *" 1 v=1;"* ]] || grep -q 'cannot run several ranks on one GPU' "$MUSTER_DIR/err"
}

@test "case 024: without AutoDetect=nvml Slurm's numbers become the slices' UUIDs" {
    echo 1,2 > "$MUSTER_DIR/lib/numbers"
    run seen --muster=on
    rm "$MUSTER_DIR/lib/numbers"
    cat "$MUSTER_DIR/err"
    echo "$output"
    [[ "${lines[0]}" == "MIG-20 "*"task=0;gpus=MIG-20;"* ]]
    [[ "${lines[1]}" == "MIG-21 "*"task=1;gpus=MIG-21;"* ]]
    # the whole GPU and a slice
    echo 0,1 > "$MUSTER_DIR/lib/numbers"
    run seen --muster=on
    rm "$MUSTER_DIR/lib/numbers"
    echo "$output"
    [[ "${lines[0]}" == *"task=0;gpus=0000:e1:00.0;"* ]]
    [[ "${lines[1]}" == "MIG-20 "*"task=1;gpus=MIG-20;"* ]]
}

@test "a library that hangs holds the step up for seconds, and the devices' place is said to be unknown" {
    touch "$MUSTER_DIR/lib/hangs"
    local begin=$SECONDS
    run seen
    rm "$MUSTER_DIR/lib/hangs"
    cat "$MUSTER_DIR/err"
    echo "$output, $((SECONDS - begin)) s"
    [ $((SECONDS - begin)) -ge 3 ]
    [ $((SECONDS - begin)) -lt 10 ]
    [ "${#lines[@]}" -eq 2 ]
    [[ "${lines[0]}" == "MIG-20,MIG-21 "* ]]
    grep -q 'Slurm gave the step MIG-20, which this node does not list' "$MUSTER_DIR/err"
}
