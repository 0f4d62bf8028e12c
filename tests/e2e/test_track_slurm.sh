#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# The slurm tracker against a real Slurm of the test's own: a controller and two nodes on this host.
. "$(dirname "$0")/track.sh"
kind=slurm
killed='1\(37\|43\)' # 137 where the script of the member outlives it and writes that down
. "$source/tests/e2e/slurm.sh"
slurm_up
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
