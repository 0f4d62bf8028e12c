# SPDX-License-Identifier: Apache-2.0
# A Slurm of a test's own, sourced after real.sh: a controller and two nodes on this host.
# slurm_up [COMMAND...]: starts it; COMMAND runs the nodes, as `unshare` does.
# shellcheck shell=bash disable=SC2154 # variables are the script's
need_root
for word in munged slurmctld slurmd sbatch; do need_command $word; done

slurm_up() {
    local port=$((20000 + $$ % 3000 * 4)) node # below those that clients get
    mkdir -p state spool log munge shared
    chmod 700 munge
    head -c 128 /dev/urandom >munge/key && chmod 400 munge/key
    export SLURM_CONF=$dir/slurm.conf
    cat >slurm.conf <<EOF
ClusterName=test
SlurmctldHost=$(hostname)(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
SlurmctldPort=$port
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=2
NodeName=n[1-2] NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 2))] \\
    CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=train Nodes=ALL Default=YES MaxTime=INFINITE State=UP
EOF
    background munged --foreground --force --key-file="$dir/munge/key" \
        --socket="$dir/munge/socket" --pid-file="$dir/munge/pid" \
        --log-file="$dir/munge/log" --seed-file="$dir/munge/seed"
    ready test -S munge/socket
    background slurmctld -D -c -i
    for node in n1 n2; do background "$@" slurmd -D -N $node; done
    ready two_idle
}
two_idle() { [ "$(sinfo -h -N -o %T | grep -c idle)" = 2 ]; }
