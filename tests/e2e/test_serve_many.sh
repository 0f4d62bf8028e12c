#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# 10,000 queued jobs of a real service that is killed: all of them are there afterwards. Times are
# printed, and judged by nobody here.
. "$(dirname "$0")/lib.sh"
"$tandem" help serve >/dev/null 2>&1 || { echo "skipped: built without the service"; exit 77; }
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
timeout 400 "$source/bench/service/many" "$build" >out 2>&1 ||
    fail "jobs of a service that was killed"
cat out
