# SPDX-License-Identifier: Apache-2.0
# Thin verbs over CMake and Ninja; everything is built into build/ (sanitizers: build-asan/,
# build-tsan/). Options: BUILD=DIR, WERROR=1, JOBS=N, FLAKY=DIR (tests; tools/run-tests), JSON=FILE
# (bench), PYTHON=a Python with PyTorch (bench-pipeline, bench-tensor, bench-data), PREFIX=DIR and
# DESTDIR=DIR (install).
BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
run_tests = tools/run-tests $(if $(FLAKY),--flaky $(FLAKY)) -j$(JOBS)
cmake_args = -G Ninja -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(if $(WERROR),-DTD_WERROR=ON)

.PHONY: all setup configure test test-fast test-full lint format soak soak-comm soak-service model \
        bench bench-torch bench-comm bench-pipeline bench-ddp bench-elastic bench-data \
        bench-service bench-ps bench-sync bench-tensor demo install sanitize asan tsan fuzz \
        gpu-bundle test-gpu bench-gpu sanitize-gpu clean help
all: configure ## build everything
	@ninja -C $(BUILD) -j$(JOBS)

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: ## install missing Debian packages (root or sudo)
	@tools/setup

# CMake runs again by itself when its files change; only a new folder or new options need it here.
configure:
	@test -f $(BUILD)/build.ninja -a -z "$(WERROR)" || cmake -S . -B $(BUILD) $(cmake_args)

test: setup ## install what is missing, build, run all tests
	@tools/setup-cuda || echo "setup-cuda: device code is neither compiled nor tested" >&2
	@$(MAKE) --no-print-directory all
	@$(run_tests) $(BUILD)

test-fast: all ## the tests that take a moment each: under a minute
	@$(run_tests) $(BUILD) -L fast

test-full: all ## all tests, with whole matrices and deep searches
	@$(run_tests) $(BUILD) -C full

lint: all ## all static checks
	@tools/lint/run $(BUILD)

format: ## rewrite the C, C++ and CUDA files as .clang-format says
	@git -c safe.directory='*' ls-files -z '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' | \
	    xargs -0 clang-format -i

bench: all ## run the benchmarks; JSON=FILE also writes the numbers
	@bench/run $(BUILD) $(if $(JSON),--json $(abspath $(JSON)))

bench-torch: all ## tandem beside PyTorch, in turn, in one run
	@bench/torch/run $(BUILD) $(if $(JSON),--json $(abspath $(JSON)))

model: all ## the membership protocol exhaustively, two events deeper than in the tests
	@TD_TEST_FULL=1 $(BUILD)/tests/test_membership_model

soak-comm: all ## 1000 seeded fault schedules on tcp; SEED=N replays one
	@TD_TEST_FULL=1 $(if $(SEED),TD_SOAK_SEED=$(SEED)) $(BUILD)/tests/test_comm_soak

bench-comm: all ## collectives beside Open MPI and gloo; QUICK=1: under three minutes
	@bench/comm/run $(BUILD) $(if $(QUICK),--quick) $(if $(JSON),--json $(abspath $(JSON)))

SOAK_SECONDS ?= 600
soak-service: all ## 1,000,000 jobs through the scheduler, invariants after every event
	@TD_TEST_FULL=1 $(if $(SEED),TD_SOAK_SEED=$(SEED)) $(BUILD)/tests/test_sched_soak

soak: all ## 16 elastic ranks, a fault every 10 s for SOAK_SECONDS=600, beside a run without
	@tests/soak/run $(BUILD) --seconds $(SOAK_SECONDS) $(if $(SEED),--seed $(SEED)) \
	    $(if $(JSON),--json $(abspath $(JSON)))

bench-elastic: all ## from kill -9 to the next finished step, beside torchrun
	@bench/elastic/run $(BUILD) $(if $(JSON),--json $(abspath $(JSON)))

bench-service: all ## gRPC calls to tandem serve beside libgrpc in C and grpcio in Python
	@bench/service/run $(BUILD) $(if $(JSON),--json $(abspath $(JSON)))

bench-ps: all ## push and pull of a parameter server, stragglers; PS_LITE=a built ps-lite: beside it
	@bench/ps/run $(BUILD) $(if $(PS_LITE),--ps-lite $(abspath $(PS_LITE))) \
	    $(if $(JSON),--json $(abspath $(JSON)))

bench-ddp: all ## data parallel training beside PyTorch DDP; QUICK=1: a first look
	@bench/ddp/run $(BUILD) $(if $(QUICK),--quick) $(if $(JSON),--json $(abspath $(JSON)))

bench-sync: all ## every sync rule side by side; SLOW=1: with a straggler too; QUICK=1: few samples
	@bench/sync/run $(BUILD) $(if $(QUICK),--quick) $(if $(SLOW),--slow) \
	    $(if $(JSON),--json $(abspath $(JSON)))

bench-pipeline: all ## pipelines beside torch.distributed.pipelining; PYTHON=one that has PyTorch
	@bench/pipeline/run $(BUILD) $(if $(PYTHON),--python $(PYTHON)) \
	    $(if $(JSON),--json $(abspath $(JSON)))

bench-tensor: all ## tensor parallel ranks beside torch.distributed.tensor
	@bench/tensor/run $(BUILD) $(if $(PYTHON),--python $(PYTHON)) \
	    $(if $(JSON),--json $(abspath $(JSON)))

demo: setup ## build, train examples/digits.yaml, end with the path of its report
	@$(MAKE) --no-print-directory all
	@$(BUILD)/tandem train examples/digits.yaml

install: all ## install the program, libraries, headers, tandem.pc and the CMake package
	@cmake --install $(BUILD) --prefix $(PREFIX)

sanitize: asan tsan ## run the tests under address, undefined and thread sanitizers

asan:
	@$(MAKE) --no-print-directory all BUILD=build-asan \
	    cmake_args="-G Ninja -DTD_SANITIZE=address,undefined $(if $(WERROR),-DTD_WERROR=ON)"
	@tools/with-sanitizers $(run_tests) build-asan

tsan:
	@$(MAKE) --no-print-directory all BUILD=build-tsan \
	    cmake_args="-G Ninja -DTD_SANITIZE=thread $(if $(WERROR),-DTD_WERROR=ON)"
	@tools/with-sanitizers $(run_tests) build-tsan

bench-data: all ## the data pipeline beside PyTorch's DataLoader
	@bench/data/run $(BUILD) $(if $(PYTHON),--python $(PYTHON)) \
	    $(if $(JSON),--json $(abspath $(JSON)))

FUZZ_SECONDS ?= 60
fuzz: ## run the fuzzers of tests/fuzz, FUZZ_SECONDS=60 each
	@test -f build-fuzz/build.ninja || CC=clang cmake -S . -B build-fuzz -G Ninja -DTD_FUZZ=ON \
	    -DTD_SANITIZE=address,undefined
	@ninja -C build-fuzz -j$(JOBS) fuzzers
	@tests/fuzz/run build-fuzz --seconds $(FUZZ_SECONDS)

.PHONY: image
image: all ## build/tandem-image.tar: an OCI image that runs the service (docs/service.md)
	@tools/oci-image $(BUILD) $(BUILD)/tandem-image.tar

gpu-bundle: ## build-gpu/: tests and benchmarks to run on a machine with a GPU (docs/gpu.md)
	@cmake -S . -B $(BUILD)-bundle $(cmake_args) -DTD_CUDA=ON -DTD_ONEDNN=OFF >/dev/null
	@ninja -C $(BUILD)-bundle -j$(JOBS) tandem_cmd test_device test_block_cache \
	    test_op_backends test_golden_train test_nccl bench_gpu
	@tools/gpu-bundle $(BUILD)-bundle build-gpu

# On this machine, if it has a GPU. ONLY=ranks: a part of it.
test-gpu: gpu-bundle ## is this build right on the GPU of this machine? (docs/gpu.md)
	@build-gpu/test-gpu $(if $(ONLY),--only $(ONLY))

bench-gpu: gpu-bundle ## training steps on the GPU of this machine, beside PyTorch
	@build-gpu/bench-gpu $(if $(ONLY),--only $(ONLY))

sanitize-gpu: gpu-bundle ## the device and operator tests under compute-sanitizer
	@build-gpu/sanitize-gpu $(if $(ONLY),--only $(ONLY))

clean: ## remove all build folders
	@rm -rf $(BUILD) $(BUILD)-bundle build-gpu build-asan build-tsan build-fuzz
