#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# What is built carries the hardening that configure found, and has the same bytes from every folder.

top=${MUSTER_SRCDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
build=${MUSTER_BUILDDIR:-$top/build-test}

setup() {
    command -v readelf > /dev/null || skip "no readelf"
    grep -q '^MU_CFLAGS = .*-fsanitize' "$build/Makefile" && skip "a build with sanitizers"
    files=("$build/.libs/libmuster.so")
    for name in muster muster-report muster-checkpoint muster-bench muster-train muster.so; do
        for file in "$build/.libs/$name" "$build/$name"; do
            [ "$(head -c 4 "$file" 2> /dev/null)" = $'\x7fELF' ] && files+=("$file")
        done
    done
    [ ${#files[@]} -ge 4 ]
}

flags() { sed -n 's/^\(CFLAGS\|CPPFLAGS\|MU_CFLAGS\) = //p' "$build/Makefile"; }

@test "stacks are guarded, and copies are checked where the build is optimised" {
    local file symbols
    for file in "${files[@]}"; do
        symbols=$(readelf -W --dyn-syms "$file")
        echo "$file"
        ! flags | grep -q -e -fstack-protector || grep -q __stack_chk_fail <<< "$symbols"
        ! flags | grep -qE -e '-O[1-3s]' || ! flags | grep -q -e -D_FORTIFY_SOURCE || grep -q '_chk@' <<< "$symbols"
    done
    flags | grep -q -e -fstack-protector
    ! flags | grep -qE -e '-O[1-3s]' || flags | grep -q -e _FORTIFY_SOURCE
}

# Modules are bound late: muster doctor loads the plugin where Slurm's symbols are missing.
@test "relocations are read only; all but the plugin are bound at the start" {
    local file
    for file in "${files[@]}"; do
        echo "$file"
        readelf -lW "$file" | grep -q GNU_RELRO
        [ "${file##*/}" = muster.so ] || readelf -dW "$file" | grep -qE 'BIND_NOW|FLAGS_1.*NOW'
    done
}

# nvcc puts a hash of the folder into the names of what a static function holds. PTX has all names.
@test "built with CUDA: the kernels are the same from two folders" {
    local nvcc flags folder kernel
    [ -e "$build/.libs/backend_nccl.so" ] || skip "built without CUDA and NCCL"
    nvcc=$(sed -n 's/^NVCC = //p' "$build/Makefile")
    read -r -a flags < <(sed -n 's/^NVCCFLAGS = //p' "$build/Makefile")
    for folder in one another/two; do
        mkdir -p "$BATS_TEST_TMPDIR/$folder/build"
        cp -r "$top/runtime" "$top/jobscripts" "$BATS_TEST_TMPDIR/$folder/"
        cd "$BATS_TEST_TMPDIR/$folder/build"
        for kernel in ../runtime/backend/nccl/kernels/*.cu ../jobscripts/train/cuda/*.cu; do
            "$nvcc" -arch=compute_90 "${flags[@]}" -I.. --ptx "$kernel" -o "$(basename "$kernel" .cu).ptx"
        done
    done
    for kernel in *.ptx; do cmp "$kernel" "../../../one/build/$kernel"; done
}
