#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checkpoints in remote storage: sent in the background, whole or absent, fetched and continued with
# the same bits. Here the storage is a folder; test_remote_s3.sh does the same with S3.
. "$(dirname "$0")/lib.sh"
. "$source/tests/e2e/upload.sh"
continues_elsewhere "file:$dir/store/run" "$dir/store/run"

# What is damaged is not taken.
printf x >>"$dir/store/run/$(cat "$dir/store/run/latest")/model.safetensors"
mkdir third
(cd third && "$tandem" train --resume="file:$dir/store/run" -q) >out 2>&1 && fail "a damaged one"
grep -q 'sha256' out || fail "damage is not told"
ls third/runs/run/checkpoints/step-* >/dev/null 2>&1 && fail "a damaged checkpoint is in place"
# A store that refuses does not end the run, but its exit status says so.
"$tandem" train job.yaml -q --set checkpoint.every=end --set checkpoint.upload=/proc/nosuch \
    >out 2>&1
[ $? = 1 ] || fail "nothing was uploaded, and nobody says so"
grep -q 'the last checkpoint was not uploaded: checkpoint.upload: /proc/nosuch' out || fail "text"
# Addresses of other kinds are errors, not folders.
for what in --resume=gs://b/x '--run-dir=s3://b/x' '--set=checkpoint.upload=ftp://h/x'; do
    "$tandem" train job.yaml "$what" >out 2>&1
    [ $? = 2 ] || fail "$what is taken"
    [ "$(wc -l <out)" = 1 ] || fail "$what: not one line"
done
[ ! -e gs: ] && [ ! -e s3: ] && [ ! -e ftp: ] || fail "a folder called like a scheme"
