#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# The packages, built, built again and looked at. They stay in the build folder for package.bats.

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    need_apt
    no_packages
}

deb() { echo "$build/${1}"_[0-9]*.deb; }
needs() { dpkg-deb -f "$(deb "$1")" Depends; }
plugin() { basename "$build"/muster-slurm-*.deb | sed 's/_.*//'; }
files_of_debs() { for f in "$build"/*.deb; do dpkg-deb --fsys-tarfile "$f" | tar -t | grep -v '/$' | sed 's/^\.//'; done | sort; }

@test "make deb makes packages that ask for the libraries they need" {
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
