#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# What `make coverage` prints of the lines that ran, and when it ends with an error.
# top is set by common.bash.
# shellcheck disable=SC2154

bats_require_minimum_version 1.5.0
load common

lines_of() { # file, last line
    seq -f "$1:%.0f" 1 "$2"
}

# The table where of 100 lines each so many ran.
table() { # of the planner, of a reader, of the plugin, of what needs a host
    cd "$BATS_TEST_TMPDIR" || return
    local file ran=("$@")
    : > all.txt
    : > ran.txt
    for file in spank/core/plan/plan.c spank/hw/smi/smi.c spank/plugin/stepd.c spank/hw/live/apply.c; do
        lines_of "$file" 100 >> all.txt
        lines_of "$file" "${ran[0]}" >> ran.txt
        ran=("${ran[@]:1}")
    done
    run "$top/tests/coverage" --table .
}

# grep -x of one line of $output, with any number of spaces
has() {
    tr -s ' ' <<< "$output" | grep -Fx -- "$1"
}

@test "pure code of 95 % and a plugin of 85 % suffice, whatever needs a host" {
    table 95 95 85 0
    [ "$status" -eq 0 ]
    has 'pure code 190 of 200 lines 95.0 % (95 asked)'
    has 'plugin 85 of 100 lines 85.0 % (85 asked)'
    has 'spank/hw 95 of 200 lines 47.5 %'
}

@test "one line too few of the pure code is an error, with the file" {
    table 95 94 100 100
    [ "$status" -eq 1 ]
    has 'pure code 189 of 200 lines 94.5 % (95 asked: short)'
    has ' spank/hw/smi/smi.c 94 of 100 lines 94.0 %'
    has 'plugin 100 of 100 lines 100.0 % (85 asked)'
    run ! grep -F spank/core/plan/plan.c <<< "$output"
}

@test "one line too few of the plugin is an error, and each line that did not run is listed" {
    table 100 100 84 99
    [ "$status" -eq 1 ]
    has 'plugin 84 of 100 lines 84.0 % (85 asked: short)'
    [ "$(tail -n 1 <<< "$output" | tr -s ' ')" = ' spank/plugin/stepd.c 84 of 100 lines 84.0 %' ]
    [ "$(sort lines.txt)" = "$(
        {
            echo spank/hw/live/apply.c:100
            lines_of spank/plugin/stepd.c 100 | tail -n 16
        } | sort
    )" ]
}

@test "a group without any line is an error" {
    cd "$BATS_TEST_TMPDIR"
    lines_of spank/core/plan/plan.c 9 | tee all.txt > ran.txt
    run "$top/tests/coverage" --table .
    [ "$status" -eq 1 ]
    has 'plugin: no line is known'
}

# A tree with two files, and a tests/run that builds them and runs a program with children: one that
# ends by _exit, one that goes on with another program behind the hook, as Slurm's task does.
small_tree() { # folder
    mkdir -p "$1/tests" "$1/spank/core" "$1/spank/plugin"
    cp "$top/tests/coverage" "$top/tests/cover.h" "$1/tests/"
    cat > "$1/spank/core/decide.c" <<'END'
int decide(int x);
int decide(int x)
{
    return x + 1;
}
END
    cat > "$1/spank/plugin/hook.c" <<'END'
int slurm_spank_task_init(void *, int, char **);
int in_child(int x);
int slurm_spank_task_init(void *step, int argc, char **argv)
{
    return 1;
}
int in_child(int x)
{
    if (x)
        return 2;
    return 3;
}
END
    cat > "$1/tests/main.c" <<'END'
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>
int decide(int x);
int main(void)
{
    void *so = dlopen("./hook.so", RTLD_NOW | RTLD_LOCAL);
    int (*hook)(void *, int, char **) = (int (*)(void *, int, char **))dlsym(so, "slurm_spank_task_init");
    int (*in_child)(int) = (int (*)(int))dlsym(so, "in_child");
    if (fork() == 0)
        _exit(in_child(1) != 2);
    if (fork() == 0)
        return hook(0, 0, 0) == 1 ? execl("/bin/true", "true", (char *)0) : 1;
    while (wait(0) > 0)
        ;
    return decide(0) != 1;
}
END
    cat > "$1/tests/run" <<'END'
#!/bin/bash
top=$(dirname "$(dirname "$0")")
while [ $# -gt 1 ]; do
    case $1 in
    --build) cd "$2" || exit ;;
    --after) after=$2 ;;
    esac
    shift
done
set -e
if [ "$1" = build ]; then
    mkdir -p spank/core spank/plugin tests
    for file in spank/core/decide spank/plugin/hook tests/main; do
        # shellcheck disable=SC2086
        gcc $CFLAGS -fPIC -c "$top/$file.c" -o $file.o
    done
    gcc --coverage -shared -o hook.so spank/plugin/hook.o
    gcc --coverage -o main tests/main.o spank/core/decide.o -ldl
else
    ./main
    $after
    ./main
    $after
fi
END
    chmod +x "$1/tests/run"
}

@test "lines count that ran in a library of a child, which ends by _exit or goes on with a program" {
    command -v gcov > /dev/null || skip "gcov is not installed"
    small_tree "$BATS_TEST_TMPDIR/tree"
    run "$BATS_TEST_TMPDIR/tree/tests/coverage" "$BATS_TEST_TMPDIR/build" check
    echo "$output"
    [ "$status" -eq 1 ]
    has 'pure code 2 of 2 lines 100.0 % (95 asked)'
    has 'plugin 5 of 6 lines 83.3 % (85 asked: short)'
    [ "$(cat "$BATS_TEST_TMPDIR/build/lines.txt")" = spank/plugin/hook.c:11 ]
}
