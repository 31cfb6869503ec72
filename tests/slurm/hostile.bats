#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# A second Unix user against root's side of the plugin: files that hang or are huge, children that
# are stopped, bytes for a terminal, folders that stay. Real here: Slurm, the user, FUSE.

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    [ "$(id -u)" -eq 0 ] || skip "needs root, to become a second user"
    command -v setpriv > /dev/null || skip "no setpriv"
    command -v cc > /dev/null || skip "no C compiler"
    export MUSTER_DIR
    MUSTER_DIR=$(mktemp -d /tmp/mhos.XXXXXX) # another user must reach it
    chmod 755 "$MUSTER_DIR"
    cp "$top/tests/data/plugin/two-cpus-four-gpus.xml" "$MUSTER_DIR/machine.xml"
    cp "$build/.libs/muster.so" "$MUSTER_DIR/muster.so"
    chmod 755 "$MUSTER_DIR/muster.so"
    printf '%s\n' '[defaults]' "topology = $MUSTER_DIR/machine.xml" 'mem = none' > "$MUSTER_DIR/site.conf"
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/c" --prefix mhos --nodes 1 --gpus 4 \
        --plugin "$MUSTER_DIR/muster.so" --site-file "$MUSTER_DIR/site.conf" > "$MUSTER_DIR/env"
    cc -D_GNU_SOURCE -I"$top" -o "$MUSTER_DIR/hang" "$BATS_TEST_DIRNAME/hang.c" "$top/tests/unit/hang.c"
    mkdir "$MUSTER_DIR/home" "$MUSTER_DIR/c/etc/muster.d"
    cp "$top/tests/data/nccl-xml/azure-ndv5.xml" "$MUSTER_DIR/good.xml"
    chown -R 65534:65534 "$MUSTER_DIR/home"
    chmod 644 "$MUSTER_DIR"/*.xml
}

# srun of user 65534, with that user's home.
theirs() { # srun option... command
    (cd "$MUSTER_DIR/home" && HOME=$MUSTER_DIR/home timeout 20 \
        setpriv --reuid 65534 --regid 65534 --clear-groups srun -Q -N1 -n1 "$@")
}

# While COMMAND runs, this path answers nothing, to root neither (as on a lost NFS).
while_hung() { # path, command...
    local path=$1 ready
    shift
    rm -f "$MUSTER_DIR/in" "$MUSTER_DIR/out"
    mkfifo "$MUSTER_DIR/in" "$MUSTER_DIR/out"
    "$MUSTER_DIR/hang" "$path" < "$MUSTER_DIR/in" > "$MUSTER_DIR/out" 3>&- &
    exec 7> "$MUSTER_DIR/in"
    read -r ready < "$MUSTER_DIR/out"
    [ "$ready" = ready ] || skip "$ready"
    run "$@" 7>&-
    wait_for 10 no_job && gone=yes || gone=no
    exec 7>&-
    wait
}

no_job() { [ -z "$(squeue -h)" ]; }

# Nothing of a step of that user remains, also not a process of its slurmstepd.
no_folder() {
    [ -z "$(find "$MUSTER_DIR" "${TMPDIR:-/tmp}" -maxdepth 3 -name 'muster.[0-9]*' -user 65534 2> /dev/null)" ]
}

# The children that a slurmstepd of ours left to that user: those that are no task.
reader() {
    local p
    for p in $(pgrep -u 65534 -f slurmstepd); do
        is_ours "$(ps -o ppid= -p "$p" | tr -d ' ')" || continue
        grep -q '^State:.[SDT]' "/proc/$p/status" && grep -q '^Uid:.65534.65534.65534' "/proc/$p/status" &&
            [ "$(cat "/proc/$p/comm")" = slurmstepd ] && echo "$p" && return
    done
    return 1
}

@test "64 KiB of ~/.nccl.conf: slurmstepd does not grow" {
    local with without
    peak() { theirs --gres=gpu:1 bash -c 'sed -n "s/^VmHWM:[[:space:]]*\([0-9]*\) kB/\1/p" /proc/$PPID/status'; }
    without=$(peak)
    seq -f 'NCCL_%05g=' 1 5000 > "$MUSTER_DIR/home/.nccl.conf"
    with=$(peak 2> "$MUSTER_DIR/err")
    rm "$MUSTER_DIR/home/.nccl.conf"
    echo "kB: $without, $with"
    [ $((with - without)) -lt 8192 ]
    grep -F "$MUSTER_DIR/home/.nccl.conf: more than 512 variables" "$MUSTER_DIR/err"
}

@test "a ~/.nccl.conf that answers nothing: two seconds, a warning, no job that stays" {
    touch "$MUSTER_DIR/home/.nccl.conf"
    chown 65534:65534 "$MUSTER_DIR/home/.nccl.conf"
    while_hung "$MUSTER_DIR/home/.nccl.conf" theirs --gres=gpu:1 bash -c 'echo it-ran $RANK'
    rm "$MUSTER_DIR/home/.nccl.conf"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" = *"it-ran 0"* ]]
    [[ "$output" = *"home/.nccl.conf was not read within 2 s; NCCL's variables in it do not count"* ]]
    [ "$gone" = yes ]
}

# Slurm itself makes TMPDIR in the task, which then waits: no program runs before the folder is back.
@test "a TMPDIR that answers nothing: slurmstepd starts the task, with the topology file in /tmp" {
    mkdir "$MUSTER_DIR/home/tmp"
    chown 65534:65534 "$MUSTER_DIR/home/tmp"
    TMPDIR=$MUSTER_DIR/home/tmp while_hung "$MUSTER_DIR/home/tmp" theirs --gres=gpu:1 \
        --muster=verbose,topo="$MUSTER_DIR/good.xml" true
    wait_for 20 no_job
    rm -rf "$MUSTER_DIR/home/tmp"
    echo "$output"
    [[ "$output" = *"NCCL_TOPO_FILE=/tmp/muster."* ]]
}

@test "a TMPDIR that answers nothing any more at the step's end holds no node" {
    mkdir "$MUSTER_DIR/home/tmp"
    chown 65534:65534 "$MUSTER_DIR/home/tmp"
    touch "$MUSTER_DIR/home/started" "$MUSTER_DIR/home/go"
    rm "$MUSTER_DIR/home/started" "$MUSTER_DIR/home/go"
    TMPDIR=$MUSTER_DIR/home/tmp theirs --gres=gpu:1 --muster=topo="$MUSTER_DIR/good.xml" \
        bash -c 'echo $NCCL_TOPO_FILE > started; until [ -e go ]; do sleep 0.1; done' 3>&- &
    wait_for 30 test -s "$MUSTER_DIR/home/started"
    grep -q "^$MUSTER_DIR/home/tmp/muster" "$MUSTER_DIR/home/started"
    while_hung "$MUSTER_DIR/home/tmp" touch "$MUSTER_DIR/home/go"
    [ "$gone" = yes ]
    rm -r "$MUSTER_DIR/home/tmp" "$MUSTER_DIR/home/started" "$MUSTER_DIR/home/go"
}

# Any folder of the path will do, so the program itself needs no library.
@test "an LD_LIBRARY_PATH that answers nothing: slurmstepd starts tasks that share a GPU" {
    echo 'int main(void) { return 0; }' | cc -static -x c -o "$MUSTER_DIR/ends" -
    mkdir "$MUSTER_DIR/home/lib"
    chown 65534:65534 "$MUSTER_DIR/home/lib"
    while_hung "$MUSTER_DIR/home/lib" theirs -n2 --gres=gpu:1 --muster=share=yes \
        --export=ALL,LD_LIBRARY_PATH="$MUSTER_DIR/home/lib" "$MUSTER_DIR/ends"
    rmdir "$MUSTER_DIR/home/lib"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$gone" = yes ]
}

@test "the child that reads a user's file has no file, id or group of root, keeps its memory from the user, and may be stopped" {
    local child seen
    mkfifo "$MUSTER_DIR/home/fifo"
    chown 65534:65534 "$MUSTER_DIR/home/fifo"
    theirs --gres=gpu:1 --muster=topo="$MUSTER_DIR/home/fifo" echo it-ran > "$MUSTER_DIR/err" 2>&1 3>&- &
    found() { child=$(reader); } # it is there for two seconds
    wait_for 30 found
    setpriv --reuid 65534 --regid 65534 --clear-groups kill -STOP "$child"
    cat "/proc/$child/status" > "$MUSTER_DIR/status"
    ls "/proc/$child/fd" > "$MUSTER_DIR/fds"
    # a fork of slurmstepd: it has what root's process had in memory
    seen=$(setpriv --reuid 65534 --regid 65534 --clear-groups cat "/proc/$child/environ" 2>&1 | tr '\0' ' ') || true
    wait %%
    rm "$MUSTER_DIR/home/fifo"
    cat "$MUSTER_DIR/status" "$MUSTER_DIR/fds" "$MUSTER_DIR/err"
    grep -q '^Uid:.65534.65534.65534.65534$' "$MUSTER_DIR/status"
    grep -q '^Gid:.65534.65534.65534.65534$' "$MUSTER_DIR/status"
    [ "$(sed -n 's/^Groups:[[:space:]]*//p' "$MUSTER_DIR/status" | tr -d ' ')" = 65534 ]
    [ "$(tr '\n' ' ' < "$MUSTER_DIR/fds")" = "0 1 2 3 " ]
    [[ "$seen" = *"Permission denied" ]]
    grep -q it-ran "$MUSTER_DIR/err"
    [ ! -e "/proc/$child" ]
    wait_for 10 no_job
}

@test "a relative TMPDIR leaves no folder; the file's name is absolute" {
    mkdir "$MUSTER_DIR/home/rel"
    chown 65534:65534 "$MUSTER_DIR/home/rel"
    TMPDIR=rel run theirs --gres=gpu:1 --muster=topo="$MUSTER_DIR/good.xml" \
        bash -c 'echo "$NCCL_TOPO_FILE"; cmp "$NCCL_TOPO_FILE" '"$MUSTER_DIR/good.xml"' && echo same'
    echo "$output"
    [[ "$output" = */tmp/muster.*same ]]
    wait_for 10 no_folder
    rmdir "$MUSTER_DIR/home/rel"
}

@test "control bytes of a user reach neither slurmd's log nor a terminal" {
    run theirs --gres=gpu:1 --muster=topo=$'/none\e[31m\rmuster: all is well' echo it-ran
    cat -v <<< "$output"
    [[ "$output" = *it-ran* ]]
    [[ "$output" = *'NCCL_TOPO_FILE is not set: /none?[31m?muster: all is well'* ]]
    [ "$(grep -c $'[\e\r]' "$MUSTER_DIR/c/log/slurmd.mhos1.log")" -eq 0 ]
}

@test "a fault in the site file concerns steps that Muster serves: not those without a GPU, not off" {
    warned() { grep -c 'muster.conf:[0-9]*: mem takes' <<< "$output" || true; }
    printf '[defaults]\nmem = most\n' > "$MUSTER_DIR/c/etc/muster.conf"
    run theirs true
    none=$(warned)
    run theirs --gres=gpu:1 --muster=off true
    off=$(warned)
    run theirs --gres=gpu:1 true
    gpu=$(warned)
    run theirs --muster=on true
    asked=$(warned)
    run theirs --gres=gpu:1 --muster=strict true
    cp "$MUSTER_DIR/site.conf" "$MUSTER_DIR/c/etc/muster.conf"
    [ "$status" -ne 0 ]
    [ "$none $off $gpu $asked $(warned)" = "0 0 1 1 1" ]
}

@test "a second line for the plugin is ignored, with its file and line; nothing happens twice" {
    local conf=$MUSTER_DIR/c/etc/plugstack.conf log=$MUSTER_DIR/c/log/slurmd.mhos1.log
    cp "$conf" "$MUSTER_DIR/plugstack.conf"
    mkdir "$MUSTER_DIR/c/etc/plugstack.d"
    printf '# again\nrequired %s\n' "$MUSTER_DIR/muster.so" > "$MUSTER_DIR/c/etc/plugstack.d/muster.conf"
    echo "include $MUSTER_DIR/c/etc/plugstack.d/*.conf" >> "$conf"
    run theirs --gres=gpu:1 --muster=topo="$MUSTER_DIR/good.xml",verbose bash -c 'echo "it-ran $RANK ${NCCL_TOPO_FILE:+with}"'
    cp "$MUSTER_DIR/plugstack.conf" "$conf"
    rm -r "$MUSTER_DIR/c/etc/plugstack.d"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" = *"it-ran 0 with"* ]]
    [ "$(grep -c 'step [0-9]*\.0, 1 of 1 task' <<< "$output")" -eq 1 ]
    [ "$(grep -c 'MASTER_PORT.*in use' <<< "$output")" -eq 0 ]
    [ "$(grep -cF "muster: $MUSTER_DIR/c/etc/plugstack.d/muster.conf:2: a second line loads muster.so; it is ignored: remove it" <<< "$output")" -eq 1 ]
    grep -qF "plugstack.d/muster.conf:2: a second line loads muster.so" "$log"
    wait_for 10 no_folder
}
