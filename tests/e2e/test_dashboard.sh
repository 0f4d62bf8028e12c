#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The dashboard of the training service in a real browser (dashboard.py). TD_PICTURES names a folder
# for pictures of all pages.
# Test labels: slow
. "$(dirname "$0")/lib.sh"
export TD_BUILD=$build HOME=$dir PYTHONDONTWRITEBYTECODE=1
"$tandem" help serve >/dev/null 2>&1 || { echo "skipped: built without the service"; exit 77; }
command -v chromium >/dev/null || { echo "skipped: no chromium (package chromium)"; exit 77; }

mkdir pages
python3 "$source/tests/e2e/dashboard.py" "$dir/pages" >out 2>&1 || fail "the dashboard"
[ -z "${TD_PICTURES:-}" ] || { mkdir -p "$TD_PICTURES" && cp pages/*.png "$TD_PICTURES"; }
