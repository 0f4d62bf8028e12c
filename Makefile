# SPDX-License-Identifier: Apache-2.0
# Thin verbs over CMake and Ninja; everything is built into build/.
BUILD ?= build

.PHONY: all test clean
all: $(BUILD)/build.ninja
	@ninja -C $(BUILD)

$(BUILD)/build.ninja:
	@cmake -S . -B $(BUILD) -G Ninja

test: all
	@ctest --test-dir $(BUILD) --output-on-failure

clean:
	@rm -rf $(BUILD)
