#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# What an admin does with the packages that build.bats left: install, use, upgrade and remove. Changes
# the system it runs on, so it is for a fresh one (tests/fresh-machine) and no part of a plain tests/run.

source "$BATS_TEST_DIRNAME/common.bash"

packages() { dpkg-query -W -f '${Package}\n' 'muster*' 'libmuster*' 2> /dev/null | grep -v dbgsym; }

setup_file() {
    need_apt
    ls "$build"/muster_*.deb > /dev/null 2>&1 || make -s -C "$build" deb
}

teardown_file() {
    no_packages
    # shellcheck disable=SC2046 # words
    dpkg --purge $(packages) > /dev/null 2>&1 || true
}

# A cluster of one node, whose plugstack.conf is that of the package; sets state.
cluster_up() { # name
    state=$BATS_TEST_TMPDIR/$1
    printf '[defaults]\ntopology = %s\nmem = none\n' "$top/tests/data/plugin/two-cpus-four-gpus.xml" \
        > "$BATS_TEST_TMPDIR/site.conf"
    "$top/tests/slurm/cluster" up --dir "$state" --prefix pkg --nodes 1 --gpus 4 \
        --plugin "$(awk '$1 == "optional" { print $2 }' /usr/share/muster/site/plugstack-*.conf)" \
        --site-file "$BATS_TEST_TMPDIR/site.conf" > "$BATS_TEST_TMPDIR/env"
    eval "$(cat "$BATS_TEST_TMPDIR/env")"
}

cluster_down() { "$top/tests/slurm/cluster" down --dir "$state"; }

# A step that is placed, waits for the file "go", and checks its placement again.
long_step() {
    rm -f "$state/go" "$state/begun"
    timeout 120 srun -n1 --gres=gpu:1 --muster=verbose bash -c "
        touch '$state/begun'; until [ -e '$state/go' ]; do sleep 0.1; done; echo rank \$RANK" \
        > "$state/step.out" 2>&1 &
    step=$!
    timeout 60 bash -c "until [ -e '$state/begun' ]; do sleep 0.1; done"
}

long_step_ends_well() {
    touch "$state/go"
    wait "$step"
    grep -q '^rank 0$' "$state/step.out"
}

@test "installed: commands, manual, header and library are where they are looked for" {
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y "$build"/*muster*.deb
    muster --version
    muster topo --format json | jq -e .gpus > /dev/null
    muster-train --help > /dev/null
    for page in man1/muster.1 man1/muster-train.1 man3/muster.3 man5/muster.conf.5 man7/muster.7 man7/muster-env.7 \
        man7/muster-admin.7 man8/muster-spank.8; do
        [ -e "/usr/share/man/$page.gz" ]
    done
    cd "$BATS_TEST_TMPDIR"
    # shellcheck disable=SC2046 # words
    gcc -o example "$top/runtime/api/example.c" $(pkg-config --cflags --libs muster)
    ldd example | grep -q "libmuster.so.0 => /"
    # shellcheck disable=SC2046 # words
    gcc -o example-static "$top/runtime/api/example.c" $(pkg-config --cflags muster) \
        -Wl,-Bstatic -lmuster -Wl,-Bdynamic $(pkg-config --static --libs muster | sed 's/-lmuster//')
    ! ldd example-static | grep libmuster || false
    for example in example.c example_elastic.c example.py; do
        dpkg -S "/usr/share/muster/$example" | grep -q '^libmuster-dev:'
    done
}

@test "module load muster sets the paths of a Muster that is not below /usr" {
    modulecmd=$(find /usr/lib /usr/share/modules -name modulecmd.tcl 2> /dev/null | head -n 1)
    [ -n "$modulecmd" ] || skip "no environment modules; jobscripts/packages install site"
    rm -f "$build"/jobscripts/site/[0-9]*
    make -s -C "$build" install-nodist_modulefileDATA prefix=/opt/muster DESTDIR="$BATS_TEST_TMPDIR"
    rm -f "$build"/jobscripts/site/[0-9]*
    loaded=$(env MODULEPATH="$BATS_TEST_TMPDIR/opt/muster/share/muster/modulefiles" PATH=/bin \
        "$modulecmd" bash load muster)
    echo "$loaded"
    [[ "$loaded" == *"LOADEDMODULES=muster/"* ]]
    [[ "$loaded" == *"PATH=/opt/muster/bin:/bin"* ]]
    [[ "$loaded" == *"LD_LIBRARY_PATH=/opt/muster/lib"* ]]
    loaded=$(env MODULEPATH=/usr/share/muster/modulefiles PATH=/bin "$modulecmd" bash load muster)
    [[ "$loaded" == *"LOADEDMODULES=muster/"* ]]
    [[ "$loaded" != *LD_LIBRARY_PATH* ]]
}

@test "the line for plugstack.conf that it brings names its plugin, and a step is placed by it" {
    cluster_up c
    run timeout 60 srun -n2 --gres=gpu:4 --muster=verbose muster verify
    # the very file, where there is no site file
    cp /usr/share/muster/site/plugstack-*.conf "$state/etc/plugstack.conf"
    as_it_is=$(timeout 60 srun -Q -n1 --muster=on bash -c 'echo rank ${RANK-no}' 2>&1)
    cluster_down
    [ "$as_it_is" = "rank 0" ]
    echo "$output"
    [[ "$output" == *"muster: pkg1: step "*" 2 of 2 tasks"* ]]
    [[ "$output" == *"task 1 on pkg1: "* ]]
}

@test "an upgrade and a removal of the plugin leave running steps alone" {
    cluster_up u
    # the next version: the same files, new inodes
    for package in "$build"/*muster*.deb; do
        dpkg-deb -R "$package" "$BATS_TEST_TMPDIR/next"
        sed -i -E 's/^Version: .*/&+next/; s/\(= ([^)]*)\)/(= \1+next)/' "$BATS_TEST_TMPDIR/next/DEBIAN/control"
        dpkg-deb --build "$BATS_TEST_TMPDIR/next" "$BATS_TEST_TMPDIR/${package##*/}"
        rm -r "$BATS_TEST_TMPDIR/next"
    done
    file=$(awk '$1 == "optional" { print $2 }' /usr/share/muster/site/plugstack-*.conf)
    before=$(stat -c %i "$file")
    long_step
    dpkg -i "$BATS_TEST_TMPDIR"/*muster*.deb
    long_step_ends_well
    [ "$(stat -c %i "$file")" != "$before" ]
    [[ "$(dpkg-query -W -f '${Version}' muster)" == *+next ]]
    long_step
    sed -i "s/^required/optional/" "$state/etc/plugstack.conf"
    dpkg --purge "$(packages | grep muster-slurm)"
    long_step_ends_well
    # the line is still there, and "optional"
    run timeout 60 srun -n1 bash -c 'echo rank ${RANK-no}'
    cluster_down
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"rank no"* ]]
}

@test "removed: nothing is left" {
    # shellcheck disable=SC2046 # words
    list=$(dpkg -L $(packages))
    # shellcheck disable=SC2046 # words
    dpkg --purge $(packages)
    while read -r path; do
        if [ -n "$path" ] && [ ! -d "$path" ] && [ -e "$path" ]; then echo "$path is left"; return 1; fi
    done <<< "$list"
    [ ! -e /usr/share/muster ]
    ! command -v muster || false
}
