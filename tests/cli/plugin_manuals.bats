#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# Every key and variable of the plugin has its line in a manual page.

top=${MUSTER_SRCDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
build=${MUSTER_BUILDDIR:-$top/build-test}
pages=$top/spank/plugin

# The words behind "the keys are" in an error message, one a line.
keys_of() {
    sed -n 's/.*the keys are //p' <<< "$1" | tr ',' '\n' | sed 's/^ //; s/ and those of --muster//'
}

@test "every key of --muster is in muster(7)" {
    run "$build/muster" plan --topology "$top/tests/data/plugin/two-cpus-four-gpus.xml" --opt no-such-key
    [ "$status" -eq 2 ]
    keys=$(keys_of "$output")
    [ "$(wc -l <<< "$keys")" -eq 15 ]
    for key in $keys; do
        grep -qE "^\.It Cm (.* , )?$key( |$)" "$pages/muster.7" || { echo "$key is missing"; return 1; }
    done
}

@test "every key of the site file is in muster.conf(5)" {
    keys=$(grep -A3 "unknown key '%.80s'; the keys are enable" "$top/spank/core/site.c" |
        tr -d '"\n' | sed 's/.*the keys are //; s/ and those of.*//; s/, */ /g')
    [ "$(wc -w <<< "$keys")" -ge 7 ]
    for key in $keys; do
        grep -q "^\.It Cm $key " "$pages/muster.conf.5" || { echo "$key is missing"; return 1; }
    done
}

@test "every variable that the plugin writes is in muster-env(7)" {
    names=$(sed -n 's/.*mu_env_add([^,]*, *"\([A-Z_]*\)".*/\1/p' "$pages"/taskenv.c)
    [ "$(wc -w <<< "$names")" -ge 10 ]
    for name in $names MUSTER_SET SLURM_MUSTER_REQUEST ROCR_VISIBLE_DEVICES ZE_AFFINITY_MASK; do
        grep -q "$name" "$pages/muster-env.7" || { echo "$name is missing"; return 1; }
    done
}

@test "the manual pages are well formed" {
    command -v mandoc > /dev/null || skip "no mandoc"
    for page in "$pages"/*.[578]; do
        run mandoc -T lint -W warning "$page"
        [ -z "$output" ] || { echo "$output"; return 1; }
    done
}
