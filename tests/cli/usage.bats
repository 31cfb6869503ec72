#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# What a command cannot take: status 2, one sentence that names it, and where to read on.

load common

# command line | sentence
wrong() {
    cat <<'ROWS'
plan --bogus|no such option: --bogus
plan --tasks|--tasks needs a value
plan --tasks 0|--tasks takes a number from 1 to 8192, not '0'
plan --format xml|--format is text, tsv or json, not 'xml'
plan --gpu-bind zz|--gpu-bind: 'zz' is not a GPU binding;
plan --gpus 99|--gpus: there is no GPU 99;
plan more|takes options only, not 'more'
topo --bogus|no such option: --bogus
topo --check|--check needs a value
topo --here|--here needs --check
doctor --bogus|no such option: --bogus
doctor --format|--format needs a value
doctor --format xml|--format is text or json, not 'xml'
doctor --mask zz|--mask: 'zz' is not a hexadecimal CPU mask
doctor more|takes options only, not 'more'
verify --bogus|no such option: --bogus
verify more|takes no argument, not 'more'
ROWS
}

@test "a wrong option, value or argument is named, once, with the command's --help" {
    local line sentence bad=0 n=0
    while IFS='|' read -r line sentence; do
        n=$((n + 1))
        # shellcheck disable=SC2086
        m $line
        # shellcheck disable=SC2154
        mapfile -t lines <<< "$messages"
        [ "$status" -eq 2 ] && [ ${#lines[@]} -eq 2 ] && [[ ${lines[0]} = "muster ${line%% *}: $sentence"* ]] &&
            [ "${lines[1]}" = "muster ${line%% *}: see \`muster ${line%% *} --help\`" ] && continue
        printf '%s\n' "muster $line: status $status" "$messages"
        bad=1
    done < <(wrong)
    [ $n -eq 17 ] && [ $bad -eq 0 ]
}

@test "a program of its own that is not there is named with the way to have it" {
    MUSTER_LIBEXEC=$BATS_TEST_TMPDIR m bench
    [ "$status" -eq 2 ]
    [[ $messages = *"no $BATS_TEST_TMPDIR/muster-bench): install Muster's runtime part" ]]
}
