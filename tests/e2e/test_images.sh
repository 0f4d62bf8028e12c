#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test labels: slow
# From a folder of images to predictions: init, training on one rank and on two with the same bits,
# new images without labels; the same samples from a tar archive; files that are not images.
. "$(dirname "$0")/lib.sh"

# Discs are red on dark, stripes green: images of several sizes, as PNG.
python3 - <<'PY' || fail "cannot make images"
import os, random, struct, zlib
random.seed(3)
def png(path, w, h, pixel):
    raw = b"".join(b"\0" + bytes(v for x in range(w) for v in pixel(x, y)) for y in range(h))
    chunk = lambda k, d: struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d))
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0))
                + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))
def disc(w, h):
    cx, cy, r = random.randrange(w), random.randrange(h), min(w, h) / 3
    return lambda x, y: (220, 30, 20) if (x - cx) ** 2 + (y - cy) ** 2 < r * r else (9, 9, 40)
def stripes(w, h):
    k = random.randrange(3, 6)
    return lambda x, y: (20, 200, 60) if x // k % 2 else (9, 9, 40)
for name, make in (("disc", disc), ("stripes", stripes)):
    os.makedirs(f"shapes/{name}/more")
    for i in range(40):
        w, h = random.randrange(18, 34), random.randrange(18, 34)
        png(f"shapes/{name}/{'more/' if i % 4 == 0 else ''}{i:03}.png", w, h, make(w, h))
    png(f"new-{name}.png", 40, 25, make(40, 25))
PY
echo "no image" >shapes/disc/README
run 0 "$tandem" init shapes
cp job.yaml out
has '80 images of 2 classes'
has 'source: images'
run 0 "$tandem" check job.yaml
has 'field x  *f32 (3, 16, 16)'
run 0 "$tandem" train job.yaml --set train.steps=60
want=$(digest)
has 'test accuracy  100.00 %'
run 0 "$tandem" train job.yaml --set train.steps=60 --set data.threads=3 -n 2 --run-dir two
same "two ranks"
# Random parts too are the same for any number of readers and ranks.
run 0 "$tandem" train job.yaml --set train.steps=20 --set data.resize=random --run-dir a
want=$(digest)
run 0 "$tandem" train job.yaml --set train.steps=20 --set data.resize=random -n 2 --run-dir b
same "random parts on two ranks"
runs=0
for how in '' '-n 2' '-n 2 --set data.distribute=scatter'; do
    # shellcheck disable=SC2086 # several words
    run 0 "$tandem" train job.yaml --set train.steps=20 --set data.resize=random \
        --set data.cache=memory --run-dir "cached$((++runs))" $how
    same "random parts of images in memory, $how"
done

# New images, one or a folder, without the training data.
mkdir new; cp new-*.png new; mv shapes gone
run 0 "$tandem" predict two --input new -o new.csv
[ "$(sed 1d new.csv | cut -d , -f 2 | tr '\n' ' ')" = "disc stripes " ] || fail "$(cat new.csv)"
head -n 1 new.csv >out; has '^row,prediction,disc,stripes,file$'
tail -n 1 new.csv >out; has 'new/new-stripes.png$'
run 0 "$tandem" predict two --input new -o new.jsonl
head -n 1 new.jsonl >out; has '"file": "/.*/new/new-disc.png", "prediction": "disc"'
run 0 "$tandem" predict two --input new-stripes.png -o one.csv
grep -q stripes one.csv || fail "$(cat one.csv)"
mv gone shapes

# The same images in an archive, and in two.
mkdir flat
i=100
for f in shapes/disc/*.png shapes/disc/more/*.png shapes/stripes/*.png shapes/stripes/more/*.png; do
    cp "$f" "flat/s$i.png"; echo "$f" | cut -d / -f 2 >"flat/s$i.cls"; i=$((i + 1))
done
(cd flat && tar cf ../shapes.tar --format=ustar --sort=name -- *)
run 0 "$tandem" init shapes.tar -o tar.yaml
run 0 "$tandem" train tar.yaml --set train.steps=60 --run-dir tar
has 'test accuracy  100.00 %'
want=$(digest)
(cd flat && tar cf ../part-00.tar --format=ustar s1[0-3]* &&
    python3 -c 'import glob, tarfile
with tarfile.open("../part-01.tar", "w", format=tarfile.PAX_FORMAT) as t: # with times as fractions
    for name in sorted(glob.glob("s1[4-7]*")): t.add(name)')
run 0 "$tandem" train tar.yaml --set train.steps=60 --set 'data.train=part-{00..01}.tar' \
    --run-dir parts
same "two archives instead of one"

# Files that are none, keys that do not fit.
head -c 60 shapes/disc/001.png >shapes/disc/zz.png
run 1 "$tandem" train job.yaml --set train.steps=9 --run-dir x
has 'shapes/disc/zz.png: a damaged PNG image: it ends too early'
rm shapes/disc/zz.png
mkdir shapes/oval; echo "no image" >shapes/oval/README
run 0 "$tandem" check job.yaml -q
has 'shapes/oval: a class without an image'
rm -r shapes/oval
run 2 "$tandem" check job.yaml --set data.cache=pixels --set data.resize=random
has 'data.cache: .*pixels: not with data.resize: random'
run 2 "$tandem" check job.yaml --set data.dir=/nosuch
has '/nosuch: No such file or directory; expected a folder with a folder of images for each class'
yes junk | head -c 1500 >cut.tar
run 2 "$tandem" check tar.yaml --set data.train=cut.tar
has 'cut.tar: not a tar archive, or damaged at byte 0'
