# SPDX-License-Identifier: Apache-2.0
"""The HTTP API of a running service: every route, errors, streams, files, sweeps, secrets."""
import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
from service import Service

SECRET = "s3cr3t-which-nobody-may-see"


def routes(s):
    """The OpenAPI file has every row of routes.def, and every GET without parameters answers."""
    api = s.get("/v1/openapi.json")
    text = open(f"{os.environ['TD_SOURCE']}/src/service/http/routes.def").read()
    rows = re.findall(r'TD_ROUTE\((\w+), "([^"]+)"', text)
    described = {(m.upper(), path) for path, all_ in api["paths"].items() for m in all_}
    assert described == {(m, path.replace("...", "")) for m, path in rows} and len(rows) > 25
    assert api["openapi"].startswith("3.0")
    names = set()
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            assert operation["operationId"] not in names
            names.add(operation["operationId"])
            in_path = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
            assert all("{" + p + "}" in path for p in in_path)
            if method == "get" and not in_path and "events" not in path:
                status, _, data = s.raw("GET", path)
                assert status == 200 and data, (path, status)
    keys = api["components"]["schemas"]["Job"]["properties"]
    assert keys["resources"]["properties"]["gpus"]["type"] == "integer"
    assert keys["framework"]["enum"] and keys["command"]["items"]["type"] == "string"
    assert s.get("/healthz") == {"status": "serving"}
    assert s.get("/nowhere", 404)["error"]["code"] == "not_found"
    assert s.call("DELETE", "/v1/jobs", want=405)["error"]["code"] == "method_not_allowed"


def jobs(s):
    first = s.submit(name="first", command=["sh", "-c", "echo hello; echo $COLOUR"],
                     parameters={"COLOUR": "blue"}, labels={"team": "nlp"})
    assert s.ended(first)["status"] == "succeed"
    assert b"hello\nblue" in s.raw("GET", f"/v1/jobs/{first}/logs")[2]
    assert s.raw("GET", f"/v1/jobs/{first}/logs?from=6")[2].startswith(b"blue")
    # A log that is followed ends with its job.
    slow = s.submit(name="slow", command=["sh", "-c", "echo one; mkfifo go; read x < go"])
    s.reach(slow, ("running",))
    s.post(f"/v1/jobs/{slow}/cancel", {"reason": "enough"})
    status, headers, data = s.raw("GET", f"/v1/jobs/{slow}/logs?follow=1")
    assert status == 200 and headers["Content-Type"].startswith("text/plain")
    end = s.ended(slow, "cancelled")
    assert end["status"] == "failure" and "enough" in end["message"], end
    # Filters and pages, newest first.
    for i in range(5):
        s.submit(name=f"page-{i}", command=["true"])
    page = s.get("/v1/jobs?filter=name=page-*&page_size=2")
    assert [j["name"] for j in page["jobs"]] == ["page-4", "page-3"], page
    token = page["next_page_token"]
    rest = s.get(f"/v1/jobs?filter=name=page-*&page_size=10&page_token={token}")
    assert [j["name"] for j in rest["jobs"]] == ["page-2", "page-1", "page-0"]
    assert rest["next_page_token"] == "" and "spec" not in rest["jobs"][0]
    assert [j["id"] for j in s.get("/v1/jobs?filter=label.team=nlp")["jobs"]] == [first]
    # The same key gives the same job.
    spec = {"name": "once", "command": ["true"]}
    one = s.post("/v1/jobs", spec, headers={"Idempotency-Key": "k1"})["id"]
    assert s.post("/v1/jobs", spec, headers={"Idempotency-Key": "k1"})["id"] == one
    s.ended(one)
    again = s.post(f"/v1/jobs/{one}/retry")["id"]
    assert again != one
    s.ended(again)
    s.call("DELETE", f"/v1/jobs/{again}")
    s.get(f"/v1/jobs/{again}", 404)
    assert s.get("/v1/jobs/x", 404)["error"]["message"] == "Job x doesn't exist"
    s.post("/v1/jobs", {"name": "x", "prioritty": 3, "command": ["true"]}, 400)
    s.get("/v1/jobs?page_size=0", 400)
    # The book's request, in both spellings; without output_model_name it is called as the job.
    for data, version in (("dataset_id", "train_data_version_hash"),
                          ("datasetId", "trainDataVersionHash")):
        told = {"algorithm": "intent-classification", "name": "spelt", data: "77",
                version: "hashAg=="}
        spelt = s.post("/v1/jobs", {"metadata": told}, 201)["id"]
        spec = s.get(f"/v1/jobs/{spelt}")["spec"]
        assert (spec["dataset_id"], spec["train_data_version_hash"]) == ("77", "hashAg=="), spec
        s.ended(spelt, "failed")  # there is no such data set
        s.call("DELETE", f"/v1/jobs/{spelt}")
        s.post("/v1/jobs?strict=true", {"metadata": {"algorithm": "a", data: "1"}}, 400)


def pausing(s):
    hold = ["sh", "-c", "mkfifo go; read x < go"]
    first = s.submit(name="hold", command=hold, resources={"slots": 1})
    s.reach(first, ("running",))
    waiting = s.submit(name="waits", command=["true"], resources={"slots": 1})
    assert s.get(f"/v1/jobs/{waiting}")["state"] == "queued"
    s.post(f"/v1/jobs/{waiting}/pause")
    assert s.get(f"/v1/jobs/{waiting}")["state"] == "paused"
    s.post(f"/v1/jobs/{first}/cancel")
    s.ended(first, "cancelled")
    assert s.get(f"/v1/jobs/{waiting}")["state"] == "paused"
    s.post(f"/v1/jobs/{waiting}/resume")
    s.ended(waiting)
    s.post(f"/v1/jobs/{waiting}/pause", want=409)


def metrics(s):
    script = ('for i in 1 2 3; do echo "{\\"step\\":$i,\\"accuracy\\":0.$i}"; done'
              ' > "$TANDEM_METRICS_FILE"; mkfifo go; read x < go')
    job = s.submit(name="metrics", command=["sh", "-c", script])
    lines = []
    for e in s.events(f"/v1/jobs/{job}/metrics?follow=1"):
        lines.append(json.loads(e["data"])["step"])
        if lines[-1] == 3:  # it runs: what it does not write itself is reported
            s.post(f"/v1/jobs/{job}/metrics", {"step": 4, "accuracy": 0.9})
            s.post(f"/v1/jobs/{job}/metrics", [1], 400)
        if lines[-1] == 4:
            s.post(f"/v1/jobs/{job}/cancel")
    assert lines == [1, 2, 3, 4], lines
    s.ended(job, "cancelled")
    s.post(f"/v1/jobs/{job}/metrics", {"step": 5}, 409)
    text = s.raw("GET", f"/v1/jobs/{job}/metrics")[2].decode().splitlines()
    assert len(text) == 4 and json.loads(text[-1])["step"] == 4
    tail = s.raw("GET", f"/v1/jobs/{job}/metrics?tail=40")[2].decode().splitlines()
    assert len(tail) == 1 and json.loads(tail[0])["step"] == 4, tail
    # A stream goes on after the event that was seen last.
    first = next(s.events(f"/v1/jobs/{job}/metrics?follow=1"))
    rest = [json.loads(e["data"])["step"]
            for e in s.events(f"/v1/jobs/{job}/metrics?follow=1&from={first['id']}")]
    assert rest == [2, 3, 4], rest


def files(s):
    job = s.submit(name="files", command=["sh", "-c", "echo model > $TANDEM_ARTIFACTS_DIR/m.bin"])
    s.ended(job)
    found = s.get(f"/v1/jobs/{job}/artifacts")["artifacts"]
    assert [f["name"] for f in found] == ["m.bin"], found
    assert found[0]["sha256"] == hashlib.sha256(b"model\n").hexdigest()
    assert s.raw("GET", f"/v1/jobs/{job}/artifacts/m.bin")[2] == b"model\n"
    data = bytes(range(256)) * 4000
    sha = hashlib.sha256(data).hexdigest()
    status, _, answer = s.raw("PUT", f"/v1/jobs/{job}/artifacts/sub/big.bin?sha256={sha}", data)
    assert status == 201 and json.loads(answer)["sha256"] == sha, answer
    assert s.raw("GET", f"/v1/jobs/{job}/artifacts/sub/big.bin")[2] == data
    status, _, _ = s.raw("PUT", f"/v1/jobs/{job}/artifacts/bad.bin?sha256={sha}", b"other")
    assert status == 400 and s.raw("GET", f"/v1/jobs/{job}/artifacts/bad.bin")[0] == 404
    status, _, answer = s.raw("PUT", "/v1/buckets/data/upload/a.csv", b"a,b\n")
    assert status == 201, answer
    assert s.raw("GET", "/v1/buckets/data/upload/a.csv")[2] == b"a,b\n"
    for path in ("/v1/buckets/data/%2e%2e/%2e%2e/service.db", "/v1/buckets/../x",
                 "/v1/buckets/data/a/../../../service.db",
                 f"/v1/jobs/{job}/artifacts/%2e%2e/job.yaml"):
        assert s.raw("GET", path)[0] in (400, 404), path
        assert s.raw("PUT", path, b"x")[0] in (400, 404), path


def workers(s):
    """Members of groups: their places and states, and how long their ranks wait."""
    line = ('{\\"kind\\":\\"ranks\\",\\"seconds\\":[2,2],\\"wait\\":[0.5,1.5]}')
    script = f'test $RANK = 1 || echo "{line}" > "$TANDEM_METRICS_FILE"; mkfifo go; read x < go'
    job = s.submit(name="group", command=["sh", "-c", script], resources={"members": 2, "slots": 0})
    for e in s.events(f"/v1/jobs/{job}/metrics?follow=1"):
        break  # it runs, and has said how its ranks wait
    found = s.get(f"/v1/workers?job={job}")["members"]
    assert [(m["member"], m["rank"], m["state"], m["step_seconds"], m["wait_seconds"])
            for m in found] == [(0, 0, "running", 2, 0.5), (1, 1, "running", 2, 1.5)], found
    assert {m["host"] for m in found} == {os.uname().nodename}, found
    assert s.get("/v1/workers")["members"] == found
    s.post(f"/v1/jobs/{job}/cancel")
    s.ended(job, "cancelled")
    assert s.get("/v1/workers")["members"] == []
    s.get("/v1/workers?job=999", 404)
    s.get("/v1/workers?job=x", 400)


def sweeps(s):
    script = 'echo "{\\"step\\":10,\\"accuracy\\":0.$A$B}" > "$TANDEM_METRICS_FILE"'
    plan = {"name": "grid", "search": "grid", "metric": "accuracy", "parallel": 2,
            "space": {"A": [1, 2], "B": [3, 4]}, "spec": {"command": ["sh", "-c", script]}}
    sweep = s.post("/v1/sweeps", plan)["id"]
    for e in s.events("/v1/events?after=0"):
        state = s.get(f"/v1/sweeps/{sweep}")
        if state["state"] != "running" and state.get("best", {}).get("value") == 0.24:
            break
    assert state["state"] == "succeeded" and state["finished"] == 4, state
    assert abs(state["best"]["value"] - 0.24) < 1e-9, state
    best = next(t for t in state["trials"] if t["job"] == state["best"]["job"])
    assert best["parameters"] == {"A": "2", "B": "4"}
    assert s.get(f"/v1/jobs/{best['job']}")["sweep"] == sweep
    forged = s.submit(command=["true"], sweep=sweep)  # a trial is one by its sweep's word alone
    assert "sweep" not in s.get(f"/v1/jobs/{forged}")
    s.ended(forged)
    s.post("/v1/sweeps", {"space": {}}, 400)
    s.get("/v1/sweeps/99", 404)
    assert any(x["id"] == sweep for x in s.get("/v1/sweeps")["sweeps"])


def asha(s):
    """The first trial reports a good value and ends; the second a bad one, and is stopped."""
    report = 'echo "{\\"step\\":10,\\"accuracy\\":$1}" > "$TANDEM_METRICS_FILE"'
    script = (f'report() {{ {report}; }}; if mkdir "{s.folder}/first"; then report 0.9; '
              'else report 0.1; mkfifo go; read x < go; fi')
    sweep = s.post("/v1/sweeps", {
        "name": "asha", "search": "asha", "metric": "accuracy", "trials": 2, "parallel": 1,
        "asha": {"min_steps": 10, "factor": 2}, "space": {"A": {"uniform": [0, 1]}},
        "spec": {"command": ["sh", "-c", script]}})["id"]
    for e in s.events("/v1/events?after=0"):
        state = s.get(f"/v1/sweeps/{sweep}")
        if state["state"] != "running":
            break
    assert [t["state"] for t in state["trials"]] == ["succeeded", "stopped"], state
    assert state["best"]["job"] == state["trials"][0]["job"]
    stopped = s.ended(state["trials"][1]["job"], "cancelled")
    assert f"stopped by sweep {sweep}" in stopped["message"], stopped
    kinds = [e["kind"] for e in s.get(f"/v1/jobs/{stopped['id']}/history")["events"]]
    assert kinds[0] == "state" and "attempt" in kinds, kinds


def secrets(s):
    """What is secret is in the job's environment, and in nothing that the service shows."""
    job = s.submit(name="secret", command=["sh", "-c", 'test "$API_TOKEN" = ' + f'"{SECRET}"'],
                   parameters={"API_TOKEN": SECRET, "LR": "0.5"})
    s.ended(job)
    for path in ("/v1/jobs", f"/v1/jobs/{job}", "/v1/stats", "/metrics", "/v1/workers"):
        text = s.raw("GET", path)[2].decode()
        command = json.dumps(SECRET)[1:-1]
        shown = text.replace(f'= \\"{command}\\"', "")  # in the command itself
        assert SECRET not in shown, path
    assert s.get(f"/v1/jobs/{job}")["spec"]["parameters"] == {"API_TOKEN": "***", "LR": "0.5"}
    assert SECRET not in open(f"{s.folder}/serve.log").read()


def too_large(s):
    """The status of a body that is refused before it is sent."""
    c = http.client.HTTPConnection(s.host, s.port, timeout=30)
    c.putrequest("POST", "/v1/jobs")
    c.putheader("Content-Type", "application/json")
    c.putheader("Content-Length", str(20 << 20))
    c.endheaders()
    status = c.getresponse().status
    c.close()
    return status


def strangers(s):
    """Names, pages, types and sizes that are not ours."""
    assert s.raw("GET", "/v1/jobs", headers={"Host": "evil.example"})[0] == 403
    assert s.raw("GET", "/v1/jobs", headers={"Origin": "http://evil.example"})[0] == 403
    assert s.raw("GET", "/v1/jobs", headers={"Origin": s.url})[0] == 200
    before = len(s.get("/v1/jobs?page_size=1000")["jobs"])
    for headers in ({"Content-Type": "text/plain"}, {"Content-Type": "application/json",
                                                    "Origin": "null"}):
        assert s.raw("POST", "/v1/jobs", b'{"command": ["true"]}', headers)[0] in (403, 415)
    assert s.raw("POST", "/v1/jobs", b"{" * 100000, {"Content-Type": "application/json"})[0] == 400
    assert too_large(s) == 413
    for env in ({"PATH": "/x"}, {"LD_PRELOAD": "x.so"}):
        s.post("/v1/jobs", {"command": ["true"], "env": env}, (400, 403))
    assert len(s.get("/v1/jobs?page_size=1000")["jobs"]) == before


def prometheus(s):
    """The text that Prometheus reads, judged by its own tool where that is installed."""
    _, _, text = s.raw("GET", "/metrics")
    assert b"tandem_jobs" in text, text[:300]
    assert b'tandem_grpc_ended_total{code="OK"} ' in text, text
    tool = shutil.which("promtool")
    if not tool:
        print("promtool is not installed: /metrics was not checked by it")
        return
    done = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True)
    assert done.returncode == 0 and not done.stdout + done.stderr, (done.stdout, done.stderr)


def quotas(s):
    assert s.call("PUT", "/v1/quotas/ann", {"slots": 2, "weight": 3})["slots"] == 2
    assert any(q["user"] == "ann" and q["weight"] == 3 for q in s.get("/v1/quotas")["quotas"])
    s.call("DELETE", "/v1/quotas/ann")
    assert all(q["user"] != "ann" for q in s.get("/v1/quotas")["quotas"])
    s.call("DELETE", "/v1/quotas/ann", None, 404)
    s.call("PUT", "/v1/quotas/ann", {"slot": 2}, 400)
    s.call("PUT", "/v1/quotas/ann", {"slots": -1}, 400)


def restart(s):
    """Everything is there after a restart, and a stream goes on after the last event."""
    before = s.get("/v1/jobs?page_size=1000")["jobs"]
    sweeps_before = s.get("/v1/sweeps")
    last = None
    for last in s.events("/v1/events?after=0"):
        break
    s.stop()
    s.start()
    assert s.get("/v1/jobs?page_size=1000")["jobs"] == before
    assert s.get("/v1/sweeps") == sweeps_before
    following = next(s.events(f"/v1/events?after={last['id']}"))
    assert int(following["id"]) > int(last["id"])


def main():
    s = Service(sys.argv[1], "capacity.slots=1")
    try:
        for part in (routes, jobs, pausing, metrics, files, workers, sweeps, asha, secrets,
                     strangers, prometheus, quotas, restart):
            part(s)
            print(part.__name__, flush=True)
    finally:
        s.stop()


main()
