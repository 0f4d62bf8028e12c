#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# Each lint check can fail: a small tree that is clean passes, and each of a list of spoilt files is
# refused by its check, with its reason.
. "$(dirname "$0")/lib.sh"
go_on=1
# shellcheck disable=SC2046 # names of variables, set where a hook of git runs this
unset $(git rev-parse --local-env-vars)
mkdir tree && cd tree || exit 1
git init -q . || exit 1
mkdir -p docs tools src/base src/ops include/tandem tests/unit
cp -r "$source/tools/lint" tools/
printf '# %s\nlayer base:\nlayer ops: base\nlibrary dnnl: base\n' \
    'SPDX-License-Identifier: Apache-2.0' >tools/deps.txt
cp "$source/.clang-format" .
printf 'SPDX\n' >LICENSE
echo 'docs/troubleshooting.md docs/layers.svg docs/source-map.md' >README.md
cat >docs/source-map.md <<'END'
docs/  pages
include/tandem/  public
src/base/  base
src/ops/  operators
tests/unit/  tests
tools/  tools
tools/lint/  lint
END
spdx='/* SPDX-License-Identifier: Apache-2.0 */'
printf '%s\nint td_good(void);\n' "$spdx" >include/tandem/good.h
printf '%s\n#include "tandem/good.h"\n' "$spdx" >include/tandem/tandem.h
for f in src/ops/x.h src/base/x.h tests/unit/x.h; do
    printf '%s\nint td__x(void);\n' "$spdx" >$f
done
printf '%s\nconst char *q = "%%d " K "s are "\n                "lost";\n' "$spdx" >src/base/q.c
row() { printf '| `%s` | meaning | remedy |\n' "$1"; }
row '... are lost' >docs/troubleshooting.md
printf '<!-- SPDX-License-Identifier: Apache-2.0 -->\n' >docs/layers.svg
printf '<text class="name">%s</text>\n' base ops >>docs/layers.svg

lint() { limited tools/lint/run build "$@" >../out 2>&1; }

lint text layers banned readme quotes format headers || fail "the clean tree fails: $(cat ../out)"

refuses() { # check, file, text of the file, reason expected
    mkdir -p "$(dirname "$2")"
    printf '%b' "$3" >"$2"
    if lint "$1"; then
        fail "lint $1 accepts: $3"
    elif ! grep -qF -- "$4" ../out; then
        fail "lint $1 refuses $2, but not with \"$4\": $(cat ../out)"
    fi
    rm "$2"
    rmdir -p --ignore-fail-on-non-empty "$(dirname "$2")"
}

unfinished="TO""DO"
host="py""pi.org"
md=md
refuses text src/base/a.c 'int x;\n' 'no SPDX'
refuses text src/base/a.c "$spdx\n/* $unfinished */\n" 'unfinished'
refuses text src/base/a.c "$spdx\n/* see docs/none.$md */\n" 'not in the tree'
refuses text src/base/a.c "$spdx\n/* $host */\n" 'registry'
refuses text src/base/a.c "$spdx \n" 'blanks at the end'
refuses text src/base/a.c "$spdx\n$(printf '\\n%.0s' {1..600})" 'the limit is 600'
for i in {1..58}; do printf "%b" "$spdx\n" >src/base/many_$i.c; done
refuses text src/base/a.c "$spdx\n" 'src/base: 61 files, the limit is 60'
rm src/base/many_*.c
refuses text src/base/a.c "$spdx\n/*$(printf '%97s' '')*/\n" '101 columns, the limit is 100'
refuses layers src/base/a.c "$spdx\n#include \"ops/x.h\"\n" 'base may not include'
refuses layers src/ops/a.c "$spdx\n#include <dnnl.h>\n" 'is for base only'
refuses layers src/new/a.c "$spdx\n" 'not in tools/deps.txt'
refuses layers src/ops/a.c "$spdx\n#include \"base/x_impl.h\"\n" 'files of its own folder'
refuses layers cmd/tandem/a.c "$spdx\n#include \"base/x_impl.h\"\n" 'files of its own folder'
refuses layers examples/a.c "$spdx\n#include \"ops/x.h\"\n" 'public headers only'
printf 'layer gone: base\n' >>tools/deps.txt
refuses layers src/base/a.c "$spdx\n" 'gone is no folder under src/'
sed -i '$d' tools/deps.txt
refuses banned src/ops/a.c "$spdx\nvoid *f(void) { return malloc(3); }\n" 'base/alloc.h'
refuses banned src/ops/a.c "$spdx\nvoid f(void) { fprintf(stderr, \"\"); }\n" 'base/log.h'
refuses banned src/ops/a.c "$spdx\nint f(char *s) { return atoi(s); }\n" 'strtol'
refuses banned tests/unit/a.c "$spdx\nvoid f(void) { sleep(1); }\n" 'deadline'
refuses readme src/tensor/a.c "$spdx\n" 'lacks src/tensor/'
refuses readme docs/lonely.$md 'a page\n' 'no other document names this page'
refuses format src/base/a.c "$spdx\nint  f( void ) { return 1; }\n" 'not formatted'
refuses headers src/base/a.h "$spdx\nsize_t td__f(void);\n" 'does not compile alone'
refuses headers include/tandem/a.h "$spdx\nint td_f(int class);\n" 'does not compile alone (g++)'
refuses headers include/tandem/a.h "$spdx\n" 'tandem/tandem.h does not include it'
refuses quotes docs/troubleshooting.md "$(row '... were lost')\n" 'no string of the program'
refuses quotes docs/troubleshooting.md 'no table\n' 'quotes nothing'

# Comments, strings and members of the same name are not calls.
printf '%b' "$spdx\n/* malloc(1) */ char *s = \"free(x)\"; void g(struct q *p) { p->free(p); }\n" \
    >src/ops/a.c
lint banned || fail "what is no call is refused: $(cat ../out)"
exit $bad
