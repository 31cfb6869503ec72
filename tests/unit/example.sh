#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The 40-line example runs alone; a PMIx server that cannot be reached is one sentence;
# the library exports muster_* and nothing else.
dir=${MUSTER_BUILDDIR:-.}
echo 1..6
out=$(cd "$dir" && MUSTER_SINGLE=1 timeout 60 runtime/api/example)
if [ "$out" = "1 rank agrees on 0.000000" ]; then
    echo "ok 1 - the example runs in a world of one"
else
    echo "not ok 1 - the example runs in a world of one"
    echo "# $out"
fi
extra=$(nm -D --defined-only "$dir/.libs/libmuster.so" |
    awk '$3 !~ /^muster_/ && $3 !~ /^MUSTER_0/ && $2 != "A" { print $3 }')
if [ -z "$extra" ]; then
    echo "ok 2 - libmuster exports only names that start with muster_"
else
    echo "not ok 2 - libmuster exports only names that start with muster_"
    echo "# $extra"
fi
src=${MUSTER_SRCDIR:-..}
missing=
names=$(grep -o 'variable("MUSTER_[A-Z_]*")' "$src/runtime/api/init.c" | grep -o 'MUSTER_[A-Z_]*')
for name in $names; do
    grep -qE "^\.(It )?Ev $name\$" "$src/runtime/muster.3" || missing="$missing $name"
done
if [ -z "$missing" ]; then
    echo "ok 3 - every variable that the library reads is in muster(3)"
else
    echo "not ok 3 - every variable that the library reads is in muster(3)"
    echo "# $missing"
fi
test4="PMIx variables of a server that cannot be reached: one sentence, status 11"
# PMIx keeps memory after a failed init, and must not be finalized then: no look for leaks.
if nm -D "$dir/.libs/libmuster.so" | grep -q ' U PMIx_Init'; then
    out=$(cd "$dir" && ASAN_OPTIONS=detect_leaks=0 PMIX_NAMESPACE=x PMIX_RANK=0 PMIX_SERVER_TMPDIR=/nowhere TMPDIR=/ \
        PMIX_SERVER_URI4='pmix-server.1;tcp4://127.0.0.1:9' timeout 60 runtime/api/example 2>&1)
    status=$?
    case $out in
    *"
"*) status="$status and several lines" ;;
    "muster: PMIX_NAMESPACE=x is set, but the PMIx server at tcp4://127.0.0.1:9, \
PMIX_SERVER_TMPDIR=/nowhere (No such file or directory), TMPDIR=/ (owner: user id 0) \
cannot be reached"*) ;;
    *) status="$status and another sentence" ;;
    esac
    if [ "$status" = 11 ]; then
        echo "ok 4 - $test4"
    else
        echo "not ok 4 - $test4"
        echo "# $status: $out"
    fi
else
    echo "ok 4 - $test4 # SKIP built without PMIx"
fi
test5="a PMIx server's address without its namespace is no world of one"
if nm -D "$dir/.libs/libmuster.so" | grep -q ' U PMIx_Init'; then
    out=$(cd "$dir" && PMIX_RANK=0 PMIX_SERVER_URI4='pmix-server.1;tcp4://127.0.0.1:9' timeout 60 runtime/api/example 2>&1)
    case $?$out in
    "11muster: PMIX_SERVER_URI is set, but the PMIx server at tcp4://127.0.0.1:9"*"(PMIX_NAMESPACE is not set)"*)
        echo "ok 5 - $test5" ;;
    *)
        echo "not ok 5 - $test5"
        echo "# $out" ;;
    esac
else
    echo "ok 5 - $test5 # SKIP built without PMIx"
fi
test6="the Python example runs in a world of one, and gives the status of a failure"
if ldd "$dir/.libs/libmuster.so" | grep -q libasan; then
    echo "ok 6 - $test6 # SKIP AddressSanitizer cannot be loaded into python3"
elif command -v python3 > /dev/null; then
    src=$(cd "${MUSTER_SRCDIR:-..}" && pwd)
    out=$(cd "$dir" && LD_LIBRARY_PATH=$PWD/.libs MUSTER_BACKEND=host MUSTER_SINGLE=1 timeout 60 python3 "$src/runtime/python/example.py" 2>&1)
    (cd "$dir" && LD_LIBRARY_PATH=$PWD/.libs WORLD_SIZE=4 RANK=1 timeout 60 python3 "$src/runtime/python/example.py" > /dev/null 2>&1)
    status=$?
    if [ "$out" = "the mean of 1 ranks is [0.0, 0.0, 0.0]" ] && [ $status = 11 ]; then
        echo "ok 6 - $test6"
    else
        echo "not ok 6 - $test6"
        echo "# $status: $out"
    fi
else
    echo "ok 6 - $test6 # SKIP no python3"
fi
