#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Checkpoints in S3 and on a plain HTTP server that answer 500, cut connections, lose answers and
# are away for a while (upload_faults.py): sent again, whole or absent, and the run does not wait.
. "$(dirname "$0")/lib.sh"
. "$source/tests/e2e/upload_faults.sh"
faults s3
faults http
