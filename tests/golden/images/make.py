#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small images in all the forms that are read, and what Pillow makes of them:

    NAME          the image
    NAME.rgb      its pixels in RGB
    NAME.scaled   the middle of the shape 16 x 24 (width x height), scaled to that, bilinear
    NAME.grey     the same in grey

    python3 tests/golden/images/make.py        (Debian's python3-pil)
"""
import random
from pathlib import Path

from PIL import Image

HERE = Path(__file__).resolve().parent
W, H = 37, 29
random.seed(1)


def picture():
    pixels = [(x * 6 + random.randrange(20), y * 8 + random.randrange(20),
               (x * y) % 200 + random.randrange(40)) for y in range(H) for x in range(W)]
    im = Image.new("RGB", (W, H))
    im.putdata(pixels)
    return im


def middle(w, h, width, height):
    bw, bh = w, h
    if w * height > h * width:
        bw = max(1, min(w, (h * width + height // 2) // height))
    else:
        bh = max(1, min(h, (w * height + width // 2) // width))
    left, top = (w - bw) // 2, (h - bh) // 2
    return (left, top, left + bw, top + bh)


def write(name):
    rgb = Image.open(HERE / name).convert("RGB")
    scaled = rgb.crop(middle(*rgb.size, 16, 24)).resize((16, 24), Image.BILINEAR)
    (HERE / f"{name}.rgb").write_bytes(rgb.tobytes())
    (HERE / f"{name}.scaled").write_bytes(scaled.tobytes())
    (HERE / f"{name}.grey").write_bytes(scaled.convert("L").tobytes())


def main():
    im = picture()
    alpha = im.copy()
    alpha.putalpha(Image.linear_gradient("L").resize((W, H)))
    forms = {"420.jpg": (im, {"quality": 80}), "444.jpg": (im, {"quality": 95, "subsampling": 0}),
             "progressive.jpg": (im, {"progressive": True}), "grey.jpg": (im.convert("L"), {}),
             "cmyk.jpg": (im.convert("CMYK"), {}), "rgb.png": (im, {}), "rgba.png": (alpha, {}),
             "palette.png": (im.quantize(16), {}), "grey.png": (im.convert("L"), {}),
             "bits.png": (im.convert("1"), {}), "lossy.webp": (im, {"quality": 80}),
             "lossless.webp": (im, {"lossless": True})}
    for name, (image, options) in forms.items():
        image.save(HERE / name, **options)
        write(name)


main()
