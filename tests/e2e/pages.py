# SPDX-License-Identifier: Apache-2.0
"""Pages that runs leave, in a real browser: NAME=FILE[=EXPRESSION]... Each is opened light and
dark, wide and on a phone; the expression is true there. No page is wider than its window, no table
hides a column on a phone, no text is cut off, no script fails. Pictures go to the folder given
first."""
import sys
from browser import Browser

SIZES = [(1280, False), (1280, True), (480, False), (480, True)]
PROBLEMS = """(() => {
    const root = document.documentElement, bad = [];
    if (root.scrollWidth > root.clientWidth)
        bad.push(`the page is ${root.scrollWidth - root.clientWidth} px too wide`);
    for (const e of document.querySelectorAll('.panel'))
        if (e.scrollWidth > e.clientWidth + 1)
            bad.push(`${e.scrollWidth - e.clientWidth} px are hidden: ` +
                     (e.previousElementSibling || e).textContent.slice(0, 60));
    for (const e of document.querySelectorAll('h1, h2, .card b, .card span, .state, .why'))
        if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display != 'inline')
            bad.push('cut off: ' + e.textContent.slice(0, 60));
    for (const s of document.querySelectorAll('svg')) {
        const box = s.getBoundingClientRect();
        for (const e of s.querySelectorAll('text')) {
            const r = e.getBoundingClientRect();
            if (r.left < box.left - 2 || r.right > box.right + 2 || r.bottom > box.bottom + 2)
                bad.push('outside its picture: ' + e.textContent);
        }
    }
    return bad.join('; ');
})()"""
# The colours of text and page are far apart.
CONTRAST = """(() => {
    const light = (c) => c.match(/[\\d.]+/g).slice(0, 3).reduce((a, v) => a + +v, 0) / 765;
    const s = getComputedStyle(document.body);
    return [light(s.color), light(s.backgroundColor)];
})()"""


def main(folder, pages):
    b = Browser(folder)
    try:
        for page in pages:
            name, path, *want = page.split("=", 2)
            for width, dark in SIZES:
                where = f"{name} at {width} px, {'dark' if dark else 'light'}"
                b.size(width, 900, dark)
                b.open(f"file://{path}")
                if want:
                    b.wait(want[0], where)
                bad = b.script(PROBLEMS)
                assert not bad, f"{where}: {bad}"
                text, ground = b.script(CONTRAST)
                assert abs(text - ground) > 0.5 and (ground < 0.5) == dark, f"{where}: colours"
                b.picture(f"{folder}/{name}-{width}-{'dark' if dark else 'light'}.png")
        assert not b.errors, b.errors
    finally:
        b.close()


main(sys.argv[1], sys.argv[2:])
