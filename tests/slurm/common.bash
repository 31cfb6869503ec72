# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# common.bash - what the bats files that run a real Slurm share: the cluster of $MUSTER_DIR/c, which
# goes with the file (one with more to do has its own functions), and how to wait.

top=${MUSTER_SRCDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
# shellcheck disable=SC2034 # for the files that load this one
build=${MUSTER_BUILDDIR:-$top/build-test}

teardown_file() {
    [ -n "${MUSTER_DIR:-}" ] || return 0
    "$top/tests/slurm/cluster" down --dir "$MUSTER_DIR/c"
    rm -rf "$MUSTER_DIR"
}

setup() {
    eval "$(cat "$MUSTER_DIR/env")"
}

# For setup_file: $MUSTER_DIR with a recorded machine, where GPU 0 and 1 are near CPU 1, GPU 2 and 3
# near CPU 0.
four_gpus_on_two_cpus() { # prefix of the folder's name
    [ "$(nproc)" -ge 2 ] || skip "needs two CPUs"
    export MUSTER_DIR
    MUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/$1.XXXXXX")
    cp "$top/tests/data/plugin/two-cpus-four-gpus.xml" "$MUSTER_DIR/machine.xml"
}

# For setup_file: a cluster with the plugin, whose site file is $MUSTER_DIR/site.conf.
plugin_cluster() { # option of cluster up...
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/c" --plugin "$build/.libs/muster.so" \
        --site-file "$MUSTER_DIR/site.conf" "$@" > "$MUSTER_DIR/env"
}

# On a node of a cluster with --netns.
on() { # node, command
    "$top/tests/slurm/cluster" exec --dir "$MUSTER_DIR/c" "$@"
}

# Skips the file or the test unless `cluster --constrain` works here, with the version of cgroups that
# has the controller; version 2 controls devices without one.
need_cgroups() { # devices or cpuset
    [ "$(id -u)" -eq 0 ] || skip "cgroups need root"
    [ ! -d "/sys/fs/cgroup/$1" ] || return 0
    local root
    root=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
    [ -n "$root" ] || skip "neither cgroup v1 with its $1 controller nor cgroup v2 here"
    [ "$1" = devices ] || grep -qw "$1" "$root/cgroup.controllers" || skip "cgroup v2 has no $1 controller here"
}

# wait_for SECONDS COMMAND...: until COMMAND succeeds, at least so long; then a sentence, and 1.
# COMMAND is a condition: what fails inside it does not end the test.
wait_for() {
    local limit=$1 until=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -le "$until" ] || { echo "waited $limit s in vain for: $*" >&2; return 1; }
        sleep 0.1
    done
}

# Is that slurmstepd one of this cluster? It holds the log of its node open.
is_ours() { # process
    [ -n "$(find "/proc/$1/fd" -lname "$MUSTER_DIR/c/log/*" -print -quit 2>/dev/null)" ]
}

# The process with that rank whose command line matches, if it is there.
process_of_rank() { # PATTERN RANK [its variable]
    local pid
    for pid in $(pgrep -f -- "$1"); do
        ! grep -qzx "${3:-PMIX_RANK}=$2" "/proc/$pid/environ" 2>/dev/null || echo "$pid"
    done
}

# Task, GPU and CPUs of the plan that --muster=verbose prints: of a recorded machine nothing is bound,
# so that MUSTER_PLAN has none.
plan_rows() { # file with what srun printed
    sed -n 's/^muster: [^ ]*: *\([0-9]\+\)  \([^ ]*\) *\([0-9][^ ]*\) .*/\1 \2 \3/p' "$1" | sort -n
}

has_lines() { # file, number: at least so many
    [ "$(lines_of "$1")" -ge "$2" ]
}

lines_of() { # file: how many it has, none where it is not there
    wc -l 2>/dev/null <"$1" || echo 0
}

no_process() { # pattern of its command line
    ! pgrep -f -- "$1" >/dev/null
}

field() { # job, name: as `scontrol show job` has it, of an array each value once
    scontrol show job -o "$1" | tr ' ' '\n' | sed -n "s/^$2=//p" | sort -u
}

job_is() { # job, state (a list A|B is fine)
    [[ "|$2|" == *"|$(field "$1" JobState)|"* ]]
}

job_becomes() { # seconds, job, state (a list A|B is fine): Slurm may write it down a little later
    wait_for "$1" job_is "$2" "$3" || { where_it_stands "$2" >&2; return 1; }
}

# For a job that does not come on: what Slurm and its processes do.
where_it_stands() { # job
    echo "job $1 is $(field "$1" JobState)"
    squeue -s -j "$1"
    ps -eo pid,ppid,stat,wchan:24,etime,args --forest | grep -E '[s]lurm|[s]run|[b]atch'
    tail -qn 20 "$MUSTER_DIR"/c/log/*
}

job_ends() { # seconds, job: returns its exit status
    local code
    job_becomes "$1" "$2" 'COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|OUT_OF_MEMORY' || return 1
    code=$(field "$2" ExitCode)
    return "${code%%:*}"
}

# Submit a job, wait for its end, return its exit status. sbatch --wait looks after 2, 4, 8 and more
# seconds, so that a job which takes a little longer is noticed late.
batch_job() { # seconds, option of sbatch...
    local id
    id=$(timeout 60 sbatch --parsable "${@:2}") || return 1 # with -Q it prints no number
    job_ends "$1" "$id"
}
