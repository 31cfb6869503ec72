#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# muster.torch: PyTorch's DDP and collectives on libmuster, on this node by muster run. Debian 12 has
# PyTorch 1.13, which gets one sentence.
# shellcheck disable=SC2154,SC2030,SC2031 # common.bash sets muster and top; each test runs in a process
load common

build=${MUSTER_BUILDDIR:-$top/build}
python=${MUSTER_PYTHON:-/usr/bin/python3}  # another PyTorch to test with

setup_file() {
    torch_release=$("$python" -c "import torch, torch.distributed; print(torch.__version__)" 2> /dev/null) || true
    export torch_release # empty: there is none
}

setup() {
    [ -n "$torch_release" ] || skip "no python3-torch"
    # Debian's PyTorch lacks libuv.
    export PYTHONPATH=$top/runtime/python LD_LIBRARY_PATH=$build/.libs USE_LIBUV=0 OMP_NUM_THREADS=1
    export PYTHONWARNINGS=ignore PYTHONDONTWRITEBYTECODE=1 MUSTER_INIT_TIMEOUT=60 MUSTER_TIMEOUT=60
}

new() { # needs PyTorch 2.1
    [ "$(printf '2.1\n%s\n' "$torch_release" | sort -V | head -n 1)" = 2.1 ] || skip "python3-torch is $torch_release"
}

ranks() { # number, program of this folder, arguments
    local n=$1 program=$2
    shift 2
    run timeout 120 "$muster" run -n "$n" "$python" "$BATS_TEST_DIRNAME/$program" "$@"
    echo "$output"
}

fails() { # case, exit status of muster run, parts of the output
    local part
    ranks 2 torch_failures.py "$1"
    [ "$status" -eq "$2" ]
    shift 2
    for part in "$@"; do has "$output" "$part"; done
    [[ $output != *"not refused"* ]]
}

wrapped() { # wrapper of torch_wrappers.py
    new
    ranks 2 torch_wrappers.py "$1"
    [ "$status" -eq 0 ]
    [[ $output != *"skip: "* ]] || skip "$(grep -m 1 -o 'skip: .*' <<< "$output" | cut -c 7-)"
    [ "$(grep -c ': as one process$' <<< "$output")" -eq 2 ]
}

@test "PyTorch before 2.1 gets one sentence" {
    run "$python" -c 'import torch, sys
if not torch.__version__.startswith("1."): torch.__version__ = "2.0.1"
import muster
try:
    import muster.torch
except muster.Error as error:
    sys.exit(str(error))'
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" =~ ^"muster.torch needs PyTorch 2.1 or newer, but this is "[12].*": install a newer one"$ ]]
}

@test "importing it does not load PyTorch's compiler" {
    new
    run "$python" -c 'import sys, muster.torch; sys.exit("torch._dynamo" in sys.modules)'
    [ "$status" -eq 0 ]
}

@test "awkward models train as over gloo, bit for bit at two ranks" {
    new
    ranks 2 torch_models.py
    [ "$status" -eq 0 ]
    [ "$(grep -c ': equal$' <<< "$output")" -eq "$(grep -c '^    ("' "$BATS_TEST_DIRNAME/torch_models.py")" ]
}

@test "awkward models train as over gloo to 1e-6 at three ranks" {
    new
    ranks 3 torch_models.py
    [ "$status" -eq 0 ]
    [ "$(grep -c ': equal$' <<< "$output")" -ge 13 ]
}

@test "a store without check, as in PyTorch 2.1" {
    new
    fails store 0 "rank 0 has begun" "rank 1 has begun"
}

@test "each collective gives what it must: dtypes, views, unequal sizes, messages, groups, memory" {
    new
    for n in 1 3; do
        ranks "$n" torch_collectives.py
        [ "$status" -eq 0 ]
        [ "$(grep -c '^rank .: done$' <<< "$output")" -eq "$n" ]
    done
}

@test "a dtype, a device, a layout or an operation that is not supported: one sentence, status 10" {
    new
    fails arguments 10 "status 10: muster.torch: all_reduce cannot reduce torch.float8_e4m3fn: convert it to float32" \
        "status 10: muster.torch: all_reduce got a tensor on device meta: pass one on cpu or cuda" \
        "status 10: muster.torch: broadcast got a tensor that is torch.sparse_coo" \
        "status 10: muster.torch: all_reduce got PRODUCT: use SUM, AVG, MIN or MAX" \
        "status 10: muster.torch: recv takes the rank of the sender" \
        "muster.library.Error: muster.torch: all_reduce cannot reduce torch.bool"
}

@test "where GPUs are, the first tensors in each memory open a world; a second GPU gets one sentence" {
    new
    MUSTER_INIT_TIMEOUT=1 fails gpus 0 "host and GPU are open: [[False, False], [True, False]], objects: ['rank 0', 'rank 1']" \
        "status 10: muster.torch: a tensor is on cuda:0, but the first one was on cuda:1: use one GPU in each process"
}

@test "an all-reduce of a GPU's tensor: on a stream of its own, one event, no callback" {
    new
    run timeout 60 "$python" "$BATS_TEST_DIRNAME/torch_gpu_calls.py"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(head -n -1 <<< "$output")" = "the allocator keeps the memory for the side stream
side stream waits for the caller's
all-reduce on the side stream
the future is behind the side stream" ]
    [[ ${lines[4]} == "1 event, "* ]]
}

@test "calls that a backward pass starts on a GPU: one thread makes them, a failure is raised at the pass's end" {
    new
    run timeout 60 "$python" "$BATS_TEST_DIRNAME/torch_passes.py"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c '^ok' <<< "$output")" -eq 11 ]
    [ "$(grep -c '^not ok' <<< "$output")" -eq 0 ]
}

@test "MUSTER_SINGLE=1 where PyTorch has two ranks, and MUSTER_ELASTIC, are refused" {
    new
    MUSTER_SINGLE=1 fails none 11 "MUSTER_SINGLE=1 asks for a world of one rank, but muster_options.exchange has rank" "of 2"
    fails elastic 10 "a process group of PyTorch cannot go on with fewer ranks: unset MUSTER_ELASTIC"
}

@test "counts that differ are named by both ranks, and the program may catch it" {
    new
    fails caught 3 "status 12: " "rank 0 has begun" "rank 1 has begun"
}

@test "a rank that dies: muster.Error names it, output is flushed, the status is libmuster's" {
    new
    fails dies 137 "rank 0 has begun" "muster.library.Error: rank 1 (node "
    fails backward 137 "rank 0 has begun" "rank 1 (node "
}

@test "what PyTorch leaves silent is named: uneven inputs, models that differ" {
    new
    ranks 2 torch_failures.py uneven
    [ "$status" -eq 12 ]
    grep -E 'rank 0 \(node .*\) calls all-reduce of 72 f32.* rank 1 \(node|rank 1 \(node .*rank 0 \(node .* all-reduce of 72 f32' \
        <<< "$output"
    fails models 12 "the models differ: rank 0 has parameter 1.weight: shape [8, 8], torch.float32, but rank 1 has" \
        "torch.float32, frozen"
    fails silent 12 "f32" "f64"
}

@test "embeddings by row train as over gloo, untied ones bit for bit at two ranks" {
    new
    local n way
    for way in "2 host" "3 host" "2 gathered" "3 gathered"; do # gathered: what GPUs use, in host memory
        read -r n way <<< "$way"
        ranks "$n" torch_rows.py "$way"
        [ "$status" -eq 0 ]
        [ "$(grep -c ': as it must$' <<< "$output")" -eq "$(grep -c '^    ("' "$BATS_TEST_DIRNAME/torch_rows.py")" ]
    done
}

@test "embeddings by row: what cannot be gets one sentence" {
    new
    fails rows 10 "status 10: muster.torch: send_rows needs backend muster, but DDP has gloo" \
        "muster.torch: send_rows does not work with torch._dynamo.config.optimize_ddp = 'python_reducer': leave one" \
        "warning: muster.torch: send_rows got a part of the model, so 0.0.weight stays dense: pass the model that DDP gets" \
        "muster.library.Error: muster.torch: send_rows does not work inside Join: leave one of them out"
}

@test "DataParallel trains awkward models as DDP over gloo, bit for bit at two ranks" {
    new
    ranks 2 torch_buckets.py gloo
    [ "$status" -eq 0 ]
    [ "$(grep -c ': equal$' <<< "$output")" -eq "$(grep -c '^    ("' "$BATS_TEST_DIRNAME/torch_buckets.py")" ]
}

@test "DataParallel: the pass's stream waits for side streams, and the program's for that" {
    new
    ranks 1 torch_bucket_streams.py
    [ "$status" -eq 0 ]
    [ "$(grep -E ' waits for | on ' <<< "$output")" = "zeroed on the pass's
the pass's waits for side
side waits for the pass's" ]
}

@test "DataParallel: what cannot be gets one sentence" {
    new
    fails buckets 0 \
        "status 10: muster.torch: DataParallel got a module without a parameter that requires a gradient: use the module" \
        "status 10: muster.torch: DataParallel with parameter 1.weight got a tensor on device meta: pass one on cpu or cuda" \
        "status 10: muster.torch: parameter weight is torch.complex64: use float32, float64, float16 or bfloat16" \
        "status 10: muster.torch: parameter weight is not dense in memory: make it contiguous" \
        "status 10: muster.torch: DataParallel got a module of send_rows, which is for DDP: leave send_rows out" \
        "status 12: the models differ: rank 0 has parameter bias: shape [8], torch.float32, but rank 1 has parameter bias" \
        "status 10: muster.torch: a process group of PyTorch cannot go on with fewer ranks: unset MUSTER_ELASTIC" \
        "status 10: muster.torch: parameter weight is in a DataParallel already: use that one" \
        "status 10: muster.torch: DataParallel cannot be copied or saved: copy its module, or save its state_dict" \
        "status 10: muster.torch: DataParallel does not work inside Join: give all ranks as many batches, or use" \
        "status 10: muster.torch: the gradient of layer.bias became ready twice in a backward pass: pass use_reentrant=False" \
        "status 10: muster.torch: a backward pass was broken off, with a part of its gradients exchanged: end the program"
}

@test "DataParallel: a rank that dies, or has fewer batches, is named by the backward pass" {
    new
    fails bucket_dies 137 "rank 0 has begun" "status 13: rank 1 (node " "muster.library.Error: rank 1 (node "
    ranks 2 torch_failures.py bucket_uneven
    [ "$status" -eq 12 ]
    has "$output" "muster.library.Error: rank 0 (node "
    has "$output" "calls muster_finalize: all ranks must take the same number of steps"
}

@test "torchrun starts it" {
    new
    run timeout 120 "$python" -m torch.distributed.run --standalone --nproc-per-node 2 \
        "$BATS_TEST_DIRNAME/torch_wrappers.py" ddp
    echo "$output"
    [[ $output != *"without libuv support"* ]] || skip "this PyTorch cannot run torchrun: it has no libuv"
    [ "$status" -eq 0 ]
    [ "$(grep -c ': as one process$' <<< "$output")" -eq 2 ]
}

@test "a compiled model" { wrapped compiled; }
@test "FSDP" { wrapped fsdp; }
@test "Accelerate" { wrapped accelerate; }
@test "Trainer of transformers" { wrapped trainer; }
@test "Lightning" { wrapped lightning; }

@test "a rank that raises: the others get its name" {
    new
    fails raises 1 "ValueError: a mistake of the program" "rank 1 (node "
}

@test "a checkpoint continues bit for bit, and in another world with the samples that are left" {
    new
    local whole second
    ranks 2 torch_state.py "$BATS_TEST_TMPDIR/none" 0 6
    [ "$status" -eq 0 ]
    has "$output" "no checkpoint, and no change"
    whole=$(grep '^weights' <<< "$output")
    ranks 2 torch_state.py "$BATS_TEST_TMPDIR/saved" 0 3 save
    [ "$status" -eq 0 ]
    ranks 2 torch_state.py "$BATS_TEST_TMPDIR/saved" 3 6
    [ "$status" -eq 0 ]
    [ "$(grep '^weights' <<< "$output" | cut -d' ' -f1-4)" = "$(cut -d' ' -f1-4 <<< "$whole")" ]
    second=$(grep -o 'samples .*' <<< "$output")
    ranks 3 torch_state.py "$BATS_TEST_TMPDIR/saved" 3 6
    [ "$status" -eq 0 ]
    [ "$(grep -o 'samples .*' <<< "$output")" = "$second" ]
}
