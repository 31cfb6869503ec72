#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# A GPU binding on srun's own command line: srun is started anew, once, with the neutral request and
# the binding as Muster's. Device cgroups are on: who may open which GPU, how often srun started, and
# whether anything else of srun changed. neighbour.c is a second plugin, which counts.
# Releases from 23.11.4 on need no restart, unless --gres-flags is on the line too: it is, there.

# Options are words, the task's shell expands some of them, and each test is a subshell.
# shellcheck disable=SC2086,SC2016,SC2002,SC2030,SC2031

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    need_cgroups devices
    command -v cc > /dev/null || skip "no C compiler"
    four_gpus_on_two_cpus mre
    write_site
    cat > "$MUSTER_DIR/show" <<'SHOW'
#!/bin/bash
# The task, CUDA_VISIBLE_DEVICES, the GPUs it may open, and its words.
opens=''
for f in "$MUSTER_DIR/c/dev/$SLURMD_NODENAME"/gpu*; do
    { : < "$f"; } 2>&1 | grep -q 'not permitted' || opens=$opens${f##*gpu}
done
echo "$SLURM_PROCID visible=${CUDA_VISIBLE_DEVICES-unset} opens=$opens${*:+ $*}"
SHOW
    cat > "$MUSTER_DIR/inherited" <<'SHOW'
#!/bin/bash
# What this process has from its parent; names that differ from step to step are left out.
grep -E '^Sig(Blk|Ign)' /proc/self/status
ulimit -a
umask
pwd
for f in /proc/$$/fd/*; do [ "${f##*/}" = 255 ] || readlink "$f"; done | sed 's/:\[.*//; s/[0-9][0-9]*/N/g' | sort
env | grep -vE '^(MASTER_PORT|MUSTER_SET|NCCL_RAS_ADDR|NEIGHBOUR_FILE|SLURM_[A-Z_]*(JOB_?ID|PORT|REQUEST|PID|STEPID|STEP_ID|TIME|SLUID|SERVED|SEED|TOKEN)|MUSTER_TOKEN)=' | sort
SHOW
    chmod +x "$MUSTER_DIR/show" "$MUSTER_DIR/inherited"
    cc -shared -fPIC -D_GNU_SOURCE -o "$MUSTER_DIR/neighbour.so" "$BATS_TEST_DIRNAME/neighbour.c"
    plugin_cluster --prefix mre --nodes 2 --gpus 4,2 --constrain
    eval "$(cat "$MUSTER_DIR/env")"
    cp "$MUSTER_DIR/c/etc/plugstack.conf" "$MUSTER_DIR/muster.line"
    write_stack
    srun --help | grep -q tres-bind && touch "$MUSTER_DIR/tres-bind"
    srun --version | sed 's/[^0-9]*\([0-9]*\)\.\([0-9]*\).*/\1\2/' > "$MUSTER_DIR/release"
    true
}

# Each test begins with this site file and this order of plugins.
write_site() { # further lines
    cat > "$MUSTER_DIR/site.conf" <<CONF
[defaults]
topology = $MUSTER_DIR/machine.xml
topo = none
mem = none
[node mre1]
devices = $MUSTER_DIR/c/dev/mre1/gpu
[node mre2]
devices = $MUSTER_DIR/c/dev/mre2/gpu
CONF
    printf '%s\n' "$@" >> "$MUSTER_DIR/site.conf"
}

use_site() { write_site "$@" && cp "$MUSTER_DIR/site.conf" "$MUSTER_DIR/c/etc/muster.conf"; }

write_stack() { # words of the neighbour, which comes first
    { echo "required $MUSTER_DIR/neighbour.so $*"; cat "$MUSTER_DIR/muster.line"; } > "$MUSTER_DIR/c/etc/plugstack.conf"
}

setup() {
    eval "$(cat "$MUSTER_DIR/env")"
    export NEIGHBOUR_FILE=$MUSTER_DIR/count
    rm -f "$NEIGHBOUR_FILE" "$MUSTER_DIR/err"
    use_site
    flags=''
    newer && flags=--gres-flags=disable-binding
    bind="--gres=gpu:2 ${flags:+$flags }--gpu-bind=single:1"
    true
}

newer() { [ -e "$MUSTER_DIR/tres-bind" ]; }

release() { cat "$MUSTER_DIR/release"; } # 22.05.8: 2205

# Standard error goes to a file, so that the output is that of the tasks.
direct() { # srun option...
    timeout 60 srun -Q -w mre1 "$@" < /dev/null 2> "$MUSTER_DIR/err" | sort
}

count() { # hook: how often it was called in an srun
    grep -c "^$1 " "$NEIGHBOUR_FILE" 2> /dev/null || true
}

# srun was started anew so often, and each time was the same process.
restarts() { # number of sruns, number of restarts among them
    local bad=0
    [ "$(count init)" -eq $(($1 + $2)) ] || bad=1
    [ "$(sort -u -k2,2 "$NEIGHBOUR_FILE" | wc -l)" -eq "$1" ] || bad=1
    [ $bad -eq 0 ] || { echo "want $1 sruns, $2 restarts:"; cat "$NEIGHBOUR_FILE" "$MUSTER_DIR/err"; return 1; }
}

tasks_are() { # GPU of task 0, of task 1, those that each may open
    local want
    want=$(printf '%s\n' "0 visible=$1 opens=$3" "1 visible=$2 opens=$3")
    [ "$output" = "$want" ] || {
        printf 'got:  %s\nwant: %s\n' "$output" "$want"
        cat "$MUSTER_DIR/err"
        return 1
    }
}

warned() { grep -c 'hides the step.s other GPUs' "$MUSTER_DIR/err" || true; }

# options | GPU of task 0 | of task 1 | those of the step
forms() {
    cat <<'FORMS'
--gres=gpu:2 --gpu-bind=single:1|0|1|01
--gres=gpu:2 --gpu-bind=per_task:1|0|1|01
--gres=gpu:4 --gpu-bind=map_gpu:3,2|3|2|0123
--gres=gpu:4 --gpu-bind=mask_gpu:0x8,0x4|3|2|0123
--gres=gpu:4 --gpu-bind=closest|0,1|2,3|0123
--gres=gpu:2 --gpu-bind=verbose,single:1|0|1|01
--gres gpu:2 --gpu-bind single:1|0|1|01
--gres=gpu:2 --gpu-b=map_gpu:1,0|1|0|01
--gpu-bind=none --gres=gpu:2 --gpu-bind=single:1|0|1|01
--gpus-per-task=1 --gpu-bind=single:1|0|1|01
--gres=gpu:2 --ntasks-per-gpu=1 --gpu-bind=map_gpu:1,0|1|0|01
--gres=gpu:2 --image x --novelty -lK --gpu-bind=single:1 --label|0|1|01
FORMS
    newer || return 0
    cat <<'FORMS'
--gres=gpu:4 --gpu-bind=map:3,2|3|2|0123
--gres=gpu:4 --gpu-bind=mask:0x8,0x4|3|2|0123
--gres=gpu:2 --tres-bind=gres/gpu:single:1|0|1|01
--gres=gpu:2 --tres-bind gres/gpu:single:1|0|1|01
--tres-per-task=gres/gpu:1 --gpu-bind=single:1|0|1|01
FORMS
}

each_form() { # function, called with: GPU 0, GPU 1, GPUs of the step, option...
    local options a b all bad=0 n=0
    while IFS='|' read -r options a b all; do
        rm -f "$NEIGHBOUR_FILE"
        "$1" "$a" "$b" "$all" $flags $options || { echo "form: $options"; bad=1; }
        n=$((n + 1))
    done < <(forms)
    [ $n -eq "$(forms | wc -l)" ] && return $bad
}

direct_form() {
    run direct -n2 "${@:4}" "$MUSTER_DIR/show"
    output=${output//[01]: /} # --label
    tasks_are "$1" "$2" "$3" && restarts 1 1 && [ "$(warned)" -eq 0 ]
}

@test "every form of a direct srun is started anew once: its own GPU is visible, all can be opened" {
    each_form direct_form
}

salloc_form() {
    run bash -c 'timeout 60 salloc -Q -w mre1 -n2 --gres=gpu:4 srun -Q -n2 "$@" 2> "$MUSTER_DIR/err" < /dev/null | sort' \
        bash "${@:4}" "$MUSTER_DIR/show"
    output=${output//[01]: /}
    tasks_are "$1" "$2" "$3" && restarts 1 1 && [ "$(warned)" -eq 0 ]
}

@test "every form inside salloc" {
    each_form salloc_form
}

# All forms in one batch job; each with its count of starts.
@test "every form inside sbatch" {
    local options a b all n=0
    echo '#!/bin/bash' > "$MUSTER_DIR/job"
    while IFS='|' read -r options a b all; do
        n=$((n + 1))
        echo "NEIGHBOUR_FILE=$MUSTER_DIR/count.$n srun -Q -n2 $flags $options $MUSTER_DIR/show < /dev/null | sed 's/^[01]: //' | sort > $MUSTER_DIR/out.$n" >> "$MUSTER_DIR/job"
        printf '%s\n' "0 visible=$a opens=$all" "1 visible=$b opens=$all" > "$MUSTER_DIR/want.$n"
    done < <(forms)
    batch_job 120 -w mre1 -n2 --gres=gpu:4 -o "$MUSTER_DIR/batch.out" -e "$MUSTER_DIR/err" "$MUSTER_DIR/job"
    [ "$(warned)" -eq 0 ]
    [ $n -ge 12 ]
    while [ $n -gt 0 ]; do
        diff "$MUSTER_DIR/want.$n" "$MUSTER_DIR/out.$n" || { echo "form $n"; cat "$MUSTER_DIR/err"; return 1; }
        [ "$(grep -c '^init' "$MUSTER_DIR/count.$n")" -eq 2 ]
        n=$((n - 1))
    done
}

@test "nested in a step: the inner srun is started anew, by its own binding" {
    run direct -n1 -c2 --gres=gpu:4 bash -c \
        "unset \${!SLURM_CPU_BIND*}; srun -Q --overlap -n2 -c1 --gres=gpu:4 $flags --gpu-bind=map_gpu:3,2 $MUSTER_DIR/show"
    tasks_are 3 2 0123
    restarts 2 1
}

@test "an outer srun that was started anew does not keep an inner one from it" {
    run direct -n1 -c2 $bind bash -c \
        "unset \${!SLURM_CPU_BIND*}; srun -Q --overlap -n2 -c1 --gres=gpu:2 $flags --gpu-bind=map_gpu:1,0 $MUSTER_DIR/show"
    tasks_are 1 0 01
    restarts 2 2
}

@test "two steps side by side: each narrows among its own GPUs" {
    cat > "$MUSTER_DIR/job" <<JOB
#!/bin/bash
srun -Q -n1 --exact $bind bash -c 'touch \$MUSTER_DIR/first; sleep 20' &
for _ in \$(seq 100); do [ -e \$MUSTER_DIR/first ] && break; sleep 0.1; done
srun -Q -n1 --exact $bind \$MUSTER_DIR/show
kill %1
wait
JOB
    batch_job 60 -w mre1 -n2 --gres=gpu:4 -o "$MUSTER_DIR/out" -e "$MUSTER_DIR/err" "$MUSTER_DIR/job"
    [ "$(cat "$MUSTER_DIR/out")" = "0 visible=0 opens=23" ]
    restarts 2 2
}

@test "bindings that come from counts or from the environment need no restart" {
    for options in --gpus-per-task=1 "--gres=gpu:2 --ntasks-per-gpu=1"; do
        run direct -n2 $options "$MUSTER_DIR/show"
        tasks_are 0 1 01
        [ "$(warned)" -eq 0 ]
    done
    SLURM_GPU_BIND=single:1 run direct -n2 --gres=gpu:2 "$MUSTER_DIR/show"
    tasks_are 0 1 01
    SLURM_GPU_BIND=verbose,map_gpu:1,0 run direct -n2 --gres=gpu:2 "$MUSTER_DIR/show"
    tasks_are 1 0 01
    SLURM_GPUS_PER_TASK=1 run direct -n2 "$MUSTER_DIR/show"
    tasks_are 0 1 01
    SLURM_NTASKS_PER_GPU=1 run direct -n2 --gres=gpu:2 "$MUSTER_DIR/show"
    tasks_are 0 1 01
    restarts 6 0
    if newer; then
        SLURM_TRES_BIND=gres/gpu:single:1 run direct -n2 --gres=gpu:2 "$MUSTER_DIR/show"
        tasks_are 0 1 01
        run direct -n2 --tres-per-task=gres/gpu:1 "$MUSTER_DIR/show"
        tasks_are 0 1 01
        run direct -n2 --gres=gpu:2 --gpu-bind=single:1 "$MUSTER_DIR/show" # without --gres-flags
        tasks_are 0 1 01
        restarts 9 0
    fi
}

# options | restarts | GPUs that the step may open: 0 and 1 are of one type, 2 and 3 of another
typed_forms() {
    cat <<'FORMS'
--gpus-per-task=a100:1|0|01
--gpus-per-task=h100:1|0|23
--gpus-per-task=h100:1 --gpu-bind=single:1|1|23
--gres=gpu:a100:2 --gpu-bind=single:1|1|01
--gres=gpu:h100:2 --gpu-bind=verbose,single:1|1|23
--gres=gpu:h100:2 --gpu-bind=map_gpu:0,1|1|23
--gres=gpu:h100:2 --ntasks-per-gpu=1|0|23
--gpus=h100:2 --gpu-bind=single:1|1|23
--gres=gpu:a100:1,gpu:h100:1 --gpu-bind=single:1|1|02
FORMS
    newer || return 0
    echo '--tres-per-task=gres/gpu:h100:1|0|23'
}

@test "GPUs of two types: each form gives the task one of the type it asks for" {
    local options n all f dev=$MUSTER_DIR/c/dev/mty1 t=$MUSTER_DIR/t bad=0
    mkdir "$dev"
    for f in 0 1 2 3; do mknod -m 666 "$dev/gpu$f" c 195 $f; done
    printf 'NodeName=mty1 Name=gpu Type=%s File=%s/gpu[%s]\n' a100 "$dev" 0-1 h100 "$dev" 2-3 > "$MUSTER_DIR/gres"
    printf '[node mty1]\ndevices = %s/gpu\n' "$dev" | cat "$MUSTER_DIR/site.conf" - > "$MUSTER_DIR/typed"
    "$top/tests/slurm/cluster" up --dir "$t" --prefix mty --nodes 1 --gpus 0 --constrain --gres-conf "$MUSTER_DIR/gres" \
        --node-conf Gres=gpu:a100:2,gpu:h100:2 --plugin "$build/.libs/muster.so" --site-file "$MUSTER_DIR/typed" > "$MUSTER_DIR/typed.env"
    eval "$(cat "$MUSTER_DIR/typed.env")"
    { echo "required $MUSTER_DIR/neighbour.so"; cat "$t/etc/plugstack.conf"; } > "$t/etc/stack" && mv "$t/etc/stack" "$t/etc/plugstack.conf"
    while IFS='|' read -r options n all; do
        rm -f "$NEIGHBOUR_FILE"
        output=$(timeout 60 srun -Q -n2 $flags $options "$MUSTER_DIR/show" < /dev/null 2> "$MUSTER_DIR/err" | sort)
        tasks_are 0 1 "$all" && restarts 1 "$n" && [ "$(warned)" -eq 0 ] || { echo "form: $options"; bad=1; }
    done < <(typed_forms)
    "$top/tests/slurm/cluster" down --dir "$t"
    [ $bad -eq 0 ]
}

@test "--multi-prog" {
    printf '0 %s a %%t\n1 %s b %%t\n' "$MUSTER_DIR/show" "$MUSTER_DIR/show" > "$MUSTER_DIR/multi"
    run direct -n2 $bind --multi-prog "$MUSTER_DIR/multi"
    [ "$output" = "0 visible=0 opens=01 a 0
1 visible=1 opens=01 b 1" ]
    restarts 1 1
}

@test "--pty" {
    command -v script > /dev/null || skip "no script(1)"
    run timeout 60 script -qec "srun -Q -w mre1 -n1 $bind --pty $MUSTER_DIR/show" /dev/null < /dev/null
    [[ "$output" == *"0 visible=0 opens=01"* ]]
    restarts 1 1
}

@test "standard input and --input reach the tasks whole" {
    seq 20000 > "$MUSTER_DIR/numbers"
    timeout 60 srun -Q -w mre1 -n1 $bind cat < "$MUSTER_DIR/numbers" > "$MUSTER_DIR/back"
    cmp "$MUSTER_DIR/numbers" "$MUSTER_DIR/back"
    cat "$MUSTER_DIR/numbers" | timeout 60 srun -Q -w mre1 -n1 $bind cat > "$MUSTER_DIR/back"
    cmp "$MUSTER_DIR/numbers" "$MUSTER_DIR/back"
    timeout 60 srun -Q -w mre1 -n1 $bind --input="$MUSTER_DIR/numbers" cat > "$MUSTER_DIR/back" < /dev/null
    cmp "$MUSTER_DIR/numbers" "$MUSTER_DIR/back"
    restarts 3 3
}

@test "--export=NONE carries the request" {
    run direct -n2 $bind --export=NONE /bin/bash -c "export PATH=$PATH MUSTER_DIR=$MUSTER_DIR; $MUSTER_DIR/show"
    tasks_are 0 1 01
    restarts 1 1
}

@test "-Z, --jobid, --overlap and --exclusive" {
    run direct -n2 $bind --exclusive "$MUSTER_DIR/show"
    tasks_are 0 1 01
    restarts 1 1
    timeout 60 salloc -Q --no-shell -w mre1 -n2 --gres=gpu:2 -J held < /dev/null
    job=$(squeue -h -n held -o %A)
    run direct -n2 --jobid="$job" --overlap $bind "$MUSTER_DIR/show"
    scancel "$job"
    tasks_are 0 1 01
    restarts 2 2
    # Slurm itself gives a step of -Z no GPUs: what is asked of it is that it runs.
    run direct -Z -n1 $flags --gpu-bind=single:1 echo ran
    [ "$output" = ran ] || { cat "$MUSTER_DIR/err"; false; }
    restarts 3 3
}

@test "the program's own words stay its own, also those that look like srun's" {
    run direct -n1 $bind "$MUSTER_DIR/show" --gpu-bind=closest -n 7 '' 'a b' -- :x
    [ "$output" = "0 visible=0 opens=01 --gpu-bind=closest -n 7  a b -- :x" ]
    restarts 1 1
    run direct -n1 $bind -- "$MUSTER_DIR/show" -l
    [ "$output" = "0 visible=0 opens=01 -l" ]
    restarts 2 2
    run direct -n1 --gres=gpu:2 "$MUSTER_DIR/show" --gpu-bind=single:1
    [ "$output" = "0 visible=0,1 opens=01 --gpu-bind=single:1" ]
    restarts 3 2
}

@test "a long list of arguments: Slurm itself refuses more than 1 MiB" {
    local word many=()
    word=$(printf '%0500d' 0)
    for _ in $(seq 1900); do many+=("$word"); done
    run direct -n1 $bind bash -c 'echo "$($MUSTER_DIR/show) $#"' bash "${many[@]}"
    [ "$output" = "0 visible=0 opens=01 1900" ] || { echo "$output"; head -c 1000 "$MUSTER_DIR/err"; false; }
    restarts 1 1
}

# Words of so many bytes in all.
pad=()
pad_to() { # bytes
    local left
    pad=()
    for ((left = $1; left > 0; left -= 50000)); do
        pad+=("$(printf "%0$((left < 50000 ? left : 50000))d" 0)")
    done
}

# The limit of arguments and environment is a quarter of the stack's.
padded() { # --usage or --label (as long)
    (ulimit -S -s 1024 && exec timeout 60 srun -Q "$1" --propagate=NONE -w mre1 -n2 $bind "$MUSTER_DIR/silent" "${pad[@]}" < /dev/null)
}

@test "a line that cannot become longer runs as it is, with the warning" {
    local low=0 high=260000 mid
    printf '#!/bin/bash\nexec %s\n' "$MUSTER_DIR/show" > "$MUSTER_DIR/silent"
    chmod +x "$MUSTER_DIR/silent"
    while [ $((high - low)) -gt 8 ]; do
        mid=$(((low + high) / 2))
        pad_to $mid
        if padded --usage > /dev/null 2>&1; then low=$mid; else high=$mid; fi
    done
    rm -f "$NEIGHBOUR_FILE"
    pad_to $low
    output=$(padded --label 2> "$MUSTER_DIR/err" | sed 's/^[01]: //' | sort)
    [ "$output" = "0 visible=0 opens=0
1 visible=0 opens=1" ] || { echo "$output"; cat "$MUSTER_DIR/err"; return 1; }
    [ "$(warned)" -eq 1 ]
    restarts 1 0
}

@test "a heterogeneous step is started anew once where its components ask for the same" {
    output=$(timeout 60 srun -Q -w mre1 -n1 --gres=gpu:2 $flags --gpu-bind=map_gpu:1,0 "$MUSTER_DIR/show" : \
        -w mre2 -n1 --gres=gpu:2 $flags --gpu-bind=map_gpu:1,0 "$MUSTER_DIR/show" b < /dev/null 2> "$MUSTER_DIR/err" | sort)
    [ "$output" = "0 visible=1 opens=01
1 visible=1 opens=01 b" ] || { echo "$output"; cat "$MUSTER_DIR/err"; return 1; }
    restarts 1 1
    [ "$(warned)" -eq 0 ]
}

@test "a heterogeneous step whose components ask for different bindings is not started anew" {
    local wanted
    output=$(timeout 60 srun -Q -w mre1 -n1 --gres=gpu:2 $flags --gpu-bind=map_gpu:1,0 "$MUSTER_DIR/show" : \
        -w mre2 -n1 --gres=gpu:2 $flags --gpu-bind=single:1 "$MUSTER_DIR/show" b < /dev/null 2> "$MUSTER_DIR/err" | sort)
    # Slurm itself binds a single task from 26.05 on
    [ "$(release)" -lt 2605 ] && wanted="0 visible=0,1 opens=01
1 visible=0,1 opens=01 b" || wanted="0 visible=0 opens=1
1 visible=0 opens=0 b"
    [ "$output" = "$wanted" ] || { echo "$output"; cat "$MUSTER_DIR/err"; return 1; }
    restarts 1 0
}

# Slurm sends one --muster to all components, which would narrow the one that asks for nothing.
@test "a heterogeneous step with a component that asks for no binding is not started anew" {
    local bound="-n2 --gres=gpu:2 $flags --gpu-bind=map_gpu:1,0 $MUSTER_DIR/show" bare="-n2 --gres=gpu:2 $MUSTER_DIR/show"
    output=$(timeout 60 srun -Q -w mre1 $bound : -w mre2 $bare < /dev/null 2> "$MUSTER_DIR/err" | sort)
    [ "$output" = "0 visible=0 opens=1
1 visible=0 opens=0
2 visible=0,1 opens=01
3 visible=0,1 opens=01" ] || { echo "$output"; cat "$MUSTER_DIR/err"; return 1; }
    [ "$(warned)" -eq 1 ]
    output=$(timeout 60 srun -Q -w mre1 $bare : -w mre2 $bound < /dev/null 2> "$MUSTER_DIR/err" | sort)
    [ "$output" = "0 visible=0,1 opens=01
1 visible=0,1 opens=01
2 visible=0 opens=1
3 visible=0 opens=0" ] || { echo "$output"; cat "$MUSTER_DIR/err"; return 1; }
    [ "$(warned)" -eq 1 ]
    restarts 2 0
}

@test "--het-group in each component: started anew once" {
    output=$(timeout 60 salloc -Q -w mre1 -n1 --gres=gpu:2 : -w mre2 -n1 --gres=gpu:2 bash -c \
        "srun -Q --het-group=0 $flags --gpu-bind=map_gpu:1,0 $MUSTER_DIR/show : --het-group=1 $flags --gpu-bind=map_gpu:1,0 $MUSTER_DIR/show b" \
        < /dev/null 2> "$MUSTER_DIR/err" | sort)
    [ "$output" = "0 visible=1 opens=01
1 visible=1 opens=01 b" ] || { echo "$output"; cat "$MUSTER_DIR/err"; return 1; }
    restarts 1 1
}

@test "--het-group: one command in several parts of a job is started anew once" {
    output=$(timeout 60 salloc -Q -w mre1 -n1 --gres=gpu:2 : -w mre2 -n1 --gres=gpu:2 bash -c \
        "srun -Q --het-group=0,1 $flags --gpu-bind=map_gpu:1,0 $MUSTER_DIR/show" < /dev/null 2> "$MUSTER_DIR/err" | sort)
    [ "$output" = "0 visible=1 opens=01
1 visible=1 opens=01" ] || { echo "$output"; cat "$MUSTER_DIR/err"; return 1; }
    restarts 1 1
}

# The same step, started anew and not: the user's own line with the neutral request.
twice() { # command...; its output in DIR/anew and DIR/plain
    timeout 60 srun -Q -w mre1 -n1 $bind "$@" < /dev/null > "$MUSTER_DIR/anew" 2> "$MUSTER_DIR/err" || return 1
    timeout 60 srun -Q -w mre1 -n1 --gres=gpu:2 $flags --gpu-bind=none --muster=gpu-bind=single:1 \
        "$@" < /dev/null > "$MUSTER_DIR/plain" 2> "$MUSTER_DIR/err" || return 1
    restarts 2 1
}

@test "a task inherits what it would inherit without: signals, limits, descriptors, environment" {
    twice "$MUSTER_DIR/inherited"
    grep -q '^NEIGHBOUR_SEEN=+$' "$MUSTER_DIR/anew"
    diff "$MUSTER_DIR/plain" "$MUSTER_DIR/anew"
}

# Both prologs of a pair of steps saw the same.
prologs_alike() { # kind of signals
    local rc=0
    rm -f "$MUSTER_DIR"/prolog.[12] "$NEIGHBOUR_FILE"
    [ "$1" = default ] || trap '' INT USR1
    twice true && diff "$MUSTER_DIR/prolog.2" "$MUSTER_DIR/prolog.1" || rc=1
    trap - INT USR1
    return $rc
}

@test "srun's prolog does too" {
    local kind
    printf '#!/bin/bash\n%s/inherited > %s/prolog.out\nmv %s/prolog.out %s/prolog.$(ls %s/prolog.[12] 2>/dev/null | wc -l | tr 01 12)\n' \
        "$MUSTER_DIR" "$MUSTER_DIR" "$MUSTER_DIR" "$MUSTER_DIR" "$MUSTER_DIR" > "$MUSTER_DIR/prolog"
    chmod +x "$MUSTER_DIR/prolog"
    bind="--prolog=$MUSTER_DIR/prolog $bind"
    flags="--prolog=$MUSTER_DIR/prolog $flags"
    for kind in default ignored; do
        # srun ignores some signals for a moment, and either prolog may begin then.
        wait_for 60 prologs_alike $kind
        [ "$(grep -c MUSTER_RESTARTED "$MUSTER_DIR/prolog.1")" -eq 0 ]
    done
}

@test "the exit status" {
    run timeout 60 srun -Q -w mre1 -n1 $bind bash -c 'exit 7'
    [ "$status" -eq 7 ]
    restarts 1 1
}

killed() { # signal, option...: ends a running srun with it; prints its status
    local pid signal=$1
    shift
    rm -f "$MUSTER_DIR/runs"
    srun -Q -w mre1 -n1 "$@" bash -c 'touch $MUSTER_DIR/runs; sleep 30' < /dev/null > "$MUSTER_DIR/err" 2>&1 3>&- &
    pid=$!
    wait_for 20 test -e "$MUSTER_DIR/runs"
    [ "$(cat /proc/$pid/comm)" = srun ]
    [ "$(cut -d ' ' -f 2 "$NEIGHBOUR_FILE" | tail -n 1)" = $pid ]
    kill -"$signal" $pid
    wait $pid && echo 0 || echo $?
}

@test "a signal reaches srun, which keeps its process id and its name" {
    local signal anew
    for signal in TERM KILL; do
        rm -f "$NEIGHBOUR_FILE"
        anew=$(killed $signal $bind)
        restarts 1 1
        [ "$anew" = "$(killed $signal --gres=gpu:2)" ]
    done
}

@test "PMIx" {
    srun --mpi=list 2>&1 | grep -q pmix || skip "no PMIx"
    rm "$NEIGHBOUR_FILE"
    run direct --mpi=pmix -n2 $bind bash -c 'echo "$PMIX_RANK $($MUSTER_DIR/show)"'
    [ "$output" = "0 0 visible=0 opens=01
1 1 visible=1 opens=01" ] || { echo "$output"; cat "$MUSTER_DIR/err"; false; }
    restarts 1 1
}

@test "what a plugin in front did before the restart, it does once more in the new srun" {
    run direct -n1 --image=x $bind printenv NEIGHBOUR_SEEN
    [ "$output" = + ] # the variable that it set is not there twice
    [ "$(cut -d ' ' -f 1 "$NEIGHBOUR_FILE" | tr '\n' ' ')" = "init x post_opt init x post_opt local_user_init " ]
    # behind Muster its last hook runs in the new srun only
    rm "$NEIGHBOUR_FILE"
    { cat "$MUSTER_DIR/muster.line"; echo "required $MUSTER_DIR/neighbour.so"; } > "$MUSTER_DIR/c/etc/plugstack.conf"
    run direct -n1 $bind true
    write_stack
    [ "$(cut -d ' ' -f 1 "$NEIGHBOUR_FILE" | tr '\n' ' ')" = "init init post_opt local_user_init " ]
}

as_slurm_binds() { # srun option...: not started anew, and each task is hidden from the other's GPU
    run direct -n2 "$@" $bind "$MUSTER_DIR/show"
    [ "$output" = "0 visible=0 opens=0
1 visible=0 opens=1" ] || { echo "$* $output"; cat "$MUSTER_DIR/err"; return 1; }
    restarts 1 0 && rm "$NEIGHBOUR_FILE"
}

@test "nothing is started anew: off, bind=none, dry-run" {
    for value in off bind=none dry-run; do as_slurm_binds --muster=$value; done
}

@test "nothing is started anew: restart=no, with the warning as before" {
    use_site '[defaults]' 'restart = no'
    as_slurm_binds
    [ "$(warned)" -eq 1 ]
    use_site '[partition debug]' 'restart = no'
    as_slurm_binds -p debug
    SLURM_PARTITION=debug as_slurm_binds
    SLURM_JOB_PARTITION=debug as_slurm_binds
    use_site '[partition debug]' 'restart = no' '[node mre1]' 'restart = yes'
    run direct -n2 -p debug $bind "$MUSTER_DIR/show"
    restarts 1 0
}

@test "nothing is started anew: a site that has Muster off, in this partition or on this node" {
    use_site '[defaults]' 'enable = off'
    as_slurm_binds
    use_site '[partition debug]' 'enable = off'
    as_slurm_binds -p debug
    use_site '[node mre1]' 'enable = off'
    as_slurm_binds
    [ "$(warned)" -eq 0 ]
}

@test "nothing is started anew: a site that locks gpu-bind" {
    use_site '[defaults]' 'lock = gpu-bind'
    as_slurm_binds
    [ "$(warned)" -eq 1 ]
}

@test "a node that srun did not name and that has Muster off narrows only" {
    use_site '[node mre1]' 'enable = off'
    run timeout 60 srun -Q -n2 --gres=gpu:4 $flags --gpu-bind=map_gpu:3,2 bash -c 'echo "$($MUSTER_DIR/show) plan=$MUSTER_PLAN"' < /dev/null
    [ "$(sort <<< "$output")" = "0 visible=3 opens=0123 plan=
1 visible=2 opens=0123 plan=" ]
    restarts 1 1
}

@test "nothing is started anew under a debugger" {
    command -v strace > /dev/null || skip "no strace"
    run timeout 60 strace -f -qq -o "$MUSTER_DIR/strace" -e trace=execve srun -Q -w mre1 -n2 $bind true < /dev/null
    [ "$status" -eq 0 ]
    restarts 1 0
    [ "$(grep -c 'execve(' "$MUSTER_DIR/strace")" -ge 1 ]
}

@test "optind that does not fit the line: nothing is started anew, with the warning" {
    local wrong
    for wrong in 0 1 2 99; do
        write_stack optind=$wrong
        as_slurm_binds || { write_stack; return 1; }
        [ "$(warned)" -eq 1 ]
    done
    write_stack
}

@test "the guard of another process counts for nothing" {
    MUSTER_RESTARTED=1 run direct -n2 $bind "$MUSTER_DIR/show"
    tasks_are 0 1 01
    restarts 1 1
    run direct -n1 $bind bash -c 'env | grep -c MUSTER_RESTARTED'
    [ "$output" = 0 ]
}

@test "a user's --muster goes on; verbose prints the line that runs, once" {
    run direct -n2 --muster=verbose $bind "$MUSTER_DIR/show" "a b"
    tasks_are 0 1 "01 a b"
    grep -o 'srun -Q .*' "$MUSTER_DIR/err"
    [ "$(grep -c 'muster: started anew' "$MUSTER_DIR/err")" -eq 1 ]
    grep -qF -- "srun -Q -w mre1 -n2 --muster=verbose $bind --gpu-bind=none --muster=verbose,gpu-bind=single:1 $MUSTER_DIR/show 'a b'" "$MUSTER_DIR/err"
    run direct -n2 --muster=gpu-bind=map_gpu:1+0 $bind "$MUSTER_DIR/show"
    tasks_are 1 0 01
    SLURM_SPANK__SLURM_SPANK_OPTION_muster_muster=visible=all run direct -n2 $bind "$MUSTER_DIR/show"
    tasks_are 0,1 0,1 01
    restarts 3 3
}

@test "srun warns once, not again when it is started anew" {
    SLURM_CPU_BIND=quiet,mask_cpu:0x1 SLURM_CPU_BIND_TYPE=mask_cpu: run direct -n1 $bind true
    restarts 1 1
    [ "$(grep -c 'is inherited from the outer step' "$MUSTER_DIR/err")" -eq 1 ]
}
