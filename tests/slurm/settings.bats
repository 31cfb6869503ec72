#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# Who sets NCCL's variables: the site's profile, the user's environment and files, the image of
# a container. Real here: Slurm, the files, the mount namespace of a task. Not real: pyxis, of
# which container.c does what counts here.

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    [ "$(id -u)" -eq 0 ] || skip "mount namespaces, and a folder that root owns"
    command -v cc > /dev/null || skip "no C compiler"
    four_gpus_on_two_cpus mset
    printf '%s\n' '[defaults]' "topology = $MUSTER_DIR/machine.xml" 'mem = none' > "$MUSTER_DIR/site.conf"
    plugin_cluster --prefix mset --nodes 2 --gpus 4
    eval "$(cat "$MUSTER_DIR/env")"
    cc -shared -fPIC -D_GNU_SOURCE -o "$MUSTER_DIR/container.so" "$BATS_TEST_DIRNAME/container.c"
    mkdir "$MUSTER_DIR/image" "$MUSTER_DIR/home" "$MUSTER_DIR/c/etc/muster.d"
    cp /etc/passwd /etc/group /etc/nsswitch.conf /etc/ld.so.cache "$MUSTER_DIR/image/"
    printf '# of the image\nNCCL_SITE_FILE=image\n' > "$MUSTER_DIR/image/nccl.conf"
    sed -i "1i required $MUSTER_DIR/container.so $MUSTER_DIR/image" "$MUSTER_DIR/c/etc/plugstack.conf"
    cat > "$MUSTER_DIR/c/etc/muster.d/10-site.ini" << 'END'
[other]
dmi = sys_vendor: No Such Vendor
set = NCCL_SITE_OTHER=1
[site]
file = /etc/passwd
set = NCCL_SITE_ENV=7
why = NCCL_SITE_ENV: the switches want it
set = NCCL_SITE_FILE=8
END
}

# NCCL_SITE_ENV, _FILE and _OTHER of all tasks, sorted and unique; what Muster said in err.
seen() { # srun option...
    timeout 60 srun -Q --gres=gpu:2 "$@" bash -c \
        'echo "${NCCL_SITE_ENV-unset} ${NCCL_SITE_FILE-unset} ${NCCL_SITE_OTHER-unset}"' 2> "$MUSTER_DIR/err" | sort -u
}

said() { # part
    grep -qF -- "$1" "$MUSTER_DIR/err" || { cat "$MUSTER_DIR/err"; return 1; }
}

@test "a site's own profile: the first section that fits, for steps of several nodes, with its reasons" {
    run seen -N2 -n4 --muster=verbose
    [ "$output" = "7 8 unset" ]
    said 'NCCL_SITE_ENV=7: profile site: the switches want it'
    said "NCCL_SITE_FILE=8: profile site: the platform's vendor documents it"
    run seen -N1 -n2 --muster=verbose
    [ "$output" = "unset unset unset" ]
}

@test "the user's environment wins over a profile, and verbose says who won" {
    NCCL_SITE_ENV=mine run seen -N2 -n2 --muster=verbose
    [ "$output" = "mine 8 unset" ]
    said 'NCCL_SITE_ENV stays mine from the environment (Muster would set 7: profile site: the switches want it)'
    NCCL_SITE_ENV=mine run seen -N2 -n2
    ! grep NCCL_SITE "$MUSTER_DIR/err" || false
}

@test "a line of ~/.nccl.conf wins over a profile, and verbose names it" {
    printf 'NCCL_DEBUG=WARN\nNCCL_SITE_ENV=home\n' > "$MUSTER_DIR/home/.nccl.conf"
    HOME=$MUSTER_DIR/home run seen -N2 -n2 --muster=verbose
    [ "$output" = "unset 8 unset" ]
    said "NCCL_SITE_ENV stays home from $MUSTER_DIR/home/.nccl.conf line 2 (Muster would set 7:"
    # with a blank NCCL has a variable of another name
    printf 'NCCL_SITE_ENV =home\n' > "$MUSTER_DIR/blank.conf"
    HOME=$MUSTER_DIR/home NCCL_CONF_FILE=$MUSTER_DIR/blank.conf run seen -N2 -n2
    [ "$output" = "7 8 unset" ]
    # NCCL_CONF_FILE stands in its place
    echo NCCL_SITE_FILE=named > "$MUSTER_DIR/named.conf"
    HOME=$MUSTER_DIR/home NCCL_CONF_FILE=$MUSTER_DIR/named.conf run seen -N2 -n2 --muster=verbose
    [ "$output" = "7 unset unset" ]
    said "NCCL_SITE_FILE stays named from $MUSTER_DIR/named.conf line 1"
}

@test "what a container's image sets stays: its environment, its nccl.conf; verbose says so once for a node" {
    TEST_IMAGE=1 run seen -N2 -n4 --muster=verbose
    [ "$output" = "image unset unset" ]
    said 'in the container NCCL_SITE_ENV stays image from the environment (Muster would set 7:'
    said 'in the container NCCL_SITE_FILE stays image from /etc/nccl.conf line 2 (Muster would set 8:'
    [ "$(grep -c 'in the container NCCL_SITE_ENV' "$MUSTER_DIR/err")" -eq 2 ]
    TEST_IMAGE=1 run seen -N2 -n4
    [ "$output" = "image unset unset" ]
    ! grep NCCL_SITE "$MUSTER_DIR/err" || false
    # ranks are no matter of the image
    output=$(TEST_IMAGE=1 timeout 60 srun -Q -N2 -n2 --gres=gpu:1 bash -c 'echo "$RANK ${NCCL_RAS_ADDR:+ras}"' 2> "$MUSTER_DIR/err")
    [ "$(sort <<< "$output")" = "0 ras
1 ras" ]
}

@test "a topology file that is no file of bytes, or on a platform with its own, is not given out" {
    mkfifo "$MUSTER_DIR/fifo.xml"
    topo() { timeout 60 srun -Q -N2 -n2 --gres=gpu:1 --muster=topo="$1" bash -c 'echo ${NCCL_TOPO_FILE:+set}' 2> "$MUSTER_DIR/err"; }
    run topo "$MUSTER_DIR/fifo.xml" # nobody writes to it: two seconds, then without
    [ -z "${output//$'\n'/}" ]
    said "NCCL_TOPO_FILE is not set: $MUSTER_DIR/fifo.xml was not read within 2 s"
    cp "$top/tests/data/nccl-xml/azure-ndv5.xml" "$MUSTER_DIR/good.xml"
    run topo "$MUSTER_DIR/good.xml"
    [ "$(sort -u <<< "$output")" = set ]
    # the user's own nccl.conf names one
    echo NCCL_TOPO_FILE=/mine.xml > "$MUSTER_DIR/home/.nccl.conf"
    HOME=$MUSTER_DIR/home run topo "$MUSTER_DIR/good.xml"
    [ -z "${output//$'\n'/}" ]
    printf '[aws-test]\nfile = /etc/passwd\n' > "$MUSTER_DIR/c/etc/muster.d/05-aws.ini"
    run topo "$MUSTER_DIR/good.xml"
    rm "$MUSTER_DIR/c/etc/muster.d/05-aws.ini"
    [ -z "${output//$'\n'/}" ]
    said "$MUSTER_DIR/good.xml is not passed to NCCL: this platform provides another topology"
}

@test "a topology file that the kernel waits for holds neither the step nor the node" {
    local start=$SECONDS
    cc -D_GNU_SOURCE -I"$top" -o "$MUSTER_DIR/hang" "$BATS_TEST_DIRNAME/hang.c" "$top/tests/unit/hang.c"
    touch "$MUSTER_DIR/hung.xml"
    mkfifo "$MUSTER_DIR/in" "$MUSTER_DIR/out"
    "$MUSTER_DIR/hang" "$MUSTER_DIR/hung.xml" < "$MUSTER_DIR/in" > "$MUSTER_DIR/out" 3>&- &
    exec 7> "$MUSTER_DIR/in"
    read -r ready < "$MUSTER_DIR/out"
    [ "$ready" = ready ] || skip "$ready"
    run timeout 30 srun -Q -N1 -n1 --gres=gpu:1 --muster=topo="$MUSTER_DIR/hung.xml" echo it-ran
    idle() { [ -z "$(squeue -h)" ]; }
    wait_for 10 idle && gone=yes || gone=no
    exec 7>&-
    wait
    [ "$status" -eq 0 ]
    [[ "$output" = *it-ran* ]]
    [[ "$output" = *"NCCL_TOPO_FILE is not set: $MUSTER_DIR/hung.xml was not read within 2 s"* ]]
    [ "$gone" = yes ]
    [ $((SECONDS - start)) -lt 25 ]
}

in_other_tmp() { # TEST_TMP of container.c
    TEST_TMP=$1 TMPDIR=$MUSTER_DIR/tmp TEST_IMAGE=1 timeout 60 srun -Q -N1 -n2 --gres=gpu:2 \
        --muster=verbose,topo="$MUSTER_DIR/topo.xml" \
        bash -c 'echo "${NCCL_TOPO_FILE-unset} $(md5sum < "${NCCL_TOPO_FILE-/dev/null}" 2>&1)"' 2> "$MUSTER_DIR/err"
}

@test "a task with another /tmp gets the topology file there, or none with a word" {
    mkdir -p "$MUSTER_DIR/tmp"
    chmod 1777 "$MUSTER_DIR/tmp"
    "$build/muster" topo --topology "$top/tests/data/nccl-xml/azure-ncv4.xml" --format nccl-xml > "$MUSTER_DIR/topo.xml"
    chmod 644 "$MUSTER_DIR/topo.xml"
    sum=$(md5sum < "$MUSTER_DIR/topo.xml")
    run in_other_tmp "$MUSTER_DIR/tmp"
    cat "$MUSTER_DIR/err"
    echo "$output"
    [ "$(grep -c "^$MUSTER_DIR/tmp/.*$sum" <<< "$output")" -eq 2 ]
    said 'the tasks do not see'
    run in_other_tmp "$MUSTER_DIR/tmp:ro"
    cat "$MUSTER_DIR/err"
    echo "$output"
    [ "$(grep -c '^unset ' <<< "$output")" -eq 2 ]
    said 'NCCL_TOPO_FILE is not set: the tasks do not see'
    # where TMPDIR is a folder of nobody's, or a relative one, in the task's own /tmp; the image is elsewhere
    local other tmpdir
    other=$(mktemp -d /var/tmp/mset.XXXXXX)
    cp -r "$MUSTER_DIR/image" "$other/"
    cp "$MUSTER_DIR/c/etc/plugstack.conf" "$MUSTER_DIR/plugstack"
    sed -i "1s,$MUSTER_DIR/image,$other/image," "$MUSTER_DIR/c/etc/plugstack.conf"
    for tmpdir in relative /proc/nowhere; do
        run env TEST_TMP=/tmp TEST_IMAGE=1 TMPDIR=$tmpdir timeout 60 srun -Q -D / -N1 -n1 --gres=gpu:1 \
            --muster=topo="$MUSTER_DIR/topo.xml" bash -c 'echo "$NCCL_TOPO_FILE $(md5sum < "${NCCL_TOPO_FILE-/dev/null}")"'
        echo "$tmpdir: $output"
        [[ "$output" == */tmp/muster.*"$sum"* ]] || { rm -r "$other"; false; }
        [[ "$output" != *tmp:* && "$output" != *relative/* ]]
    done
    cp "$MUSTER_DIR/plugstack" "$MUSTER_DIR/c/etc/plugstack.conf"
    rm -r "$other"
    # the step's own copy is gone
    wait_for 10 rmdir "$MUSTER_DIR/tmp"
}

@test "topo=auto: on a virtual machine whose layout the site states, that file; elsewhere none" {
    printf '<system version="1">\n' > "$MUSTER_DIR/vm.xml"
    for n in 0 1; do
        printf '  <cpu numaid="%d" affinity="%d" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">\n' $n $((n + 1))
        printf '    <pci busid="0000:%d0:00.0" class="0x030200"/>\n' $((2 * n + 1)) $((2 * n + 2))
        echo '  </cpu>'
    done >> "$MUSTER_DIR/vm.xml"
    echo '</system>' >> "$MUSTER_DIR/vm.xml"
    sed -i "s,^topology.*,topology = $MUSTER_DIR/vm.xml," "$MUSTER_DIR/c/etc/muster.conf"
    see() { timeout 60 srun -Q -N1 -n2 --gres=gpu:4 "$@" bash -c '[ -z "$NCCL_TOPO_FILE" ] || md5sum < "$NCCL_TOPO_FILE"' 2> "$MUSTER_DIR/err" | sort -u; }
    auto=$(see --muster=verbose)
    none=$(see --muster=topo=none)
    cp "$MUSTER_DIR/site.conf" "$MUSTER_DIR/c/etc/muster.conf"
    [ -z "$none" ]
    if grep -q hypervisor /proc/cpuinfo; then
        [ "$auto" = "$(md5sum < "$MUSTER_DIR/vm.xml")" ]
        timeout 60 srun -Q -N1 -n1 --gres=gpu:4 true
        [ -z "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'muster.[0-9]*.[0-9]*.*' -newer "$MUSTER_DIR/vm.xml")" ]
    else
        [ -z "$auto" ]
    fi
}

@test "a profile with a fault is named with its line, the tasks run" {
    echo 'sets = X=1' > "$MUSTER_DIR/c/etc/muster.d/20-wrong.ini"
    run seen -N2 -n2
    rm "$MUSTER_DIR/c/etc/muster.d/20-wrong.ini"
    [ "$output" = "unset unset unset" ]
    said 'muster.d/20-wrong.ini line 1: the line is before the first [PROFILE]'
}

@test "profiles that others may write are not read" {
    chmod 777 "$MUSTER_DIR/c/etc/muster.d"
    run seen -N2 -n2
    chmod 755 "$MUSTER_DIR/c/etc/muster.d"
    [ "$output" = "unset unset unset" ]
    said "muster.d is writable by everybody; it is not read: run chmod go-w $MUSTER_DIR/c/etc/muster.d"
}

@test "a profile of another owner, or one that others may write, is not read; the sentence has the command" {
    local bad=$MUSTER_DIR/c/etc/muster.d/05-theirs.ini
    printf '[theirs]\nfile = /etc/passwd\nset = NCCL_SITE_ENV=theirs\n' > "$bad"
    run seen -N2 -n2
    [ "$output" = "theirs unset unset" ]
    chown 65534 "$bad"
    run seen -N2 -n2
    [ "$output" = "unset unset unset" ]
    said "$bad belongs to user 65534, not to root; it is not read: run chown root $bad"
    chown root "$bad"
    chmod 664 "$bad"
    run seen -N2 -n2
    [ "$output" = "unset unset unset" ]
    said "$bad is writable by its group; it is not read: run chmod go-w $bad"
    chmod go-w "$bad"
    run seen -N2 -n2
    rm "$bad"
    [ "$output" = "theirs unset unset" ]
}

@test "a vendor's script of another owner adds nothing, the rest of its profile holds" {
    local profile=$MUSTER_DIR/c/etc/muster.d/05-vendor.ini
    echo 'export NCCL_SITE_FILE=vendor' > "$MUSTER_DIR/vendor.sh"
    printf '[vendor]\nfile = /etc/passwd\nset = NCCL_SITE_ENV=9\nset-from = %s\n' "$MUSTER_DIR/vendor.sh" > "$profile"
    run seen -N2 -n2
    [ "$output" = "9 vendor unset" ]
    chown 65534 "$MUSTER_DIR/vendor.sh"
    run seen -N2 -n2
    rm "$profile"
    [ "$output" = "9 unset unset" ]
    said "$MUSTER_DIR/vendor.sh belongs to user 65534, not to root; it is not read: run chown root $MUSTER_DIR/vendor.sh"
}
