#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# What an admin does: the packages, built, installed, upgraded and removed. Changes the system it
# runs on, so it is for a fresh one (tests/fresh-machine) and no part of a plain tests/run.

top=${MUSTER_SRCDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
build=${MUSTER_BUILDDIR:-$top/build-test}

packages() { dpkg-query -W -f '${Package}\n' 'muster*' 'libmuster*' 2> /dev/null | grep -v dbgsym; }

setup_file() {
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    command -v apt-get > /dev/null || skip "no apt-get"
    ! dpkg -s muster > /dev/null 2>&1 || skip "a package muster is installed here"
}

teardown_file() {
    rm -rf "$build"/first "$build"/*muster*.deb "$build"/*muster*.rpm
    # shellcheck disable=SC2046 # words
    dpkg --purge $(packages) > /dev/null 2>&1 || true
}

deb() { echo "$build/${1}"_[0-9]*.deb; }
needs() { dpkg-deb -f "$(deb "$1")" Depends; }
plugin() { basename "$build"/muster-slurm-*.deb | sed 's/_.*//'; }
files_of_debs() { for f in "$build"/*.deb; do dpkg-deb --fsys-tarfile "$f" | tar -t | grep -v '/$' | sed 's/^\.//'; done | sort; }

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

@test "make deb makes packages that ask for the libraries they need" {
    rm -f "$build"/*muster*.deb
    run make -s -C "$build" deb
    echo "$output"
    [ "$status" -eq 0 ]
    for package in muster "$(plugin)"; do
        for library in libc6 libhwloc15 libexpat1 libinih1; do needs "$package" | grep -q "\b$library"; done
    done
    needs muster | grep -q libjansson4
    needs libmuster0 | grep -q libpmix2
    needs libmuster0 | grep -q libsodium23
    needs muster-train | grep -qE 'blas.*libmuster0|libmuster0.*blas'
    needs libmuster-dev | grep -q 'libmuster0 (= '
    needs "$(plugin)" | grep -q '\bmuster (= '
    for package in "$build"/*.deb; do dpkg-deb -x "$package" "$BATS_TEST_TMPDIR/x"; done
    # nothing of the place where it was built
    ! grep -rlE "muster-package\.|$build" "$BATS_TEST_TMPDIR/x" || false
    [ -z "$(find "$BATS_TEST_TMPDIR/x" -name '*.la')" ]
    # each file in one package
    [ -z "$(files_of_debs | uniq -d)" ]
}

@test "built with CUDA: verify's look at the GPUs comes with the command, and NVIDIA's libraries are named, not asked for" {
    if ! dpkg-deb -c "$(deb libmuster0)" | grep -q backend_nccl; then
        dpkg-deb -f "$(deb libmuster0)" Description | grep -q 'built without CUDA and NCCL'
        skip "built without CUDA"
    fi
    dpkg-deb -c "$(deb muster)" | grep -q libexec/muster/gpu-probe
    dpkg-deb -f "$(deb muster)" Description | grep -q 'loads libcudart.*libnccl'
    dpkg-deb -f "$(deb libmuster0)" Description | grep -q 'loads libcudart.*libnccl'
    dpkg-deb -f "$(deb muster-train)" Description | grep -q 'loads libcublas.*libcudart.*libnccl'
    for package in "$build"/*.deb; do ! dpkg-deb -f "$package" Depends | grep -iE 'cu(da|blas)|nccl' || false; done
}

@test "a login node gets no OpenBLAS and no library of training programs" {
    run apt-get -s install "$(deb muster)" "$(deb "$(plugin)")"
    [ "$status" -eq 0 ]
    [[ "$output" == *"Inst muster "* ]]
    ! grep -E '^Inst (lib(openblas|blas|muster)|muster-train)' <<< "$output" || false
    mkdir "$BATS_TEST_TMPDIR/x"
    for package in muster "$(plugin)"; do dpkg-deb -x "$(deb "$package")" "$BATS_TEST_TMPDIR/x"; done
    [ -z "$(find "$BATS_TEST_TMPDIR/x" -name '*muster-train*' -o -name 'libmuster*')" ]
}

@test "two builds give the same bytes" {
    mkdir "$build/first"
    mv "$build"/*muster*.deb "$build/first/"
    # another time, mask and language
    sleep 1
    (umask 077 && TZ=Asia/Tokyo LC_ALL=C make -s -C "$build" deb)
    for package in "$build"/first/*.deb; do cmp "$package" "$build/${package##*/}"; done
}

@test "make rpm: rpm installs the same files into an empty root" {
    command -v rpmbuild > /dev/null || skip "no rpmbuild; jobscripts/packages install site"
    rm -f "$build"/*muster*.rpm
    make -s -C "$build" rpm
    root=$BATS_TEST_TMPDIR/root
    mkdir "$root"
    rpm --root "$root" --initdb
    rpm --root "$root" -i --nodeps --noscripts --ignorearch "$build"/*muster*.rpm
    (cd "$root" && find usr etc \( -type f -o -type l \) 2> /dev/null) | sed 's|^|/|' | grep -v '^/usr/lib/sysimage/' |
        sed "s|^/usr/lib64/|/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)/|" | sort > "$BATS_TEST_TMPDIR/rpm"
    files_of_debs > "$BATS_TEST_TMPDIR/deb"
    diff "$BATS_TEST_TMPDIR/deb" "$BATS_TEST_TMPDIR/rpm"
    [ "$(rpm --root "$root" -qa | grep -c muster)" -eq 5 ]
    ! rpm -qp --requires "$build"/muster-[0-9]*.rpm "$build"/muster-slurm-*.rpm | grep -iE 'blas|libmuster' || false
    ! rpm -qp --requires "$build"/*muster*.rpm | grep -E 'lib(cuda|cudart|cublas|nccl)' || false
    # shellcheck disable=SC2046 # words
    rpm --root "$root" -e --nodeps --noscripts $(rpm --root "$root" -qa | grep muster)
    [ -z "$(cd "$root" && find usr -type f | grep -i muster)" ]
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
    dpkg -S /usr/share/muster/example_elastic.c | grep -q '^libmuster-dev:'
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
