#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# The jobscripts that quickstart does not run, as users submit them, with the example site file.

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    export MUSTER_DIR
    MUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/mjobs.XXXXXX")
    local netns=()
    # Names of nodes mean something only where each node has a network of its own.
    [ "$(id -u)" -ne 0 ] || netns=(--netns)
    "$top/tests/slurm/cluster" up "${netns[@]}" --dir "$MUSTER_DIR/c" --nodes 2 --gpus 4 --cpus 4 --fake-pci \
        --site-file "$top/jobscripts/site/muster.conf" --plugin "$build/.libs/muster.so" > "$MUSTER_DIR/env"
}

setup() {
    eval "$(cat "$MUSTER_DIR/env")"
    export PATH=$build:$PATH MUSTER_LIBEXEC=$build
    cd "$BATS_TEST_TMPDIR" || return 1
}

# Submit a script, wait for its end, show its output.
submit() { # script [options of sbatch]
    local id
    id=$(sbatch --parsable --cpus-per-task=1 "${@:2}" "$top/jobscripts/$1") || return 1
    job_ends 330 "$id" || true
    cat ./*-"$id".out
    job_is "$id" COMPLETED
}

@test "03_multi_node.sh: eight ranks on two nodes, a placement table from each node" {
    EPOCHS=1 run submit 03_multi_node.sh
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output =~ World\ size:\ +8\ ranks\ on\ 2\ nodes ]]
    [[ $output = *"muster: n1: step "* ]]
    [[ $output = *"muster: n2: step "* ]]
    [ "$(grep -cE '^RANK: [0-7] \| node n[12], local rank [0-3] of 4' <<< "$output")" -eq 8 ]
    [ "$(sed -n 's/.* weights \([0-9a-f]*\).*/\1/p' <<< "$output" | sort -u | wc -l)" -eq 1 ]
    [ -s "$(echo multi_node-*.json)" ]
}

@test "04_pytorch.sh: plain srun, and the variables that init_process_group reads bring all together" {
    [ "$(id -u)" -eq 0 ] || skip "nodes with names that resolve need root (--netns)"
    cat > meet.py <<'PY'
import os, socket, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
local = int(os.environ["LOCAL_RANK"])
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    listener = socket.create_server(where, backlog=world)
    listener.settimeout(60)
    seen = [0]
    for _ in range(world - 1):
        peer, _ = listener.accept()
        seen.append(int(peer.makefile().readline()))
    print("met", sorted(seen), flush=True)
else:
    for attempt in range(600):
        try:
            socket.create_connection(where, 5).sendall(b"%d\n" % rank)
            break
        except OSError:
            time.sleep(0.1)
print("preload", os.path.basename(os.environ.get("LD_PRELOAD", "none")), os.environ.get("MUSTER_NCCL", "none"), flush=True)

class cuda: # as torch.cuda: device i is the i-th visible GPU, in PCI order
    visible = [int(gpu) for gpu in os.environ["CUDA_VISIBLE_DEVICES"].split(",")]
    device_count = staticmethod(lambda: len(cuda.visible))
    def set_device(device):
        if not 0 <= device < cuda.device_count():
            raise RuntimeError("CUDA error: invalid device ordinal")
        cuda.current = cuda.visible[device]

planned = int(os.environ["MUSTER_PLAN"].split(";gpus=0000:e")[1][0]) - 1 # GPU i of --fake-pci is at e(i+1)
def use(name, device): # a program that calls its GPU so
    try:
        cuda.set_device(device)
        print(name, "is the planned GPU" if cuda.current == planned else "is GPU %d, not %d" % (cuda.current, planned), flush=True)
    except RuntimeError as err:
        print("%s: %s" % (name, err), flush=True)
assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
print("rank %d of %d has GPU %d of its node" % (rank, world, planned), flush=True)
if local > 0:
    use("cuda:0", 0)
    use("cuda:LOCAL_RANK", local)
use("the remainder", local % cuda.device_count())
PY
    TRAIN="meet.py --unused" run submit 04_pytorch.sh
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"met [0, 1, 2, 3, 4, 5, 6, 7]"* ]]
    [ "$(grep -c '^preload none none$' <<< "$output")" -eq 8 ]
    [ "$(grep -oE '^rank [0-7] of 8 has GPU [0-3] of its node' <<< "$output" | sort | cut -d' ' -f 7 | tr -d '\n')" = 01230123 ]
    # cuda:LOCAL_RANK, as tutorials write it, is the process's own, and cuda:0 that of the node's first rank
    [ "$(grep -cx 'cuda:LOCAL_RANK is the planned GPU' <<< "$output")" -eq 6 ]
    [ "$(grep -cE '^cuda:0 is GPU 0, not [1-3]$' <<< "$output")" -eq 6 ]
    [ "$(grep -cx 'the remainder is the planned GPU' <<< "$output")" -eq 8 ]

    # A request per task: the one visible GPU is cuda:0, and the remainder finds it.
    ACCELERATE=yes TRAIN="meet.py --unused" run submit 04_pytorch.sh --gpu-bind=single:1
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c '^preload libmuster-nccl.so on$' <<< "$output")" -eq 8 ]
    [[ $output = *"met [0, 1, 2, 3, 4, 5, 6, 7]"* ]]
    [ "$(grep -cx 'cuda:0 is the planned GPU' <<< "$output")" -eq 6 ]
    [ "$(grep -cx 'cuda:LOCAL_RANK: CUDA error: invalid device ordinal' <<< "$output")" -eq 6 ]
    [ "$(grep -cx 'the remainder is the planned GPU' <<< "$output")" -eq 8 ]
}

@test "06_bandwidth.sh: each pair of ranks is measured, then the training runs; where a pair is slow it does not" {
    # The ranks share cores: a factor that the links themselves never reach.
    PAIRS="--host --max 64K --batches 3 --slow 1000" EPOCHS=1 run submit 06_bandwidth.sh
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"# inside a node: 24 pairs, one way "* ]]
    [[ $output = *"# between nodes: 32 pairs, one way "* ]]
    [[ $output =~ World\ size:\ +8\ ranks\ on\ 2\ nodes ]]
    [ -s "$(echo bandwidth-*.json)" ]
    PAIRS="--host --max 64K --batches 1 --rating 1000000" EPOCHS=1 run submit 06_bandwidth.sh
    echo "$output"
    [ "$status" -ne 0 ]
    [[ $output = *"# slow from rank "*" GB/s, where the link is rated 1000000.00 GB/s"* ]]
    [[ $output = *"the training does not start: the check of the links ended with status 1; "* ]]
    [[ $output != *"World size"* ]]
}

@test "07_profile.sh: a program runs with the profiler, and its steps and collectives are reported" {
    PYTHON=muster-train TRAIN="--steps 60 --samples 2000 --test-samples 100" run submit 07_profile.sh
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"4 processes, "* ]]
    [[ $output =~ steps:\ [0-9]+\ of\ 2\ collectives,\ median ]]
    [[ $output = *"communicator "*" libmuster: 4 ranks on 1 node"* ]]
    [ "$(find ledgers-*/ -name '*-rank[0-3]-n1-*.ledger' | wc -l)" -eq 4 ]
    grep -q '<h2>Findings</h2>' profile-*.html
}

@test "08_compare.sh: the same work on one, two and four ranks, and the table of their speedup" {
    EPOCHS=1 run submit 08_compare.sh
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"SPEEDUP ANALYSIS"* ]]
    [ "$(find . -name 'compare-*-[124].json' | wc -l)" -eq 3 ]
    [ "$(grep -c 'Parallel efficiency' <<< "$output")" -ge 2 ]
}
