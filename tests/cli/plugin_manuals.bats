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
    [ "$(wc -l <<< "$keys")" -eq 18 ]
    for key in $keys; do
        grep -qE "^\.It Cm (.* , )?$key( |$)" "$pages/muster.7" || { echo "$key is missing"; return 1; }
    done
}

@test "every key of the site file is in muster.conf(5)" {
    keys=$(grep -A3 "unknown key '%.80s'; the keys are enable" "$top/spank/core/options/muster_conf.c" |
        tr -d '"\n' | sed 's/.*the keys are //; s/ and those of.*//; s/, */ /g')
    [ "$(wc -w <<< "$keys")" -ge 7 ]
    for key in $keys; do
        grep -q "^\.It Cm $key " "$pages/muster.conf.5" || { echo "$key is missing"; return 1; }
    done
}

@test "every variable that the plugin writes is in muster-env(7)" {
    names=$(sed -n 's/.*mu_env_add([^,]*, *"\([A-Z_]*\)".*/\1/p' "$pages"/taskenv.c)
    [ "$(wc -w <<< "$names")" -ge 10 ]
    for name in $names NCCL_PROFILER_PLUGIN MUSTER_PROFILE NCCL_TUNER_PLUGIN MUSTER_TUNER MUSTER_SET SLURM_MUSTER_REQUEST SLURM_MUSTER_HEAD SLURM_MUSTER_PORTS MUSTER_RESTARTED ROCR_VISIBLE_DEVICES ZE_AFFINITY_MASK; do
        grep -q "$name" "$pages/muster-env.7" || { echo "$name is missing"; return 1; }
    done
}

@test "every NCCL variable that the plugin may set is in muster-env(7)" {
    names=$(cat "$top"/spank/core/nccl/nccl_variables.c "$top"/spank/hw/live/network.c | tr -d '\n' |
        grep -oE 'mu_settings_add\([^;]*"(NCCL|GLOO)_[A-Z_]*"' | grep -oE '(NCCL|GLOO)_[A-Z_]*' | sort -u)
    [ "$(wc -w <<< "$names")" -ge 7 ]
    for name in $names; do
        grep -q "^\.It Ev $name" "$pages/muster-env.7" || { echo "$name is missing"; return 1; }
    done
}

# Per section of a profile that sets something: a reason for each value, and above the values,
# in the section's or the file's comments, a public source.
@test "every value of a shipped profile has a reason and a public source" {
    for file in "$top"/spank/profiles/*.ini; do
        run awk '
            /^#/ && /([a-z0-9-]+\.)+(com|org|uk|ch)/ { sourced = 1 }
            /^#/ && /Source|source/ { sourced = 1 }
            /^\[/ { section = $0; split("", why) }
            /^why = / { sub(/:.*/, "", $3); why[$3] = 1 }
            /^set = / { name = $3; sub(/=.*/, "", name); set[++n] = section " " name; at[n] = section; var[n] = name
                if (!sourced) print set[n] ": no source" }
            /^why = / { reason[section, $3] = 1 }
            END { for (i = 1; i <= n; i++)
                if (!((at[i], var[i]) in reason) && !(var[i] ~ /^NCCL_/ && (at[i], "NCCL_*") in reason))
                    print set[i] ": no reason" }' "$file"
        [ -z "$output" ] || { echo "$file: $output"; return 1; }
    done
    [ "$(cat "$top"/spank/profiles/*.ini | grep -c '^set = ')" -ge 20 ]
}

@test "the manual pages are well formed" {
    command -v mandoc > /dev/null || skip "no mandoc"
    for page in "$pages"/*.[578]; do
        run mandoc -T lint -W warning "$page"
        [ -z "$output" ] || { echo "$output"; return 1; }
    done
}

@test "muster-admin(7): its sections, its site file, its options and subcommands are real" {
    local page=$pages/muster-admin.7 dir=$BATS_TEST_TMPDIR section option
    for section in Roll-out "Order of plugins" Cgroups "Upgrade with running jobs" "When it goes wrong" \
        "What runs as root" "What it reads, from whom" "What a user can do to himself" \
        "What a user can do to others" "What is no wall"; do
        grep -q "^\.Ss $section\$" "$page" || { echo "$section is missing"; return 1; }
    done
    (umask 022; sed -n '/^\.Bd -literal/,/^\.Ed/p' "$page" | grep -v '^\.' > "$dir/muster.conf")
    [ -s "$dir/muster.conf" ]
    echo "optional /nowhere/muster.so conf=$dir/muster.conf" > "$dir/plugstack.conf"
    echo 'ClusterName=x' > "$dir/slurm.conf"
    SLURM_CONF=$dir/slurm.conf run "$build/muster" doctor --all
    echo "$output"
    [[ "$output" = *"$dir/muster.conf can be read and is well formed"* ]]
    grep -o -e '--muster=[a-z-]*' "$page" | sed 's/.*=//' > "$dir/options"
    [ -s "$dir/options" ]
    while read -r option; do
        run "$build/muster" plan --topology "$top/tests/data/plugin/two-cpus-four-gpus.xml" --opt "$option"
        [ "$status" -le 1 ] || { echo "$option: $output"; return 1; }
    done < "$dir/options"
}
