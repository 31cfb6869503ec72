#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# What an admin does: one package, installed and removed. Changes the system it runs on, so it
# is for a fresh one (tests/fresh-machine) and no part of a plain tests/run.

top=${MUSTER_SRCDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
build=${MUSTER_BUILDDIR:-$top/build-test}

setup_file() {
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    command -v apt-get > /dev/null || skip "no apt-get"
    ! dpkg -s muster > /dev/null 2>&1 || skip "a package muster is installed here"
}

teardown_file() {
    dpkg --purge muster > /dev/null 2>&1 || true
}

@test "make deb makes a package that asks for the libraries it needs" {
    run make -s -C "$build" deb
    echo "$output"
    [ "$status" -eq 0 ]
    dpkg-deb -f "$build"/muster_*.deb Depends | tee "$build/depends"
    for library in libc6 libhwloc15 libexpat1 libpmix2 libjansson4 libinih1 libsodium23; do
        grep -q "\b$library" "$build/depends"
    done
    # nothing of the place where it was built
    dpkg-deb -x "$build"/muster_*.deb "$BATS_TEST_TMPDIR/x"
    ! grep -rlE "muster-package\.|$build" "$BATS_TEST_TMPDIR/x" || false
}

@test "installed: commands, manual, header and library are where they are looked for" {
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y "$build"/muster_*.deb
    muster --version
    muster topo --format json | jq -e .gpus > /dev/null
    muster-train --help > /dev/null
    for page in man1/muster.1 man3/muster.3 man5/muster.conf.5 man7/muster.7 man7/muster-env.7 man8/muster-spank.8; do
        [ -e "/usr/share/man/$page.gz" ]
    done
    # shellcheck disable=SC2046 # words
    gcc -o "$BATS_TEST_TMPDIR/example" "$top/runtime/api/example.c" $(pkg-config --cflags --libs muster)
    ldd "$BATS_TEST_TMPDIR/example" | grep -q "libmuster.so.0 => /"
}

@test "the line for plugstack.conf that it brings names its plugin, and a step is placed by it" {
    plugin=$(awk '$1 == "optional" { print $2 }' /usr/share/muster/site/plugstack.conf)
    [ -e "$plugin" ]
    state=$BATS_TEST_TMPDIR/c
    printf '[defaults]\ntopology = %s\nmem = none\n' "$top/tests/data/plugin/two-cpus-four-gpus.xml" \
        > "$BATS_TEST_TMPDIR/site.conf"
    "$top/tests/slurm/cluster" up --dir "$state" --prefix pkg --nodes 1 --gpus 4 --plugin "$plugin" \
        --site-file "$BATS_TEST_TMPDIR/site.conf" > "$BATS_TEST_TMPDIR/env"
    eval "$(cat "$BATS_TEST_TMPDIR/env")"
    run timeout 60 srun -n2 --gres=gpu:4 --muster=verbose muster verify
    # the very file, where there is no site file
    cp /usr/share/muster/site/plugstack.conf "$state/etc/plugstack.conf"
    as_it_is=$(timeout 60 srun -n1 --muster=on bash -c 'echo rank ${RANK-no}' 2>&1)
    "$top/tests/slurm/cluster" down --dir "$state"
    [ "$as_it_is" = "rank 0" ]
    echo "$output"
    [[ "$output" == *"muster: pkg1: step "*" 2 of 2 tasks"* ]]
    [[ "$output" == *"task 1 on pkg1: "* ]]
}

@test "removed: nothing is left" {
    list=$(dpkg -L muster)
    dpkg --purge muster
    while read -r path; do
        if [ ! -d "$path" ] && [ -e "$path" ]; then echo "$path is left"; return 1; fi
    done <<< "$list"
    [ ! -e /usr/share/muster ]
    ! command -v muster || false
}
