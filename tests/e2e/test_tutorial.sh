#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every command of docs/tutorial.md, in order, as it stands there, and what the text says of the
# results. The second machine is this one under another address, reached by an `ssh` that is a
# script: the agent, the connections and the handshake are those of two machines.
. "$(dirname "$0")/lib.sh"
page=$source/docs/tutorial.md
blocks() { awk -v on="\`\`\`$1" '$0 == on { n++; go = 1; next } /^```$/ { go = 0 } go' "$page"; }

mkdir bin
ln -s "$tandem" bin/tandem
cat >bin/ssh <<'END'
#!/bin/sh
while :; do
    case $1 in
    -o) shift 2 ;;
    -*) shift ;;
    *) break ;;
    esac
done
shift # the host
exec "$@"
END
chmod +x bin/ssh
export PATH=$dir/bin:$PATH

blocks yaml >job.yaml
blocks sh | sed 's/\bother:1\b/127.0.0.2:1/' >commands
[ "$(wc -l <commands)" -ge 12 ] || fail "only $(wc -l <commands) commands found"
n=0
while IFS= read -r command; do
    n=$((n + 1))
    case $command in
    'tandem status'*) ends=1 ;; # the run is over
    *) ends=0 ;;
    esac
    limited bash -c "$command" >out 2>&1 </dev/null
    got=$?
    [ $got = $ends ] || fail "$command: gave $got instead of $ends"
    cp out "out$n"
done <commands

# One digest, however it came about; another rate has another one.
told() { # COMMAND: the last digest it printed
    local k
    k=$(grep -nF -- "$1" commands | head -n 1 | cut -d : -f 1)
    digest "out$k"
}
want=$(told 'train job.yaml')
[ ${#want} = 71 ] || fail "no digest: $want"
for way in '-n 2' '--hosts' '--elastic' 'status elastic'; do
    [ "$(told "$way")" = "$want" ] || fail "$way: $(told "$way") instead of $want"
done
[ "$(told 'lr=0.01')" != "$want" ] || fail "another rate has the same digest"
k=$(grep -n -- '--elastic' commands | cut -d : -f 1)
grep -q 'killed' "out$k" || fail "nobody was killed: $(cat "out$k")"
# The files that the text names.
for file in runs/digits-0001/{report.html,metrics.jsonl} predictions.csv digits.safetensors \
    profiled/{profile.txt,trace.json}; do
    [ -s "$file" ] || fail "there is no $file"
done
grep -q '"step": 252,' runs/digits-0002/metrics.jsonl || fail "the run was not made longer"
