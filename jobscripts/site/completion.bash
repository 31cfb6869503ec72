# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Completes muster and muster-train: commands and options are read from their --help.
_muster() {
    local word=${COMP_WORDS[COMP_CWORD]} command=("${COMP_WORDS[0]}") words
    if [[ ${COMP_WORDS[0]##*/} != muster-train ]]; then
        if [ "$COMP_CWORD" -eq 1 ] && [[ $word != -* ]]; then
            words=$("${command[0]}" --help 2> /dev/null | sed -n '/^Commands/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p')
            mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
            return
        fi
        [ "$COMP_CWORD" -eq 1 ] || command+=("${COMP_WORDS[1]}")
    fi
    if [[ $word == -* ]]; then
        words=$("${command[@]}" --help 2> /dev/null | grep -oE -- '--[a-z][a-z-]*' | sort -u)
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    fi
}
complete -o default -F _muster muster muster-train
