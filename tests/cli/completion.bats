#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# The completion for bash offers what the commands themselves list.
# shellcheck disable=SC2154 # common.bash sets top and muster
load common

setup() {
    build=$(dirname "$muster")
    PATH=$build:$PATH
    # shellcheck source=jobscripts/site/completion.bash
    . "$top/jobscripts/site/completion.bash"
}

# Prints what is offered for the last word.
offered() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _muster
    printf '%s\n' ${COMPREPLY[@]+"${COMPREPLY[@]}"}
}

@test "bash completes the commands of muster" {
    [ "$(offered muster doc)" = doctor ]
    for command in plan topo doctor verify run; do offered muster "" | grep -qx "$command"; done
    [ -z "$(offered muster nothing)" ]
}

@test "bash completes the options of each command" {
    [ "$(offered muster plan --topol)" = --topology ]
    [ "$(offered muster --vers)" = --version ]
    offered muster topo -- | grep -qx -- --format
}

@test "a word that is no option is left to bash's own completion of files" {
    [ -z "$(offered muster plan nothing)" ]
}

@test "bash completes the options of muster-train" {
    [ -x "$build/muster-train" ] || skip "built without OpenBLAS"
    [ "$(offered muster-train --elas)" = --elastic ]
}
