#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# A program that uses an MPI library beside libmuster, started by that library's mpirun.
# shellcheck disable=SC2154 # common.bash sets muster and top
load common
build=${MUSTER_BUILDDIR:-${MUSTER_SRCDIR:-$BATS_TEST_DIRNAME/../..}/build}

setup_file() {
    command -v mpicc mpirun > /dev/null || skip "no mpicc"
    mpirun --version | grep -q 'Open MPI' || skip "mpirun is not Open MPI's"
    ! grep -q '^MU_CFLAGS = .*-fsanitize' "$build/Makefile" || skip "a build with sanitizers"
    nm -D "$build/.libs/libmuster.so" | grep -q ' U PMIx_Init' || skip "a build without PMIx"
    mpicc -I"$BATS_TEST_DIRNAME/../../runtime" -o "$BATS_FILE_TMPDIR/beside" \
        "$BATS_TEST_DIRNAME/mpi_beside.c" -L"$build/.libs" -lmuster
    export LD_LIBRARY_PATH=$build/.libs MUSTER_INIT_TIMEOUT=30 MUSTER_TIMEOUT=30
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
}

beside() { # which is initialised first
    run timeout 60 mpirun --oversubscribe -n 3 "$BATS_FILE_TMPDIR/beside" "$1"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep '^mpi' <<< "$output" | sort)" = "mpi 0 sums 3, muster 0 sums 3
mpi 1 sums 3, muster 1 sums 3
mpi 2 sums 3, muster 2 sums 3" ]
}

@test "MPI_Init before muster_init: both work with the same ranks" {
    beside mpi
}

@test "muster_init before MPI_Init: both work with the same ranks" {
    beside muster
}

@test "MPI_Init before an elastic muster_init, as muster.h demands: both work" {
    MUSTER_ELASTIC=1 beside mpi
}

@test "an elastic muster_init before MPI_Init: one sentence names the order that works" {
    local sentence="call MPI_Init before muster_init"
    MUSTER_ELASTIC=1 run timeout 60 mpirun --oversubscribe -n 3 "$BATS_FILE_TMPDIR/beside" muster
    echo "$output"
    [ "$status" -ne 0 ]
    [ "$status" -ne 124 ]
    [ "$(grep -c "^muster: warning: rank 0 .*$sentence" <<< "$output")" -eq 1 ]
    [ "$(grep -c "$sentence" <<< "$output")" -eq 1 ]
    MUSTER_ELASTIC=1 run timeout 60 mpirun --oversubscribe -n 3 "$BATS_FILE_TMPDIR/beside" mpi
    [[ "$output" != *"MPI_Init"* ]]
}

@test "bench-host compares the host backend with Open MPI, each result checked" {
    run timeout 120 "$BATS_TEST_DIRNAME/../bench/host-allreduce" -n 2 -r 1 "$build"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c 'against the better of the two' <<< "$output")" -eq 4 ]
}
