#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# The slurm tracker against a real Slurm of the test's own: a controller and two nodes on this host.
. "$(dirname "$0")/track.sh"
kind=slurm
killed='1\(37\|43\)' # 137 where the script of the member outlives it and writes that down
need_root
for word in munged slurmctld slurmd sbatch; do need_command $word; done
port=$((20000 + $$ % 3000 * 4)) # below those that clients get
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
background munged --foreground --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" \
    --pid-file="$dir/munge/pid" --log-file="$dir/munge/log" --seed-file="$dir/munge/seed"
ready test -S munge/socket
background slurmctld -D -c -i
for node in n1 n2; do background slurmd -D -N $node; done
two_idle() { [ "$(sinfo -h -N -o %T | grep -c idle)" = 2 ]; }
ready two_idle
echo "slurm: {dir: $dir/shared}" >service.yaml
left() { find shared -mindepth 1 -maxdepth 1 | wc -l; }

all_of_it
results_are_published

# What cannot run is reported, what Slurm refuses leaves nothing; a job that waits is cancelled.
spec 'name: big' 'resources: {members: 2, slots: 64}' <<<'exit 0'
drive job-2-0-zz start wait:TROUBLE wait:PENDING kill wait:EXITED forget
has 'TROUBLE member 0.*PartitionConfig'
echo "slurm: {dir: $dir/shared, partition: nosuch}" >service.yaml
drive job-2-1-aa start wait:FAILED
has 'FAILED member 0.*class launch.*sbatch.*partition'
none_left "after a refusal"
echo "slurm: {dir: $dir/shared}" >service.yaml
spec 'name: first' 'resources: {members: 2, slots: 2}' 'grace_s: 1' <<<'sleep 600'
drive job-2-2-bb start wait:STARTED
spec 'name: second' 'resources: {members: 2, slots: 2}' <<<'exit 0'
drive job-2-3-cc start stop wait:EXITED forget
has 'EXITED member 0 status 143'
spec 'name: first' 'resources: {members: 2, slots: 2}' 'grace_s: 1' <<<'sleep 600'
drive job-2-2-bb adopt wait:STARTED kill wait:EXITED forget
none_left "in the end"
