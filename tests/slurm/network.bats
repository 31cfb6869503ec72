#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# The network settings under a real Slurm, each node in a network namespace of its own.
# Real here: interfaces, addresses, name look-ups, connections between the nodes. Not
# real: the GPUs (a recorded machine) and NCCL itself.

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    [ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
    ip netns list >/dev/null 2>&1 || skip "no network namespaces here"
    export MUSTER_DIR
    MUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/mnet.XXXXXX")
    mkdir -p "$MUSTER_DIR/machine"
    cp "${MUSTER_EXTRA_TOPOLOGIES:-$top/tests/data}/hwloc-xml/turin-nps4-4xh200-nvml.xml" "$MUSTER_DIR/machine/"
    printf '[defaults]\ntopology=%s\n' "$MUSTER_DIR/machine/turin-nps4-4xh200-nvml.xml" \
        >"$MUSTER_DIR/site.conf"
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/c" --prefix mnet --nodes 2 --gpus 4 \
        --cpus 4 --netns --resv-ports --plugin "$build/.libs/muster.so" \
        --site-file "$MUSTER_DIR/site.conf" >"$MUSTER_DIR/env"
}

# The value of one variable in every task, sorted and unique.
seen() { # variable, srun option...
    local name=$1
    shift
    timeout 60 srun "$@" bash -c "echo \"\${$name-unset}\"" 2>"$MUSTER_DIR/err" | sort -u
}

meet_program() {
    cat >"$MUSTER_DIR/meet.py" <<'P'
import os
os.environ["USE_LIBUV"] = "0" # Debian's PyTorch lacks libuv
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="env://")
t = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(t)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "local", os.environ["LOCAL_RANK"], "sum", int(t.item()))
dist.destroy_process_group()
P
}

address() { # node
    on "$1" -- ip -4 -o addr show eth0 | awk '{ sub("/.*", "", $4); print $4 }'
}

@test "MASTER_ADDR is the address of rank 0's node that the other node resolves it to" {
    run seen MASTER_ADDR -N2 --ntasks-per-node=2 --gres=gpu:2
    [ "$output" = "$(address mnet1)" ]
}

@test "tasks that follow a list of the user's: MASTER_ADDR is that of the node with rank 0" {
    printf '# mine\nmnet2*2\nmnet1\n' >"$MUSTER_DIR/hosts"
    for how in "SLURM_HOSTFILE=$MUSTER_DIR/hosts srun" "SLURM_HOSTFILE=$MUSTER_DIR/hosts srun --export=NONE" \
        "srun -m arbitrary -w mnet2,mnet2,mnet1" "srun --distribution=arbitrary --nodelist=$MUSTER_DIR/hosts"; do
        # shellcheck disable=SC2086 # a command and its words
        run timeout 60 env $how -Q -n3 --gres=gpu:2 /bin/bash -c 'echo "$RANK $SLURMD_NODENAME $MASTER_ADDR"'
        echo "$how: $output"
        [ "$(sort <<<"$output")" = "0 mnet2 $(address mnet2)
1 mnet2 $(address mnet2)
2 mnet1 $(address mnet2)" ]
    done
    run seen MASTER_ADDR -w mnet2,mnet1 -N2 -n2 --gres=gpu:1 # not arbitrary: in Slurm's own order
    [ "$output" = "$(address mnet1)" ]
}

@test "MASTER_ADDR where no name service resolves the nodes: NodeAddr, and the network is found by it" {
    hosts=$(on mnet1 -- cat /etc/hosts) # one file for all nodes
    on mnet1 -- bash -c 'echo 127.0.0.1 localhost >/etc/hosts'
    run timeout 60 srun -N2 --ntasks-per-node=1 --gres=gpu:2 --muster=verbose bash -c 'echo "at $MASTER_ADDR"'
    on mnet1 -- bash -c 'echo "$1" >/etc/hosts' bash "$hosts"
    echo "$output"
    [ "$(grep -c "^at $(address mnet1)\$" <<< "$output")" -eq 2 ]
    [[ "$output" == *"the name mnet1 resolves to no address that other nodes can reach; its NodeAddr $(address mnet1) in slurm.conf is used"* ]]
    [[ "$output" != *"no interface chosen"* ]]
}

@test "case 043: ports that the kernel reserves for others are not hashed to" {
    cp "$MUSTER_DIR/c/etc/muster.conf" "$MUSTER_DIR/site.before"
    echo 'ports=23000-23015' >>"$MUSTER_DIR/c/etc/muster.conf"
    for n in mnet1 mnet2; do on $n -- bash -c 'echo 23000-23005,23008-23015 >/proc/sys/net/ipv4/ip_local_reserved_ports'; done
    # this cluster's Slurm reserves MASTER_PORT itself; the other hashed port is NCCL's
    got=$(for _ in 1 2 3; do seen NCCL_RAS_ADDR -N2 --ntasks-per-node=2 --gres=gpu:2; done | sort -u)
    for n in mnet1 mnet2; do on $n -- bash -c 'echo >/proc/sys/net/ipv4/ip_local_reserved_ports'; done
    cp "$MUSTER_DIR/site.before" "$MUSTER_DIR/c/etc/muster.conf"
    echo "got $got"
    [ "$got" = localhost:23007 ]
}

@test "case 043: nodes whose kernels have other ephemeral ports hash alike from a batch script" {
    on mnet2 -- bash -c 'echo 15000 65000 >/proc/sys/net/ipv4/ip_local_port_range'
    for export in ALL NONE; do # a job each: a second step waits for the first one's end on all nodes
        batch_job 60 -N2 -n2 --gres=gpu:1 -o "$MUSTER_DIR/alike.$export" \
            --wrap "srun -Q --export=$export /bin/bash -c 'echo \$NCCL_RAS_ADDR'"
    done
    on mnet2 -- bash -c 'echo 32768 60999 >/proc/sys/net/ipv4/ip_local_port_range'
    for export in ALL NONE; do
        cat "$MUSTER_DIR/alike.$export"
        [ "$(grep -c 'localhost:[23]' "$MUSTER_DIR/alike.$export")" -eq 2 ]
        [ "$(sort -u "$MUSTER_DIR/alike.$export" | wc -l)" -eq 1 ]
    done
}

@test "a step of several nodes passes its RDMA link layers to libmuster, which compares them" {
    run seen MUSTER_PLAN -N2 -n2 --gres=gpu:1
    [[ "$output" == *";fabric=InfiniBand"* ]]
    NCCL_IB_HCA=mlx5_1 run seen MUSTER_PLAN -N2 -n2 --gres=gpu:1
    [[ "$output" != *fabric=* ]]
    run seen MUSTER_PLAN -N1 -n1 --gres=gpu:1
    [[ "$output" == v=1* && "$output" != *fabric=* ]]
}

@test "RDMA devices: one exact list for all tasks of a node, or none" {
    run seen NCCL_IB_HCA -N2 --ntasks-per-node=2 --gres=gpu:2
    echo "$output"
    [ "$(wc -l <<< "$output")" -eq 1 ]
    [[ "$output" =~ ^(unset|=mlx5_[0-9](,mlx5_[0-9])*)$ ]]
}

@test "the GID index is the user's: it is never set, and a value stays" {
    run seen NCCL_IB_GID_INDEX -N2 --ntasks-per-node=2 --gres=gpu:2
    [ "$output" = unset ]
    NCCL_IB_GID_INDEX=3 run seen NCCL_IB_GID_INDEX -N2 --ntasks-per-node=2 --gres=gpu:2
    [ "$output" = 3 ]
    NCCL_IB_GID_INDEX=3 run seen MUSTER_SET -N2 -n2 --gres=gpu:1
    [[ "$output" != *GID_INDEX* ]]
}

@test "one network: NCCL would choose eth0 itself, so nothing is set" {
    run seen NCCL_SOCKET_IFNAME -N2 --ntasks-per-node=2 --gres=gpu:2
    [ "$output" = unset ]
}

bridge_works() { # node
    on "$1" -- ip link show br-0a1b | grep -q 'state UP'
}

@test "case 027: a bridge with the same address on every node is not chosen, eth0 is named exactly" {
    for n in mnet1 mnet2; do
        on $n -- ip link add br-0a1b type bridge
        on $n -- ip addr add 172.18.0.1/16 dev br-0a1b
        on $n -- ip link set br-0a1b up
        on $n -- ip link add v0 type veth peer name v1
        on $n -- ip link set v1 master br-0a1b
        on $n -- ip link set v0 up
        on $n -- ip link set v1 up
    done
    for n in mnet1 mnet2; do wait_for 10 bridge_works $n; done
    run seen NCCL_SOCKET_IFNAME -N2 --ntasks-per-node=2 --gres=gpu:2
    echo "$output"
    [ "$output" = "=eth0" ]
    run timeout 60 srun -N2 -n2 --gres=gpu:1 --muster=verbose true
    [[ "$output" == *"NCCL_SOCKET_IFNAME==eth0: eth0 is the fastest interface whose subnet contains all 2 nodes"* ]]
}

@test "a step on one node gets no network variable and the loopback address" {
    [ "$(seen NCCL_SOCKET_IFNAME -N1 -n2 --gres=gpu:2)" = unset ]
    [ "$(seen MASTER_ADDR -N1 -n2 --gres=gpu:2)" = 127.0.0.1 ]
}

@test "the user's own values stay, and verbose reports them" {
    export NCCL_SOCKET_IFNAME=eth0
    [ "$(seen NCCL_SOCKET_IFNAME -N2 -n2 --gres=gpu:1)" = eth0 ]
    run timeout 60 srun -N2 -n2 --gres=gpu:1 --muster=verbose true
    [[ "$output" == *"NCCL_SOCKET_IFNAME stays eth0 from the environment"* ]]
}

@test "case 099: a MASTER_ADDR that is not rank 0's stays, with one warning; strict refuses it" {
    local value why second
    second=$(on mnet2 -- ip -4 -o addr show eth0 | sed 's/.*inet \([0-9.]*\).*/\1/')
    while IFS='|' read -r value why; do
        # srun would read the rows
        MASTER_ADDR=$value run timeout 60 srun -N2 -n2 --gres=gpu:1 bash -c 'echo "addr=$MASTER_ADDR"' < /dev/null
        echo "$output"
        [ "$(grep -c "addr=$value" <<< "$output")" -eq 2 ]
        [ "$(grep -c "warning: MASTER_ADDR=$value $why" <<< "$output")" -eq 1 ]
        MASTER_ADDR=$value run timeout 60 srun -N2 -n2 --gres=gpu:1 --muster=strict echo ran < /dev/null
        [ "$status" -ne 0 ]
        [[ "$output" == *"MASTER_ADDR=$value $why"* ]]
    done << ROWS
$second|is no address of rank 0's node
mnet2|is no address of rank 0's node
127.0.0.1|is loopback, but the step has several nodes
no-such-name.invalid|does not resolve
|is empty
ROWS
    MASTER_ADDR=mnet1 run timeout 60 srun -N2 -n2 --gres=gpu:1 --muster=verbose true
    [[ "$output" != *"warning: MASTER_ADDR"* ]]
    [[ "$output" == *"MASTER_ADDR stays mnet1 from the environment (Muster would set "* ]]
    MASTER_ADDR=127.0.0.1 run timeout 60 srun -N1 -n1 --gres=gpu:1 true
    [[ "$output" != *"warning: MASTER_ADDR"* ]]
    run timeout 60 srun -N2 -n2 --gres=gpu:1 --muster=verbose true
    [[ "$output" == *"MASTER_ADDR="*": rank 0's node"* ]]
}

@test "case 099: a MASTER_ADDR of another node warns in a step of one node, too" {
    local value own
    own=$(address mnet1)
    for value in "$(address mnet2)" mnet2 192.0.2.1; do
        MASTER_ADDR=$value run timeout 60 srun -w mnet1 -N1 -n2 --gres=gpu:2 bash -c 'echo "addr=$MASTER_ADDR"'
        echo "$output"
        [ "$(grep -c "addr=$value" <<< "$output")" -eq 2 ]
        [ "$(grep -c "warning: MASTER_ADDR=$value is no address of rank 0's node" <<< "$output")" -eq 1 ]
        MASTER_ADDR=$value run timeout 60 srun -w mnet1 -N1 -n2 --gres=gpu:2 --muster=strict echo ran
        [ "$status" -ne 0 ]
        [[ "$output" == *"MASTER_ADDR=$value is no address of rank 0's node"* ]]
    done
    # alone in its step: it may need no rendezvous
    MASTER_ADDR=192.0.2.1 run timeout 60 srun -w mnet1 -N1 -n1 --gres=gpu:1 --muster=strict echo ran
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"warning: MASTER_ADDR=192.0.2.1 is no address of rank 0's node: a training of this task alone "* ]]
    MASTER_ADDR=no-such-name.invalid run timeout 60 srun -w mnet1 -N1 -n1 --gres=gpu:1 --muster=strict echo ran
    [ "$status" -ne 0 ]
    for value in "$own" mnet1 localhost 127.0.0.1; do
        MASTER_ADDR=$value run timeout 60 srun -w mnet1 -N1 -n2 --gres=gpu:2 --muster=strict true
        [ "$status" -eq 0 ]
        [[ "$output" != *"MASTER_ADDR"* ]]
    done
}

@test "one step for each node, whose launchers or numbered tasks meet on another node: no warning" {
    MASTER_ADDR=$(address mnet1) run timeout 60 srun -w mnet2 -N1 -n1 --gres=gpu:2 --muster=strict true
    [ "$status" -eq 0 ]
    [[ "$output" != *"MASTER_ADDR"* ]]
    MASTER_ADDR=$(address mnet1) RANK=1 WORLD_SIZE=2 run timeout 60 srun -w mnet2 -N1 -n1 --gres=gpu:1 --muster=strict true
    [ "$status" -eq 0 ]
    [[ "$output" != *"MASTER_ADDR"* ]]
}

@test "what the user's NCCL_CONF_FILE sets is left to it, with file and line" {
    printf '# mine\nNCCL_SOCKET_IFNAME=eth0\n' >"$MUSTER_DIR/nccl.conf"
    export NCCL_CONF_FILE=$MUSTER_DIR/nccl.conf
    [ "$(seen NCCL_SOCKET_IFNAME -N2 -n2 --gres=gpu:1)" = unset ]
    run timeout 60 srun -N2 -n2 --gres=gpu:1 --muster=verbose true
    [[ "$output" == *"stays eth0 from $MUSTER_DIR/nccl.conf line 2"* ]]
}

@test "nccl=none sets no NCCL variable at all" {
    run timeout 60 srun -Q -N2 -n2 --gres=gpu:1 --muster=nccl=none bash -c 'env | grep -c ^NCCL_ || true'
    [ "$(sort -u <<<"$output")" = 0 ]
}

@test "case 043: the port is reserved where Slurm can; all tasks have the same" {
    run seen MASTER_PORT -N2 --ntasks-per-node=2 --gres=gpu:2 --resv-ports=1
    [ "$(wc -l <<<"$output")" -eq 1 ]
    run timeout 60 srun -Q -N2 --ntasks-per-node=1 --gres=gpu:1 --resv-ports=1 bash -c \
        'echo "$MASTER_PORT ${SLURM_STEP_RESV_PORTS%%[-,]*}"'
    echo "$output"
    [ "$(sort -u <<<"$output" | wc -l)" -eq 1 ]
    [ "${lines[0]% *}" = "${lines[0]#* }" ]
}

@test "ranks of an unmodified PyTorch program connect: gloo, env://, two nodes, eight tasks" {
    /usr/bin/python3 -c "import torch.distributed" 2>/dev/null || skip "no python3-torch"
    meet_program
    run timeout 180 srun -N2 --ntasks-per-node=4 --gres=gpu:4 --export=ALL /usr/bin/python3 "$MUSTER_DIR/meet.py"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c 'of 8 local [0-3] sum 36' <<<"$output")" -eq 8 ]
}

@test "case 099: MASTER_ADDR=\$(hostname) is right where rank 0's node resolves its own name to 127.0.1.1" {
    printf '127.0.0.1 localhost\n127.0.1.1 mnet1\n' >"$MUSTER_DIR/hosts.own"
    on mnet1 -- mount --bind "$MUSTER_DIR/hosts.own" /etc/hosts
    own=$(on mnet1 -- getent ahostsv4 mnet1 | head -n 1) other=$(on mnet2 -- getent ahostsv4 mnet1 | head -n 1)
    strict=$(MASTER_ADDR=mnet1 timeout 60 srun -N2 -n2 --gres=gpu:1 --muster=strict printenv MASTER_ADDR 2>&1 || true)
    MASTER_ADDR=localhost run timeout 60 srun -N2 -n2 --gres=gpu:1 true
    on mnet1 -- umount /etc/hosts
    echo "$own; $other; $strict; $output"
    [[ "$own" = 127.0.1.1* && "$other" != 127.* ]]
    [ "$(grep -cx mnet1 <<<"$strict")" -eq 2 ]
    [[ "$output" == *"warning: MASTER_ADDR=localhost is loopback"* ]]
}

@test "gloo where the nodes' own names resolve to loopback or nothing: it gets the interface, and the ranks connect" {
    [ "$(seen GLOO_SOCKET_IFNAME -N2 -n2 --gres=gpu:1)" = unset ]
    hosts=$(on mnet1 -- cat /etc/hosts) # one file for all nodes
    on mnet1 -- bash -c 'printf "127.0.0.1 localhost\n127.0.1.1 mnet1\n" >/etc/hosts'
    names=$(seen GLOO_SOCKET_IFNAME -N2 -n2 --gres=gpu:1)
    mine=$(GLOO_SOCKET_IFNAME=mine seen GLOO_SOCKET_IFNAME -N2 -n2 --gres=gpu:1)
    off=$(seen GLOO_SOCKET_IFNAME -N2 -n2 --gres=gpu:1 --muster=rdzv=none)
    one=$(seen GLOO_SOCKET_IFNAME -N1 -n2 --gres=gpu:2)
    why=$(timeout 60 srun -N2 -n2 --gres=gpu:1 --muster=verbose true 2>&1)
    met=8
    if /usr/bin/python3 -c "import torch.distributed" 2>/dev/null; then
        meet_program
        met=$(timeout 180 srun -N2 --ntasks-per-node=4 --gres=gpu:4 /usr/bin/python3 "$MUSTER_DIR/meet.py" | grep -c 'of 8 local [0-3] sum 36')
    fi
    on mnet1 -- bash -c 'echo "$1" >/etc/hosts' bash "$hosts"
    echo "$names; $mine; $off; $one; $met; $why"
    [ "$names" = eth0 ]
    [ "$mine" = mine ]
    [ "$off" = unset ]
    [ "$one" = unset ]
    [[ "$why" == *"GLOO_SOCKET_IFNAME=eth0: gloo uses the address of the node's own name, and mnet1 resolves to 127.0.1.1"* ]]
    [[ "$why" == *"and mnet2 resolves to no address of this node"* ]]
    [ "$met" -eq 8 ]
}

@test "--export=NONE: the variables of the contract are there all the same" {
    run timeout 60 srun -Q --export=NONE -N2 --ntasks-per-node=2 --gres=gpu:2 /bin/bash -c \
        'echo "$RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT"'
    [ "$(awk '{ print $2, $3, $4 }' <<<"$output" | sort -u | wc -l)" -eq 1 ]
    [ "$(awk '{ print $1 }' <<<"$output" | sort | tr '\n' ' ')" = "0 1 2 3 " ]
}

@test "topo=FILE: checked, copied, the same bytes for every task, gone with the step" {
    "$build/muster" topo --topology "$MUSTER_DIR/machine/turin-nps4-4xh200-nvml.xml" --format nccl-xml \
        >"$MUSTER_DIR/topo.xml"
    run timeout 60 srun -Q -N1 -n4 --gres=gpu:4 --muster=topo="$MUSTER_DIR/topo.xml" bash -c \
        'echo "$NCCL_TOPO_FILE $(md5sum <"$NCCL_TOPO_FILE")"; ls -l "$NCCL_TOPO_FILE" >/dev/null'
    echo "$output"
    [ "$(sort -u <<<"$output" | wc -l)" -eq 1 ]
    [ "$(cut -d' ' -f2 <<<"${lines[0]}")" = "$(md5sum <"$MUSTER_DIR/topo.xml" | cut -d' ' -f1)" ]
    [ "${lines[0]%% *}" != "$MUSTER_DIR/topo.xml" ]
    wait_for 10 test ! -e "$(dirname "${lines[0]%% *}")"
}

@test "topo=FILE that NCCL cannot parse: not set, and the line is named" {
    printf '<?xml version="1.0"?>\n<system version="1"></system>\n' >"$MUSTER_DIR/bad.xml"
    run timeout 60 srun -N1 -n1 --gres=gpu:1 --muster=topo="$MUSTER_DIR/bad.xml" bash -c 'echo "${NCCL_TOPO_FILE-unset}"'
    echo "$output"
    [[ "$output" == *"NCCL_TOPO_FILE is not set: $MUSTER_DIR/bad.xml fails the check"*"line 1"* ]]
    [[ "$output" == *unset* ]]
    run timeout 60 srun -N1 -n1 --gres=gpu:1 --muster=topo=/nonexistent.xml bash -c 'echo "${NCCL_TOPO_FILE-unset}"'
    [[ "$output" == *"/nonexistent.xml: No such file"*unset* ]]
}

@test "topo=FILE in a dry run: checked like in a step, and not copied" {
    "$build/muster" topo --topology "$MUSTER_DIR/machine/turin-nps4-4xh200-nvml.xml" --format nccl-xml >"$MUSTER_DIR/dry.xml"
    run timeout 60 srun -N1 -n1 --gres=gpu:1 --muster=dry-run,topo="$MUSTER_DIR/dry.xml" true
    echo "$output"
    [[ "$output" == *"NCCL_TOPO_FILE=$MUSTER_DIR/dry.xml: topo= names it"* ]]
    sed -i '1s/^/<?xml version="1.0"?>/' "$MUSTER_DIR/dry.xml"
    run timeout 60 srun -N1 -n1 --gres=gpu:1 --muster=dry-run,topo="$MUSTER_DIR/dry.xml" true
    echo "$output"
    [[ "$output" == *"NCCL_TOPO_FILE is not set: $MUSTER_DIR/dry.xml fails the check"*"line 1"* ]]
}

@test "topo=FILE never wins over the user's own NCCL_TOPO_FILE" {
    export NCCL_TOPO_FILE=/mine.xml
    run timeout 60 srun -Q -N1 -n1 --gres=gpu:1 --muster=topo="$MUSTER_DIR/topo.xml" bash -c 'echo "$NCCL_TOPO_FILE"'
    [ "$output" = /mine.xml ]
    [ -z "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'muster.*.*.*' -newer "$MUSTER_DIR/topo.xml")" ]
}
