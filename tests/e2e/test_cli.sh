#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program's surface: help, manual page and completion name every command and flag; every command
# answers nonsense with exactly one line on standard error and status 2, and leaves nothing behind.
. "$(dirname "$0")/lib.sh"
go_on=1

cat >job.yaml <<'END'
name: tiny
model: [flatten, {linear: {out: 8, act: relu}}, linear]
data: {source: spirals, count: 200, split: {valid: 0.2, test: 0.2}}
train: {batch: 20, steps: 8, optimizer: {name: sgd, lr: 0.1}}
END

# ok COMMAND...: status 0, nothing on standard error
ok() {
    limited "$tandem" "$@" >out 2>err || fail "tandem $*: status $?: $(cat err)"
    [ ! -s err ] || fail "tandem $*: standard error: $(cat err)"
}
# wrong STATUS PATTERN COMMAND...: that status, one line on standard error that has the pattern
wrong() {
    local want=$1 pattern=$2
    shift 2
    limited "$tandem" "$@" >out 2>err
    local got=$?
    [ $got -eq "$want" ] || fail "tandem $*: status $got, expected $want: $(cat err)"
    [ "$(wc -l <err)" -eq 1 ] || fail "tandem $*: not one line: $(cat err)"
    grep -q -- "$pattern" err || fail "tandem $*: expected '$pattern': $(cat err)"
}

# --- Help, manual page and completion, all from the same tables ----------------------------------
ok --help
for word in 'Exit status' 130 TANDEM_ISA metrics.jsonl; do
    grep -q -- "$word" out || fail "--help lacks $word"
done
commands=$(sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' out)
[ "$(wc -w <<<"$commands")" -ge 9 ] || fail "--help lists only: $commands"
ok help --man
cp out tandem.1
for shell in bash zsh fish; do
    ok completion $shell
    cp out "completion.$shell"
done
for c in $commands; do
    ok help "$c"
    cp out help.txt
    ok "$c" --help
    cmp -s out help.txt || fail "$c --help and help $c differ"
    grep -q "^Examples:" help.txt || fail "help $c has no examples"
    grep -q "^\.SS tandem $c$" tandem.1 || fail "the manual page lacks $c"
    for s in completion.*; do
        grep -q -w -- "$c" "$s" || fail "$s lacks $c"
    done
    for flag in $(grep -o -- '^  \(-., \)\?--[a-z-]*' help.txt | grep -o -- '--.*'); do
        [ "$flag" = --help ] && continue
        roff=${flag//-/\\\\-}
        grep -q -- "$roff" tandem.1 || fail "the manual page lacks $flag of $c"
        grep -q -- "$flag" completion.bash || fail "bash completion lacks $flag of $c"
        grep -q -- "$flag" completion.zsh || fail "zsh completion lacks $flag of $c"
        grep -q -- "subcommand_from $c' -l ${flag#--}\b" completion.fish ||
            fail "fish completion lacks $flag of $c"
    done
done
cmp -s tandem.1 "$build/tandem.1" || fail "the built manual page is not the program's"
if command -v man >/dev/null; then
    warnings=$(LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z \
        tandem.1 2>&1 >/dev/null)
    [ -z "$warnings" ] || fail "man: $warnings"
    [ "$(man -l tandem.1 2>/dev/null | wc -l)" -gt 100 ] || fail "the manual page renders short"
fi
bash -n completion.bash || fail "completion.bash is no bash"
# What bash offers after "tandem tr" and after "tandem train --resu".
offers=$(bash -c 'source completion.bash; COMP_WORDS=(tandem tr); COMP_CWORD=1; _tandem
    echo "${COMPREPLY[@]}"; COMP_WORDS=(tandem train --resu); COMP_CWORD=2; _tandem
    echo "${COMPREPLY[@]}"; COMP_WORDS=(tandem eval --part ""); COMP_CWORD=3; _tandem
    echo "${COMPREPLY[@]}"')
[ "$offers" = $'train\n--resume\ntrain valid test' ] || fail "bash completes to: $offers"
while read -r example; do # those that need nothing
    # shellcheck disable=SC2086
    ok ${example#tandem }
done < <("$tandem" help help | sed -n 's/^  \(tandem help\)/\1/p')
ok help job
ok help job keys
ok help job sync
ok version
ok --version
"$tandem" help >/dev/full 2>err && fail "help to a full disk succeeds"
[ "$(wc -l <err)" -eq 1 ] || fail "help to a full disk: $(cat err)"

# --- Nonsense to the program and the parser ------------------------------------------------------
wrong 2 'expected a command'
wrong 2 'did you mean train' trian job.yaml
wrong 2 'unknown command' qqqqqqqq
wrong 2 'did you mean --json' train job.yaml --jsno
wrong 2 'unknown flag' train job.yaml --zzzzzzzzzz
wrong 2 'unknown flag -Z' train job.yaml -Z
wrong 2 'unknown flag --epochs; did you mean --set train.epochs=3?' train job.yaml --epochs 3
wrong 2 'unknown flag --batch-size; did you mean --set train.batch=8?' train job.yaml --batch-size=8
wrong 2 'unknown flag --lr; did you mean --set train.optimizer.lr=VALUE?' check job.yaml --lr
wrong 2 'takes no value' train job.yaml --json=1
wrong 2 'needs a value' train job.yaml --set
wrong 2 'needs a value' train --set --json job.yaml
wrong 2 "unexpected 'b.yaml'" train job.yaml b.yaml
wrong 2 'expected' eval
wrong 2 'unknown command' help nonsense-topic
wrong 2 'unexpected' help train eval
wrong 2 'unknown section nonsense' help job nonsense
wrong 2 'known: bash, zsh, fish' completion tcsh
wrong 2 'unexpected' version 7

# --- Nonsense to each command --------------------------------------------------------------------
mkdir empty
printf 'x' >file
wrong 2 'nosuch.yaml' train nosuch.yaml
wrong 2 'expected JOB.yaml' train
wrong 2 'is a directory' train empty
wrong 2 'file' train file
wrong 2 'threads' train job.yaml --threads 0
wrong 2 'threads' train job.yaml --threads lots
wrong 2 'threads' train job.yaml -j 99999
wrong 2 'train.batch' train job.yaml --set train.batch=-1
wrong 2 'nosuch.key' train job.yaml --set nosuch.key=1
wrong 2 'train.sync.rule: expected one of auto, .* did you mean zero' train job.yaml --sync zeor
wrong 2 'the sync rule zero needs parallel.zero' train job.yaml --sync zero -n 2
wrong 2 'zero cannot be combined with parallel.backup' train job.yaml --sync zero -n 2 \
    --set parallel.zero=1 --set parallel.backup=1
wrong 2 'train.sync.tau: unknown key; known: rule' check job.yaml --sync exact-shm \
    --set train.sync.tau=4
wrong 2 'exact-local is not for 2 ranks' train job.yaml --sync exact-local -n 2
wrong 2 'exact-shm is not for 1 rank' train job.yaml --sync exact-shm
wrong 2 "no run of 'tiny' in runs/; train it first" train job.yaml --resume
wrong 2 "is not a run's directory" train job.yaml --resume=empty
wrong 2 'not a directory' train job.yaml --run-dir file
wrong 2 'cannot create the directory' train job.yaml --run-dir file/sub
wrong 2 'nosuch' eval nosuch
wrong 2 'not a run' eval empty
wrong 2 "no run of 'tiny' in runs/; train it first" eval job.yaml
wrong 2 'nosuch' predict nosuch -o p.csv
wrong 2 'expected --output' predict job.yaml
wrong 2 'ending in' predict job.yaml -o p.xls
wrong 2 'nosuch.yaml' check nosuch.yaml
wrong 2 'nosuch' inspect nosuch
wrong 2 'no checkpoint' inspect empty
wrong 2 'file' inspect file
wrong 2 'not a run' export nosuch -o m.npz
wrong 2 'expected --output' export empty
wrong 2 'ending in' export empty -o m.bin
wrong 2 'no such directory' export empty -o nosuch/m.npz
[ "$(find . -mindepth 1 -newer file ! -name out ! -name err | wc -l)" -eq 0 ] ||
    fail "left behind: $(find . -mindepth 1 -newer file)"

# --- The same commands with good input -----------------------------------------------------------
ok check job.yaml
for word in 'batch: 20' linear 'trained parameters' memory 'job sha256:'; do
    grep -q "$word" out || fail "check lacks $word"
done
ok check -q job.yaml
[ ! -s out ] || fail "check -q prints"
ok check job.yaml --set=train.batch=50 --set train.steps=3
# A large model is looked at without a number of it in memory: 400 million weights, 1.6 GB.
python3 - "$tandem" <<'END' || fail "check takes the memory of the model"
import resource, subprocess, sys
subprocess.run([sys.argv[1], "check", "-q", "job.yaml", "--set",
                "model=[flatten, {linear: 20000}, {linear: 20000}, linear]"], check=True)
assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 400000
END
ok train job.yaml
tail -2 out | head -1 | grep -Eq '^digest sha256:[0-9a-f]{64}$' || fail "no digest: $(cat out)"
tail -1 out | grep -q '^report runs/tiny-0001/report.html$' || fail "no report: $(tail -1 out)"
for f in job.yaml metrics.jsonl report.html checkpoints/latest; do
    [ -s runs/tiny-0001/$f ] || fail "the run lacks $f"
done
ls runs/tiny-0001/events.out.tfevents.* >/dev/null || fail "the run lacks event files"
ok train job.yaml -q
[ "$(wc -l <out)" -eq 1 ] || fail "--quiet prints more than a line: $(cat out)"
ok train job.yaml --profile --json
python3 - out runs/tiny-0003/trace.json <<'END' || fail "--json or trace.json"
import json, sys
kinds = [json.loads(line)["kind"] for line in open(sys.argv[1])]
assert kinds[0] == "begin" and kinds.count("step") == 8 and "end" in kinds, kinds
assert len(json.load(open(sys.argv[2]))) > 8
END
grep -q linear runs/tiny-0003/profile.txt || fail "profile.txt names no node"
digests=$(for i in 1 2 3; do
    "$tandem" inspect runs/tiny-000$i | sed -n 's/.*weights *//p'
done | sort -u | wc -l)
[ "$digests" -eq 1 ] || fail "three runs of one job have $digests digests"

for where in runs/tiny-0001 runs/tiny-0001/checkpoints/step-00000008 job.yaml; do
    ok eval "$where"
    grep -q accuracy out || fail "eval $where: $(cat out)"
done
ok eval runs/tiny-0001 --checkpoint best --part valid --json
python3 -c 'import json; r = json.load(open("out"))
assert r["part"] == "valid" and r["samples"] == 100 and 0 <= r["metrics"]["accuracy"] <= 1, r' ||
    fail "eval --json: $(cat out)"
for ext in csv jsonl npy; do
    ok predict runs/tiny-0001 --part test -o p.$ext
done
python3 - <<'END' || fail "predictions"
import csv, json
rows = list(csv.DictReader(open("p.csv")))
lines = [json.loads(line) for line in open("p.jsonl")]
assert len(rows) == len(lines) == 100, (len(rows), len(lines))
for r, l in zip(rows, lines):
    p = [float(v) for k, v in r.items() if k not in ("row", "prediction")]
    assert abs(sum(p) - 1) < 1e-5 and abs(max(p) - l["probability"]) < 1e-7
    assert r["prediction"] == str(l["prediction"])
assert open("p.npy", "rb").read(6) == b"\x93NUMPY"
END

# New samples, without labels, for a model of named classes.
python3 - <<'END'
import random
random.seed(1)
with open("train.csv", "w") as f, open("new.csv", "w") as g:
    f.write("a,b,kind\n")
    g.write("a,b\n")
    for i in range(200):
        side = random.choice((-1, 1))
        a, b = side + random.gauss(0, 0.2), random.gauss(0, 1)
        f.write(f'{a},{b},{["blue", "red"][side > 0]}\n')
        g.write(f"{a},{b}\n")
END
cat >kinds.yaml <<'END'
model: [{linear: 8, act: relu}, linear]
data: {source: csv, train: train.csv, label: kind}
train: {batch: 20, epochs: 5, optimizer: {name: adam, lr: 0.02}}
END
ok train kinds.yaml -q
ok predict runs/kinds-0001 --input new.csv -o new.jsonl
python3 - <<'END' || fail "predictions of new samples"
import csv, json
said = [json.loads(line)["prediction"] for line in open("new.jsonl")]
right = [row["kind"] for row in csv.DictReader(open("train.csv"))]
assert len(said) == 200 and sum(a == b for a, b in zip(said, right)) > 190, said[:5]
END
wrong 2 'no column' eval runs/kinds-0001 --set data.test=new.csv
# New samples are normalised as in training, though the test share is not the test part now.
ok train kinds.yaml -q --set data.split.test=0.3 --set data.maps=[normalize] --run-dir shares
cp train.csv "all #1: new.csv"
ok predict shares --input "all #1: new.csv" -o all.csv
ok predict shares --part train -o part.csv
python3 - <<'END' || fail "--input changes what the model was trained with"
rows = {name: {line.split(",", 1)[1] for line in open(name)} for name in ("all.csv", "part.csv")}
assert len(rows["part.csv"]) > 100 and rows["part.csv"] <= rows["all.csv"]
END
wrong 2 'spirals cannot read' predict runs/tiny-0001 --input new.csv -o all.csv

ok inspect runs/tiny-0001
for word in 'step  *8' 'samples seen' sha256 'linear1.weight'; do
    grep -q "$word" out || fail "inspect lacks $word: $(cat out)"
done
ok inspect runs/tiny-0001/checkpoints/step-00000008/model.safetensors
ok inspect runs/tiny-0001 --checkpoint step-8
ok export runs/tiny-0001 -o m.safetensors
ok export runs/tiny-0001 -o m.npz --checkpoint=best
ok inspect m.safetensors
python3 -c 'import zipfile; assert "linear1.weight.npy" in zipfile.ZipFile("m.npz").namelist()' ||
    fail "m.npz"

# Names out of a file do nothing to the terminal.
python3 - <<'END'
import json, struct
header = json.dumps({"__metadata__": {"k\x1b[1m": "v\x1b]0;t\x07"},
                     "w\x1b[2J": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
open("escapes.safetensors", "wb").write(struct.pack("<Q", len(header)) + header + bytes(4))
END
ok inspect escapes.safetensors
! grep -q "$(printf '\033')" out || fail "inspect prints an escape sequence"
grep -qF 'w\x1b[2J' out || fail "inspect does not print the name: $(cat out)"

# Nonsense that needs a run.
wrong 2 'already has a run' train job.yaml --run-dir runs/tiny-0001
wrong 2 'train.batch' train job.yaml --set train.batch=10 --resume=runs/tiny-0001
wrong 2 'no such checkpoint' eval runs/tiny-0001 --checkpoint step-77
wrong 2 'latest, best or step-N' eval runs/tiny-0001 --checkpoint newest
wrong 2 'train, valid or test' eval runs/tiny-0001 --part exam
wrong 2 'cannot be given together' predict runs/tiny-0001 --part test --input file -o q.csv
wrong 2 'no such file' predict runs/tiny-0001 --input nosuch -o q.csv
wrong 2 'no such directory' predict runs/tiny-0001 -o nosuch/q.csv

printf 'damage' >>runs/tiny-0003/checkpoints/step-00000008/model.safetensors
wrong 2 'damaged' inspect runs/tiny-0003 --checkpoint step-8
wrong 2 'damaged' eval runs/tiny-0003 --checkpoint step-8
[ ! -e q.csv ] || fail "a refused prediction left a file"

# Words of lists that nobody knows are mistakes, not nothing to do.
for flag in transports collectives algorithms memory; do
    wrong 2 "unknown word 'nosuch'" bench comm --$flag nosuch
done

exit $bad
