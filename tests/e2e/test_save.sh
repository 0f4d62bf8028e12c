#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tandem save` and `tandem load`: all files of a folder come back, or it is said which cannot.
. "$(dirname "$0")/lib.sh"
"$tandem" help save >/dev/null 2>&1 || { echo "skipped: built without the service"; exit 77; }

mkdir -p state/sub
echo one >state/first
echo two >state/sub/MANIFEST # only the list's own place is taken
for name in state state/ state//; do
    rm -rf back
    run 0 "$tandem" save $name --url "$dir/kept"
    run 0 "$tandem" load back --url "$dir/kept"
    diff -r state back >diff.out || fail "$name: $(cat diff.out)"
done
ln -s state named
run 0 "$tandem" save named --url "$dir/kept"
rm -rf back
run 0 "$tandem" load back --url "$dir/kept"
diff -r state back >diff.out || fail "a link to a folder: $(cat diff.out)"

refused() { # TEXT
    run 2 "$tandem" save state --url "$dir/kept"
    has "$1"
    rm -rf state
    mkdir state
}
echo x >state/MANIFEST
refused 'must not be named MANIFEST'
ln -s /etc/passwd state/link
refused 'state/link: a link, not a file'
mkfifo state/pipe
refused 'state/pipe: not a file'
echo x >"$(printf 'state/a\nb')"
refused 'its name has control characters'
run 0 "$tandem" load back --url "$dir/kept"
diff back/first <(echo one) || fail "what was saved before is gone"
