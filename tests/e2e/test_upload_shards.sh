#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Checkpoints that the ranks of parallel.zero upload in shards (upload_faults.py): put together by
# any number of ranks; a rank that is killed over its upload; elastic ranks.
. "$(dirname "$0")/lib.sh"
. "$source/tests/e2e/upload_faults.sh"
for what in shards killed elastic; do faults $what; done
