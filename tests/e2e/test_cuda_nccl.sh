#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# NCCL between ranks with a GPU each, on emulated GPUs and an emulated NCCL (tests/emulator/): over
# TCP and within a host whose GPUs do not reach each other, with the digest of one rank; refused
# where two ranks share a GPU; a rank that dies in the middle of a call ends or resumes the run.
. "$(dirname "$0")/lib.sh"

emulated=$build/tests/libemulated_cuda.so
if [ ! -e "$emulated" ]; then
    echo "skipped: this build has no CUDA, so there is no emulated GPU"
    exit 77
fi
export TANDEM_CUDA_DRIVER=$emulated TANDEM_CUDA_LIBS=none EMULATED_GPUS=2
export TANDEM_NCCL=$build/tests/libemulated_nccl.so TANDEM_LOG=train=debug,backend=debug,coll=info
job=$source/tests/dist/jobs/cnn.yaml
common=(--set train.backend=cuda --set log.report=false --set log.tensorboard=false)
train() {
    rm -rf run
    run 0 "$tandem" train "$job" --run-dir run --set train.steps=4 --set train.micro_batches=8 \
        "${common[@]}" "$@"
}
by_nccl() { has "gradients of $1 GPUs go through NCCL 2.28.3"; }
not_used() { has "NCCL is not used: $1; gradients go through memory of the host"; }
tcp=(--set parallel.transport=tcp)

run 0 "$tandem" devices
has '^cuda  libraries: .*, NCCL 2\.28\.3$'
TANDEM_NCCL=none run 0 "$tandem" devices
has '^cuda  libraries: .*, NCCL missing '
train
want=$(digest)
said NCCL && fail "one rank asks for NCCL"
train -n 2 "${tcp[@]}"
same "two ranks over TCP"
by_nccl 2
EMULATED_GPUS=3 train -n 3 "${tcp[@]}"
same "three ranks over TCP"
by_nccl 3
EMULATED_GPUS=4 train -n 4 "${tcp[@]}" --set parallel.pipeline=2
same "two stages, two replicas over TCP"
by_nccl 2
EMULATED_APART=1 train -n 2
same "two GPUs of a host that do not reach each other"
by_nccl 2
EMULATED_APART=1 train --strategy mirrored
same "two such GPUs of a process"
by_nccl 2
TANDEM_ENGINE=nccl train -n 2
same "two GPUs that reach each other, but NCCL was asked for"
by_nccl 2

# Of others' gradients a GPU holds what it adds up, however many ranks there are.
peak() { grep -o '"device_peak": [0-9]*' run/metrics.jsonl | tail -n 1 | grep -o '[0-9]*$'; }
EMULATED_APART=1 train -n 2
of_two=$(peak)
EMULATED_GPUS=4 EMULATED_APART=1 train -n 4
same "four GPUs of a host that do not reach each other"
by_nccl 4
[ "$(peak)" -le "$of_two" ] || fail "a GPU of 4 ranks has $(peak) bytes in use, of 2 ranks $of_two"

# Where it cannot be, or is not wanted.
train -n 3 "${tcp[@]}"
same "three ranks on two GPUs"
not_used 'ranks 0 and 2 share a GPU, which it refuses'
TANDEM_NCCL=none train -n 2 "${tcp[@]}"
same "without the library"
not_used 'rank 0 has no libnccl.so.2 that can be used'
TANDEM_ENGINE=native train -n 2 "${tcp[@]}"
same "TANDEM_ENGINE=native"
said NCCL && fail "NCCL is asked for with TANDEM_ENGINE=native"
EMULATED_GPUS=1 TANDEM_ENGINE=nccl "$tandem" train "$job" --run-dir never -n 2 "${common[@]}" \
    --set train.steps=4 >out 2>&1 && fail "two ranks have NCCL on one GPU"
has 'the engine is nccl, but NCCL is not for these ranks: ranks 0 and 1 share a GPU'
run 2 env TANDEM_ENGINE=nckl "$tandem" train "$job" --run-dir never -n 2 "${common[@]}"
has 'unknown engine "nckl"; known: native, mpi, nccl'
# What asks for NCCL is told where nothing uses it.
asked_in_vain() { # WHAT ARGS...
    rm -rf never
    TANDEM_ENGINE=nccl "$tandem" train "$job" --run-dir never "${common[@]}" --set train.steps=4 \
        --set train.micro_batches=8 "${@:2}" >out 2>&1 && fail "$1 uses NCCL"
    has "the engine is nccl, but with sync rule $1 nothing goes through NCCL"
}
asked_in_vain 'exact-shm on device host' -n 2 --set train.backend=cpu
asked_in_vain 'exact-buckets on device host' -n 2 --set train.backend=cpu "${tcp[@]}"
asked_in_vain '[a-z0-9-]* on device cuda' -n 2 --set parallel.zero=1
asked_in_vain '[a-z0-9-]* on device cuda' -n 2 --set parallel.pipeline=2
EMULATED_GPUS=4 TANDEM_ENGINE=nccl train -n 4 --set parallel.pipeline=2
same "two stages, two replicas in shared memory"
by_nccl 2
cat >one.sh <<'EOF'
[ "$TANDEM_RANK" = 1 ] && export TANDEM_ENGINE=nccl
exec "$@"
EOF
run 2 "$tandem" launch -n 2 -- bash one.sh "$tandem" train "$job" --run-dir never "${common[@]}"
has 'engine nccl.*: give all ranks the same'

# NCCL does not encrypt.
over_tls() { # STATUS TANDEM_ENGINE=...
    rm -rf run-tls
    run "$1" env "${@:2}" "$tandem" launch -n 2 --tls -- "$tandem" train "$job" --run-dir run-tls \
        --set train.steps=4 --set train.micro_batches=8 "${tcp[@]}" "${common[@]}"
}
over_tls 0
same "two ranks over TLS"
not_used 'the job is encrypted (--tls), and what NCCL sends is not'
said 'go through NCCL' && fail "gradients of an encrypted job go through NCCL"
over_tls 1 TANDEM_ENGINE=nccl
has 'the engine is nccl, but NCCL is not for these ranks: the job is encrypted (--tls)'

# A rank that dies: elastic ranks take a GPU each, too.
train -n 2 "${tcp[@]}" --elastic --faults 'kill rank=1 at=step:2'
same "a rank was killed, over TCP"
by_nccl 2
has 'device cuda:1: emulated GPU'
EMULATED_APART=1 train -n 2 --elastic --faults 'kill rank=0 at=step:2'
same "rank 0 was killed"
by_nccl 2
"$tandem" train "$job" --run-dir never-ends -n 2 "${tcp[@]}" "${common[@]}" --set train.steps=4 \
    --faults 'kill rank=1 at=step:2' >out 2>&1 && fail "a run without rank 1 succeeds"
has 'tandem train: .*rank 1 .*died'
said 'remote process exited' && fail "NCCL's words hide who died"

# A rank that is stopped is named while the others wait, and when they give up.
"$tandem" train "$job" --run-dir nor-this -n 2 "${tcp[@]}" "${common[@]}" --set train.steps=4 \
    --set parallel.timeout=20 --faults 'stop rank=1 at=step:2' >out 2>&1 &&
    fail "a run without rank 1 succeeds"
has 'stall: .*all_[a-z_]* #[0-9]* ([0-9]* u8, nccl).* has waited .* for rank 1 (host .*): stopped'
has 'NCCL: rank 0: all-[a-z-]*: rank 1 did not come in time'

# Bits that do not matter: NCCL adds up.
job=$source/examples/tabular.yaml
any_bits() {
    rm -rf run
    run 0 "$tandem" train "$job" --run-dir run "${common[@]}" --set train.steps=4 -n 2 \
        "${tcp[@]}" --set train.reproducible=false
}
TANDEM_ENGINE=native any_bits
want=$(digest)
any_bits
same "a sum of two by NCCL" # of two numbers there is one order
by_nccl 2
EMULATED_RANK=0 run 0 "$tandem" train "$job" --run-dir run-mixed --set train.backend=auto \
    --set train.steps=4 -n 2 --set train.reproducible=false
not_used 'rank 1 has no GPU'
