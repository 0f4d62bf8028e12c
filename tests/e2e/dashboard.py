# SPDX-License-Identifier: Apache-2.0
"""The dashboard in a real browser: pages show what the service has, live; buttons and keys work; no
page is wider than a phone; no script fails. Pictures of all pages go to the folder given."""
import sys
from browser import Browser
from service import Service

JOB = """name: tiny
model: [flatten, {linear: {out: 16, act: relu}}, linear]
data: {source: spirals, count: 400, split: {valid: 0.2, test: 0.2}}
train: {batch: 20, epochs: 6, optimizer: {name: adamw, lr: 0.01}, eval: {every: 12}}
"""
SIZES = [(1280, 900, False), (480, 900, True)]
BLOCK = "mkfifo go; echo waiting; read x < go"


def fill(s):
    """Two trained runs, a failed job, a running one, queued ones, a sweep."""
    first = s.submit(name="spirals", job=JOB, labels={"team": "vision"})
    second = s.submit(name="spirals-lr", job=JOB, sets=["train.optimizer.lr=0.001"], user="ann")
    for job in (first, second):
        s.ended(job)
    failed = s.submit(name="fails", command=["sh", "-c", "echo no such file >&2; exit 3"])
    s.ended(failed, "failed")
    script = 'echo "{\\"step\\":10,\\"accuracy\\":0.$A}" > "$TANDEM_METRICS_FILE"'
    sweep = s.post("/v1/sweeps", {
        "name": "grid", "search": "grid", "metric": "accuracy", "space": {"A": [1, 2, 3]},
        "spec": {"command": ["sh", "-c", script]}})
    for t in sweep["trials"]:
        s.ended(t["job"])
    holds = s.submit(name="a-job-whose-name-is-rather-long-so-that-it-has-to-be-broken-somewhere",
                     command=["sh", "-c", BLOCK], resources={"slots": 1})
    s.reach(holds, ("running",))
    queued = s.submit(name="waits", command=["true"], priority=5, user="bob")
    s.submit(name="waits-too", command=["true"])
    return {"first": first, "second": second, "failed": failed, "holds": holds, "queued": queued,
            "sweep": sweep["id"]}


def pages(j):
    """Address and what is seen there when it is complete."""
    return {
        "jobs": ("#/jobs", "document.querySelectorAll('tr.row').length >= 8"),
        "queue": ("#/queue", "document.querySelectorAll('tr.row').length === 2"),
        "workers": ("#/workers", "['Running groups', 'Members'].every((t) => "
                    "document.body.innerText.includes(t))"),
        "sweeps": ("#/sweeps", "document.body.innerText.includes('3 of 3')"),
        "sweep": (f"#/sweep/{j['sweep']}", "document.querySelectorAll('tr.best').length === 1"),
        "job": (f"#/job/{j['first']}",
                "document.querySelectorAll('svg.plot polyline').length >= 4 &&"
                " document.querySelector('pre.log').textContent.length > 20"),
        "failed": (f"#/job/{j['failed']}",
                   "document.body.innerText.includes('no such file')"),
        "compare": (f"#/compare/{j['first']},{j['second']}",
                    "document.querySelectorAll('svg.plot polyline').length >= 4 &&"
                    " document.body.innerText.includes('train.optimizer.lr=0.001')"),
    }


def overflow(b):
    """Elements that stick out of the page to the right, except within what scrolls by itself."""
    return b.script("""(() => {
        const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
        if (wide <= 0) return '';
        const out = [...document.querySelectorAll('body *')].filter((e) =>
            e.getBoundingClientRect().right > document.documentElement.clientWidth + 1);
        return `${wide} px: ` + out.slice(0, 4).map((e) => e.tagName + '.' + e.className).join(' ');
    })()""")


def look(b, s, j, folder):
    for width, height, dark in SIZES:
        b.size(width, height, dark)
        b.open("about:blank")
        for name, (address, ready) in pages(j).items():
            b.open(f"{s.url}/{address}")
            b.wait(ready, f"{name} at {width}")
            wide = overflow(b)
            assert not wide, f"{name} is wider than {width}: {wide}"
            assert b.script("document.documentElement.classList.contains('dark')") == dark
            b.picture(f"{folder}/{name}-{width}-{'dark' if dark else 'light'}.png")


def live(b, s, j):
    """A job that is submitted appears by itself, and its state changes."""
    b.size(1280, 900)
    b.open(f"{s.url}/#/jobs")
    b.wait("document.getElementById('link').classList.contains('live')")
    fresh = s.submit(name="fresh-one", command=["true"])
    b.wait(f"!!document.querySelector('tr[data-job=\"{fresh}\"]')", "a new job is listed")
    b.script(f"document.querySelector('tr[data-job=\"{j['queued']}\"] button').click()")
    s.ended(j["queued"], "cancelled")
    b.wait(f"document.querySelector('tr[data-job=\"{j['queued']}\"] .state').textContent"
           " === 'cancelled'", "the cancelled job's state")
    b.script(f"document.querySelector('tr[data-job=\"{j['failed']}\"] button').click()")  # retry
    b.wait("[...document.querySelectorAll('td.name')].filter((t) => t.textContent === 'fails')"
           ".length === 2", "the failed job again")


def running(b, s, j):
    """A running job's log and curves grow while they are looked at."""
    b.open(f"{s.url}/#/job/{j['holds']}")
    b.wait("document.querySelector('pre.log')?.textContent.includes('waiting')", "the log")
    for step in range(1, 40):
        s.post(f"/v1/jobs/{j['holds']}/metrics", {"step": step, "accuracy": step / 100})
    b.wait("document.querySelectorAll('svg.plot polyline').length >= 1", "the first curve")
    s.post(f"/v1/jobs/{j['holds']}/metrics", {"step": 1234, "accuracy": 0.5})
    b.wait("document.querySelector('.facts').textContent.includes('1,234')", "the last step")


def slow(b, s):
    """While the service takes its time: keys are for the page that was asked for, not for the one
    still seen, and what is typed into the filter stays."""
    b.open(f"{s.url}/#/jobs")
    b.wait("document.querySelectorAll('tr.row').length >= 8")
    b.script("""(() => {
        const real = window.fetch, gate = new Promise((done) => { window.letGo = done; });
        window.fetch = async (...a) => { await gate; return real(...a); };
        document.getElementById('filter').id = 'old-filter';
    })()""")
    for key in "21/":
        b.key(key)
    b.script("window.letGo()")
    b.wait("document.activeElement.id === 'filter'", "the new page's filter has the keys")
    b.script("""(() => {
        const real = window.fetch, gate = new Promise((done) => { window.letGo = done; });
        window.fetch = async (...a) => { await gate; return real(...a); };
        const field = document.activeElement;
        field.value = 'user=ann';
        field.dispatchEvent(new Event('change'));
        field.value = 'user=ann name=s';
    })()""")
    b.script("window.letGo()")
    b.wait("document.querySelectorAll('tr.row').length === 1", "the filtered list")
    assert b.script("location.hash") == "#/jobs?filter=user%3Dann"
    assert b.script("document.activeElement.id + document.activeElement.value") == \
        "filteruser=ann name=s"
    b.script("document.activeElement.blur()")
    b.script("history.back()")
    b.wait("document.querySelectorAll('tr.row').length >= 8", "the whole list again")


def keys(b, s, j):
    b.open(f"{s.url}/#/jobs")
    b.wait("document.querySelectorAll('tr.row').length >= 8")
    for key in "jjx":
        b.key(key)
    b.wait("!!document.querySelector('tr.at input:checked')", "a marked row")
    for key in "jx":
        b.key(key)
    b.key("c")
    b.wait("location.hash.startsWith('#/compare/')", "the comparison")
    b.key("2")
    b.wait("location.hash === '#/queue'")
    b.key("?")
    b.wait("document.getElementById('keys').open")
    b.script("document.getElementById('keys').close()")
    b.key("1")
    b.wait("!!document.getElementById('filter')")
    b.key("/")
    b.wait("document.activeElement.id === 'filter'")
    b.script("document.activeElement.value = 'user=ann';"
             "document.activeElement.dispatchEvent(new Event('change'))")
    b.wait("document.querySelectorAll('tr.row').length === 1", "the filtered list")
    dark = b.script("document.documentElement.classList.contains('dark')")
    b.script("document.activeElement.blur()")
    b.key("t")
    b.wait(f"document.documentElement.classList.contains('dark') === {str(not dark).lower()}")
    b.key("t")


def hostile(b, s):
    """Labels and output that are scripts stay texts."""
    text = "<img src=x onerror=\"document.title='owned'\">"
    job = s.submit(name="hostile", command=["echo", text], labels={"note": text})
    s.ended(job)
    b.open(f"{s.url}/#/job/{job}")
    b.wait("document.querySelector('.facts')?.textContent.includes('<img src=x')", "the label")
    b.wait("document.querySelector('pre.log').textContent.includes('<img src=x')", "the log")
    assert b.script("document.querySelectorAll('main img').length") == 0
    assert b.script("document.title") != "owned"


def main():
    folder = sys.argv[1]
    s = Service(folder, "capacity.slots=1")
    b = Browser(folder)
    try:
        j = fill(s)
        look(b, s, j, folder)
        live(b, s, j)
        running(b, s, j)
        slow(b, s)
        keys(b, s, j)
        s.post(f"/v1/jobs/{j['holds']}/cancel")
        s.ended(j["holds"], "cancelled")
        hostile(b, s)
        assert not b.errors, b.errors
    finally:
        b.close()
        s.stop()


main()
