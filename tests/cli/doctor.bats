#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# muster doctor as a command: formats, exit statuses, recorded machines.

top=${MUSTER_SRCDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
build=${MUSTER_BUILDDIR:-$top/build-test}

setup() {
    umask 022 # a site's files are not their group's to write
    dir=$(mktemp -d "${TMPDIR:-/tmp}/mdoc.XXXXXX")
    # two nodes of two cores with two threads
    cat >"$dir/smi.txt" <<'S'
	GPU0	GPU1	CPU Affinity	NUMA Affinity
GPU0	 X 	SYS	0-1,4-5	0
GPU1	SYS	 X 	2-3,6-7	1
S
}

teardown() {
    rm -rf "$dir"
}

@test "--mask explains Slurm's and NCCL's masks" {
    run "$build/muster" doctor --mask 0x200000
    [ "$status" -eq 0 ]
    [[ "$output" == "0x200000 selects CPUs 21"* ]]
    run "$build/muster" doctor --mask ffff,ffffffff,ffffffff,ff000000,00000000,00000000
    [[ "$output" == *"selects CPUs 88-175"* ]]
    run "$build/muster" doctor --mask 0xzz
    [ "$status" -eq 2 ]
    [[ "$output" == *"'0xzz' is not a hexadecimal CPU mask"* ]]
}

@test "case 018: --mask explains lines of a log, and sets in every form" {
    local text want
    while IFS='|' read -r text want; do
        run "$build/muster" doctor --topology "$dir/smi.txt" --mask "$text"
        echo "$text: $output"
        [ "$status" -eq 0 ]
        [ "$output" = "$(printf '%b' "$want")" ]
    done << 'ROWS'
n1:77:91 [0] NCCL INFO Setting affinity for GPU 3 to 0-1,4-5|GPU 3: 0-1,4-5 selects CPUs 0-1,4-5, on NUMA node 0 of this machine
n1:77:91 [1] NCCL INFO Setting affinity for GPU 1 to cc|GPU 1: cc selects CPUs 2-3,6-7, on NUMA node 1 of this machine
NCCL INFO Setting affinity for GPU 0 to ff,ffffffff|GPU 0: ff,ffffffff selects CPUs 0-39, on NUMA nodes 0-1 of this machine
NCCL INFO Setting affinity for GPU 0 to 5|GPU 0: 5 selects CPUs 5, on NUMA node 0 of this machine
NCCL INFO Setting affinity for GPU 0 to 12|GPU 0: 12 selects CPUs 1,4, on NUMA node 0 of this machine; if it is a list, as newer NCCL writes, CPU 12
n1:77:91 [3] NCCL INFO Affinity for GPU 3 is 0-1,4-5. (GPU affinity = 0-1,4-5 ; CPU affinity = 0-7).|GPU 3: 0-1,4-5 selects CPUs 0-1,4-5, on NUMA node 0 of this machine
NCCL INFO Affinity for GPU 0 is 12. (GPU affinity = 12 ; CPU affinity = 12).|GPU 0: 12 selects CPUs 12
NCCL INFO Affinity for GPU 0 is empty, ignoring. (GPU affinity = 0-1,4-5 ; CPU affinity = 2-3).|GPU 0: NCCL sets no affinity: the process may use CPUs 2-3, and those near the GPU are 0-1,4-5
NCCL INFO Affinity for GPU 0 is empty, ignoring. (GPU affinity = ).|GPU 0: NCCL sets no affinity: it found no CPU near the GPU
0-1,4|0-1,4 selects CPUs 0-1,4, on NUMA node 0 of this machine
2,6|2,6 selects CPUs 2,6, on NUMA node 1 of this machine
0x3,0xc|0x3 selects CPUs 0-1, on NUMA node 0 of this machine\n0xc selects CPUs 2-3, on NUMA node 1 of this machine
cpu-bind=MASK - n1, task  1  1 [4711]: mask 0x4 set|task 1: 0x4 selects CPUs 2, on NUMA node 1 of this machine
SLURM_CPU_BIND=quiet,mask_cpu:0x1,0x8|0x1 selects CPUs 0, on NUMA node 0 of this machine\n0x8 selects CPUs 3, on NUMA node 1 of this machine
pid 1's current affinity list: 0-3|0-3 selects CPUs 0-3, on NUMA nodes 0-1 of this machine
ROWS
    run "$build/muster" doctor --topology "$dir/smi.txt" --mask - \
        < <(printf 'Name:\tx\nCpus_allowed:\t33\nCpus_allowed_list:\t0-1,4-5\nMems:\t0\n')
    [ "$status" -eq 0 ]
    [ "$output" = "33 selects CPUs 0-1,4-5, on NUMA node 0 of this machine
0-1,4-5 selects CPUs 0-1,4-5, on NUMA node 0 of this machine" ]
    run "$build/muster" doctor --mask "no set here"
    [ "$status" -eq 2 ]
    [[ "$output" == *"no CPU mask was found"* ]]
}

@test "wrong usage is status 2 with the option's name, an unreadable file status 3 with its own" {
    run "$build/muster" doctor --format xml
    [ "$status" -eq 2 ]
    [[ "$output" == *"--format is text or json, not 'xml'"* ]]
    run "$build/muster" doctor more
    [ "$status" -eq 2 ]
    run "$build/muster" doctor --topology /nonexistent
    [ "$status" -eq 3 ]
    [[ "$output" == *"/nonexistent"* ]]
    run "$build/muster" doctor --gres-conf /nonexistent
    [ "$status" -eq 3 ]
}

@test "case 014: gres.conf against a saved machine, status 1" {
    printf 'Name=gpu File=/dev/nvidia0 Cores=0-1\nName=gpu File=/dev/nvidia1 Cores=0-1\n' >"$dir/gres.conf"
    run "$build/muster" doctor --topology "$dir/smi.txt" --gres-conf "$dir/gres.conf"
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"GPU1: Slurm has CPUs"*"$dir/gres.conf line 2"*"the PCI bus reports CPUs 2-3,6-7 (NUMA 1)"* ]]
}

@test "GPUs of gres.conf that the machine does not show, once a line, where the node is one of slurm.conf" {
    local gres=$dir/gres.conf
    printf 'Name=gpu File=/dev/nvidia[0-1]\nName=gpu File=/dev/nvidia[2-3,7]\nName=gpu File=/dev/nvidia9\n' > "$gres"
    run "$build/muster" doctor --topology "$dir/smi.txt" --gres-conf "$gres"
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"error   slurm    $gres line 2: File=/dev/nvidia[2-3,7]: this machine shows 2 GPUs, and not these"*"-> nvidia-smi -L"* ]]
    [[ "$output" == *"$gres line 3: File=/dev/nvidia[9]: this machine"* ]]
    [[ "$output" != *"$gres line 1: File"* ]]
    ls /dev/nvidia[0-9]* > /dev/null 2>&1 && skip "the rest needs a machine without GPUs"
    printf 'ClusterName=x\nNodeName=localhost\n' > "$dir/slurm.conf"
    doctor # a login node
    [[ "$output" != *"$gres line"* ]]
    echo "NodeName=$(hostname -s) NodeAddr=127.0.0.1" >> "$dir/slurm.conf"
    doctor
    echo "$output"
    [[ "$output" == *"$gres line 1: File=/dev/nvidia[0-1]: this machine shows 0 GPUs, and not these"* ]]
}

# A label of more than 63 characters needs no name server to be refused.
@test "nodes of slurm.conf that do not resolve, once a line; not those of a cloud or with an address" {
    local long
    long=$(printf 'x%.0s' {1..70})
    printf '%s\n' ClusterName=x 'NodeName=localhost CPUs=1' "NodeName=${long}[1-3] State=UNKNOWN" \
        "NodeName=a[1-2] NodeAddr=127.0.0.[1-2]" "NodeName=b NodeAddr=$long" "NodeName=${long}c State=CLOUD" > "$dir/slurm.conf"
    doctor
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"warning slurm    $dir/slurm.conf line 3: node ${long}1: the name ${long}1 does not resolve here, nor do 2 others of the line"*"-> getent hosts ${long}1;"* ]]
    [[ "$output" == *"$dir/slurm.conf line 5: node b: the name $long does not resolve here"$'\n'* ]]
    [ "$(grep -c "slurm.conf line" <<< "$output")" -eq 2 ]
}

@test "JSON is an array of findings with severity, area, what, todo" {
    command -v jq >/dev/null || skip "no jq"
    run bash -c "'$build/muster' doctor --topology '$dir/smi.txt' --format json | jq -r '.[0] | keys | join(\" \")'"
    [ "$output" = "area severity todo what" ]
}

@test "case 015: a shell with an outer step's binding gets a warning" {
    run env -u SLURM_PROCID SLURM_CPU_BIND=quiet,mask_cpu:0x200000 SLURM_CPU_BIND_LIST=0x200000 \
        "$build/muster" doctor --topology "$dir/smi.txt"
    [ "$status" -eq 1 ]
    [[ "$output" == *"SLURM_CPU_BIND=quiet,mask_cpu:0x200000; 0x200000 selects CPUs 21"* ]]
    [[ "$output" == *"unset SLURM_CPU_BIND"* ]]
}

@test "case 027: NCCL_SOCKET_IFNAME=^docker0 is warned about" {
    run env NCCL_SOCKET_IFNAME=^docker0 "$build/muster" doctor --topology "$dir/smi.txt"
    [[ "$output" == *"NCCL_SOCKET_IFNAME=^docker0 allows lo"* ]]
}

@test "case 039: the topology file that the environment names is checked against the machine" {
    data=$top/tests/data
    NCCL_TOPO_FILE=$data/cases/040-azure-ndv5-masks-swapped.xml run "$build/muster" doctor \
        --topology "$data/nccl-xml/azure-ndv5.xml"
    [ "$status" -eq 1 ]
    [[ "$output" == *"error   platform $data/cases/040-azure-ndv5-masks-swapped.xml line 2: numaid 0 has CPUs 48-95, which belong to NUMA node 1: masks or numaids are exchanged"*"(NCCL_TOPO_FILE, the environment)"* ]]
    NCCL_TOPO_FILE=$data/nccl-xml/azure-ndv5.xml run "$build/muster" doctor --all \
        --topology "$data/nccl-xml/azure-ndv5.xml"
    [[ "$output" == *"ok      platform $data/nccl-xml/azure-ndv5.xml fits this machine"* ]]
    NCCL_TOPO_FILE=/nonexistent.xml run "$build/muster" doctor --topology "$data/nccl-xml/azure-ndv5.xml"
    [[ "$output" == *"warning platform /nonexistent.xml: No such file"*"NCCL silently runs without it"* ]]
}

@test "case 039: a graph of four GPUs on a machine with eight, with file and line of who names it" {
    data=$top/tests/data
    printf '# of the image\nNCCL_GRAPH_FILE=%s\n' "$data/cases/039-azure-ncv4-4gpu-graph.xml" >"$dir/nccl.conf"
    NCCL_CONF_FILE=$dir/nccl.conf run "$build/muster" doctor --topology "$data/nccl-xml/azure-ndv5.xml"
    [ "$status" -eq 1 ]
    [[ "$output" == *"error   platform "*"039-azure-ncv4-4gpu-graph.xml is a graph of 4 GPUs, this machine has 8 (NCCL_GRAPH_FILE, $dir/nccl.conf line 2)"* ]]
    NCCL_CONF_FILE=$dir/nccl.conf run "$build/muster" doctor --all --topology "$data/nccl-xml/azure-ncv4.xml"
    [[ "$output" == *"ok      platform "*"is a graph of 4 GPUs"* ]]
}

@test "case 039: the file of the site's muster.conf is checked too, a machine with one NUMA node needs none" {
    printf '<system version="1">\n  <cpu numaid="0" affinity="f" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">\n    <pci busid="0000:10:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>\n  </cpu>\n</system>\n' >"$dir/one.xml"
    printf '[defaults]\ntopo = %s\n' "$dir/one.xml" >"$dir/muster.conf"
    printf 'optional /nowhere/muster.so conf=%s\n' "$dir/muster.conf" >"$dir/plugstack.conf"
    printf 'ClusterName=x\n' >"$dir/slurm.conf"
    SLURM_CONF=$dir/slurm.conf run "$build/muster" doctor --topology "$dir/one.xml"
    echo "$output"
    [[ "$output" == *"a machine with one NUMA node needs no topology file ($dir/one.xml, topo= in $dir/muster.conf)"* ]]
}

# Where plugstack.conf is, with this line in it.
plugstack() {
    printf '# ours\n%s\n' "$1" > "$dir/plugstack.conf"
    printf 'ClusterName=x\n' > "$dir/slurm.conf"
}

doctor() { SLURM_CONF=$dir/slurm.conf run "$build/muster" doctor --all; }

@test "a plugin that is missing at plugstack.conf's path, or is none, is reported with file and line" {
    plugstack "optional /nowhere/muster.so"
    doctor
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"error   slurm    $dir/plugstack.conf line 2: /nowhere/muster.so cannot be loaded (cannot open"*"steps run without Muster"* ]]
    echo text > "$dir/muster.so"
    plugstack "required $dir/muster.so"
    doctor
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"line 2: $dir/muster.so cannot be loaded ("*"): the line has required, so every srun, sbatch and salloc"* ]]
}

@test "the plugin's line is found in a file that plugstack.conf includes, by a pattern beside it" {
    plugstack "include plugstack.conf.d/*.conf"
    mkdir "$dir/plugstack.conf.d"
    echo "optional /nowhere/muster.so" > "$dir/plugstack.conf.d/10-muster.conf"
    doctor
    echo "$output"
    [[ "$output" == *"plugstack.conf.d/10-muster.conf line 1: /nowhere/muster.so cannot be loaded"* ]]
}

@test "the site file: missing, broken, of a wrong mode, a folder, and what it names" {
    local what sentence command n=0
    foreign() { chown 65534 "$1" 2> /dev/null || sentence='' command=''; }
    plugstack "optional /nowhere/muster.so conf=$dir/muster.conf"
    while IFS='|' read -r what sentence command; do
        n=$((n + 1))
        rm -rf "$dir/muster.conf" "$dir/muster.d"
        printf '[defaults]\nmem = prefer\n' > "$dir/muster.conf"
        cd "$dir"
        eval "$what"
        cd "$OLDPWD"
        doctor
        echo "$output"
        [ "$status" -eq 1 ]
        [[ "$output" == *"error   slurm    "*"$sentence"*"-> ${command//DIR/$dir}"* ]]
    done << 'ROWS'
rm muster.conf|plugstack.conf line 2 names
echo bogus = 1 >> muster.conf|muster.conf:3: unknown key 'bogus'
chmod 666 muster.conf|muster.conf is writable by everybody|chmod go-w DIR/muster.conf
chmod 664 muster.conf|muster.conf is writable by its group; it is not read; steps run|chmod go-w DIR/muster.conf
mkdir muster.d; echo '[a]' > muster.d/a.ini; chmod 664 muster.d/a.ini|muster.d/a.ini is writable by its group|chmod go-w DIR/muster.d/a.ini
mkdir muster.d; echo '[a]' > muster.d/a.ini; foreign muster.d/a.ini|muster.d/a.ini belongs to user 65534, not to root; it is not read; steps run|chown root DIR/muster.d/a.ini
chmod 600 muster.conf|muster.conf is not readable by everybody|chmod a+r DIR/muster.conf
rm muster.conf; mkdir muster.conf|muster.conf: not a regular file
truncate -s 300000 muster.conf|muster.conf: larger than 262144 bytes
echo topology = /nowhere.xml >> muster.conf|topology: /nowhere.xml: No such file
mkdir muster.d; echo bogus > muster.d/a.ini|muster.d/a.ini line 1: the line is neither a
ROWS
    [ $n -eq 11 ]
    rm -rf "$dir/muster.d"
    printf '[defaults]\nmem = prefer\n' > "$dir/muster.conf"
    doctor
    echo "$output"
    [[ "$output" == *"ok      slurm    $dir/muster.conf can be read and is well formed"* ]]
}

@test "case 093: plugstack.conf with tabs, a comment and the site file behind a tab" {
    printf '[defaults]\nbogus = 1\n' > "$dir/muster.conf"
    plugstack $'\toptional\t/nowhere/muster.so\tconf='"$dir/muster.conf # conf=/other"
    doctor
    echo "$output"
    [[ "$output" == *"plugstack.conf line 2: /nowhere/muster.so cannot be loaded"* ]]
    [[ "$output" == *"$dir/muster.conf:2: unknown key 'bogus'"* ]]
    mkdir "$dir/more"
    printf 'optional\t/nowhere/muster.so\tconf=%s\n' "$dir/muster.conf" > "$dir/more/a.conf"
    plugstack $'include\tmore/*.conf'
    doctor
    [[ "$output" == *"more/a.conf line 1: /nowhere/muster.so cannot be loaded"* ]]
}

@test "case 093: a word of plugstack.conf that is no argument turns Muster off, and is named" {
    local word sentence
    while IFS='|' read -r word sentence; do
        plugstack "optional /nowhere/muster.so $word"
        doctor
        echo "$output"
        [ "$status" -eq 1 ]
        [[ "$output" == *"error   slurm    $dir/plugstack.conf line 2: $sentence"*"; steps run without Muster"* ]]
        [[ "$output" != *"is well formed"* && "$output" != *"does not exist: Muster is on"* ]]
    done << 'ROWS'
config=/etc/slurm/other.conf|unknown argument 'config=/etc/slurm/other.conf'
conf /etc/slurm/other.conf|unknown argument 'conf'
/etc/slurm/other.conf|unknown argument '/etc/slurm/other.conf'
conf=other.conf|conf= needs an absolute path, not 'other.conf'
conf=|conf= needs an absolute path, not ''
ROWS
}

# Rows: what follows plugstack.conf's first line; the finding; the advice. DIR is the folder.
@test "lines and includes of plugstack.conf without effect: file, line and a command" {
    local lines sentence advice n=0
    ln -s loop "$dir/loop"
    while IFS='|' read -r lines sentence advice; do
        n=$((n + 1))
        plugstack "$(printf %b "${lines//DIR/$dir}")"
        SLURM_CONF=$dir/slurm.conf run "$build/muster" doctor
        echo "$output"
        [ "$status" -eq 1 ]
        [[ "$output" == *" slurm    $dir/plugstack.conf line ${sentence//DIR/$dir}"*"-> ${advice//DIR/$dir}"* ]]
        [[ "$output" != *"no plugstack.conf line"* ]]
    done << 'ROWS'
optinal DIR/muster.so|2: the first word is 'optinal', not optional, required or include: Slurm ignores the line; steps run without Muster|sed -i '2s/[^[:blank:]]\+/optional/' DIR/plugstack.conf
\tOptional DIR/muster.so|2: the first word is 'Optional', not|sed -i '2s/
pyxis.so|2: no file follows 'pyxis.so': Slurm ignores the line|sed -i 2d DIR/plugstack.conf
optional /x/muster.so\noptional /y/muster.so|3 loads muster.so again, after DIR/plugstack.conf line 2: the second line is ignored|sed -i 3d DIR/plugstack.conf
include loop|2 includes DIR/loop, which cannot be opened (Too many levels of symbolic links): every srun, sbatch and salloc stops|rm DIR/loop
include plugstack.conf|2 includes DIR/plugstack.conf, too deep: a file that includes itself|sed -i 2d DIR/plugstack.conf
ROWS
    [ $n -eq 6 ]
    plugstack "opional $dir/muster.so"
    eval "$(SLURM_CONF=$dir/slurm.conf "$build/muster" doctor | sed -n "s/^ *-> \(sed.*plugstack.conf\)$/\1/p")"
    [ "$(sed -n 2p "$dir/plugstack.conf")" = "optional $dir/muster.so" ]
    ln -sf plugstack.conf "$dir/plugstack.conf"
    doctor
    echo "$output"
    [[ "$output" == *"error   slurm    $dir/plugstack.conf cannot be opened (Too many levels"* ]]
    rm "$dir/plugstack.conf"
    plugstack 'include *.d'
    mkdir "$dir/a.d"
    doctor
    echo "$output"
    [[ "$output" == *"warning slurm    $dir/plugstack.conf line 2 includes $dir/a.d, which is not a regular file: it adds no line"* ]]
}

@test "of two lines for the plugin the first one is checked, with its arguments" {
    printf '[defaults]\nbogus = 1\n' > "$dir/muster.conf"
    plugstack "optional /x/muster.so conf=$dir/muster.conf"
    echo 'optional /y/muster.so' >> "$dir/plugstack.conf"
    doctor
    echo "$output"
    [[ "$output" == *"line 2: /x/muster.so cannot be loaded"*"$dir/muster.conf:2: unknown key 'bogus'"* ]]
}

@test "case 093: the file that SLURM_CONF names is read, whatever its name" {
    printf 'PlugStackConfig=%s\n' "$dir/stack" > "$dir/cluster-a.conf"
    echo 'optional /nowhere/muster.so' > "$dir/stack"
    printf 'PlugStackConfig=%s\n' "$dir/other" > "$dir/slurm.conf"
    SLURM_CONF=$dir/cluster-a.conf run "$build/muster" doctor
    echo "$output"
    [[ "$output" == *"$dir/stack line 1: /nowhere/muster.so cannot be loaded"* ]]
    SLURM_CONF=$dir/absent.conf run "$build/muster" doctor
    [ "$status" -eq 1 ]
    [[ "$output" == *"error   slurm    SLURM_CONF names $dir/absent.conf, which cannot be read"* ]]
}

@test "case 095: a file in /dev/shm is named when no process uses it" {
    local file=/dev/shm/nccl-left-by-test-$$
    [ -w /dev/shm ] || skip "no /dev/shm"
    head -c 3000000 /dev/zero > "$file"
    exec 7< "$file"
    run "$build/muster" doctor
    exec 7<&-
    echo "$output"
    [[ "$output" != *"(nccl-left-by-test-$$"* ]]
    run "$build/muster" doctor
    rm -f "$file"
    echo "$output"
    [[ "$output" == *"hint    limits   /dev/shm has "*" that no process uses, "*"ended jobs left memory there"* ]]
}
