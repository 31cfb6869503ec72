# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# For the checks beside it: TAP lines, the files of the tree, and which object needs which.
src=$(cd "${MUSTER_SRCDIR:-$(dirname "${BASH_SOURCE[0]}")/../..}" && pwd) || exit 1
build=$(cd "${MUSTER_BUILDDIR:-$src/build}" 2> /dev/null && pwd) || build=
cd "$src" || exit 1
n=0 failed=0

# Prints one line of TAP: passed where $1, a list of faults, has no line that is not empty.
result() { # faults, text
    local faults
    faults=$(sed '/^$/d' <<< "$1")
    n=$((n + 1))
    if [ -z "$faults" ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        printf '#   %s\n' "${faults//$'\n'/$'\n#   '}"
        failed=1
    fi
}

skipped() { # text, reason
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}

finish() {
    echo "1..$n"
    exit $failed
}

# Files of the tree with these endings; a tarball has no git.
sources() { # ending...
    local names=() ending
    for ending in "$@"; do names+=(-o -name "*.$ending"); done
    find spank runtime jobscripts tests -path tests/data -prune -o \( "${names[@]:1}" \) -print | sort
}

# FILE:INCLUDE of every include in the given files and folders
includes() {
    grep -rHoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"][^>"]+' "$@" \
        --include='*.[ch]' --include='*.cu' --include='*.cuh' | sed -E 's/:[[:space:]]*#[[:space:]]*include[[:space:]]*/:/'
}

is_built() { [ -n "$build" ] && [ -n "$(find "$build/runtime" -name '*.o' -print -quit 2> /dev/null)" ]; }

# FROM TO: an object needs a symbol that another one defines; names are those of the sources, without ending.
# Where several define it (two backends have functions of one name) the one in the same folder counts.
object_edges() {
    (cd "$build" && find spank runtime -name '*.o' ! -name 'tests_*' -exec nm -AP {} + 2> /dev/null) | awk '
        function folder(name) { sub(/\/[^\/]*$/, "", name); return name }
        {
            file = $1
            sub(/:$/, "", file)
            sub(/\.libs\//, "", file)
            sub(/[^\/]*-/, "", file)
            sub(/\.o$/, "", file)
        }
        $3 ~ /^[TDBRVWC]$/ && !(($2, file) in seen) { seen[$2, file] = 1; defined[$2] = defined[$2] " " file }
        $3 == "U" { need[file, $2] = 1 }
        END {
            for (pair in need) {
                split(pair, p, SUBSEP)
                count = split(defined[p[2]], by, " ")
                for (i = 1; i <= count; i++)
                    if (by[i] != p[1] && (count == 1 || folder(by[i]) == folder(p[1])))
                        print p[1], by[i]
            }
        }' | sort -u
}
