#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Groups of the tracker process through a real service (frameworks.py).
# Test labels: slow
. "$(dirname "$0")/lib.sh"
export TD_BUILD=$build HOME=$dir PYTHONDONTWRITEBYTECODE=1 PATH=$build:$PATH
"$tandem" help serve >/dev/null 2>&1 || { echo "skipped: built without the service"; exit 77; }

mkdir service
limited python3 "$source/tests/e2e/frameworks.py" "$dir/service" >out 2>&1 || fail "frameworks"
grep skipped out || true
