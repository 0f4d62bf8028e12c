#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The training service over HTTP: every route, streams, files, sweeps, secrets, strangers, a restart
# (service_http.py); tokens and their scopes over TLS, and the client commands (service_tokens.py).
# Test labels: slow
. "$(dirname "$0")/lib.sh"
export TD_BUILD=$build HOME=$dir PYTHONDONTWRITEBYTECODE=1
"$tandem" help serve >/dev/null 2>&1 || { echo "skipped: built without the service"; exit 77; }

mkdir http tokens
python3 "$source/tests/e2e/service_http.py" "$dir/http" >out 2>&1 || fail "over HTTP"
command -v openssl >/dev/null || { echo "skipped: TLS and tokens, no openssl"; exit 77; }
python3 "$source/tests/e2e/service_tokens.py" "$dir/tokens" >out 2>&1 || fail "tokens and clients"
