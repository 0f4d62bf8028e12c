# SPDX-License-Identifier: Apache-2.0
"""A `tandem serve` of a test's own, and calls to it over HTTP."""
import http.client
import json
import os
import re
import signal
import subprocess
import time

PATIENCE_S = 60


class Service:
    def __init__(self, folder, *sets, config=None):
        self.folder, self.sets, self.config = folder, sets, config
        self.token, self.port = None, 0
        self.start()

    def start(self):
        tandem = os.path.join(os.environ["TD_BUILD"], "tandem")
        command = [tandem, "serve", "--set", f"data.dir={self.folder}/data", "--set",
                   f"http.listen=127.0.0.1:{self.port}", "--set", "grpc.listen=127.0.0.1:0"]
        for s in self.sets:
            command += ["--set", s]
        if self.config:
            command += ["--config", self.config]
        self.log = open(f"{self.folder}/serve.log", "ab")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log)
        while True:
            line = self.process.stdout.readline().decode()
            assert line, f"tandem serve does not start: {open(self.folder + '/serve.log').read()}"
            m = re.search(r"https?://([\w.\[\]:]+):(\d+)/", line)
            if m:
                self.host, self.port = m[1], int(m[2])
                self.url = f"http://{self.host}:{self.port}"
                return

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        self.log.close()

    def raw(self, method, path, body=None, headers=None):
        """(status, headers, bytes)"""
        c = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_S)
        all_headers = dict(headers or {})
        if self.token:
            all_headers.setdefault("Authorization", f"Bearer {self.token}")
        c.request(method, path, body, all_headers)
        r = c.getresponse()
        data = r.read()
        c.close()
        return r.status, dict(r.getheaders()), data

    def call(self, method, path, value=None, want=(200, 201), headers=None):
        h = dict(headers or {})
        body = None
        if value is not None:
            body = json.dumps(value).encode()
            h["Content-Type"] = "application/json"
        status, _, data = self.raw(method, path, body, h)
        wanted = want if isinstance(want, tuple) else (want,)
        assert status in wanted, f"{method} {path}: {status}, expected {want}: {data[:300]}"
        answer = json.loads(data)
        if status >= 400:
            assert set(answer) == {"error"} and set(answer["error"]) == {"code", "message"}, answer
        return answer

    def get(self, path, want=200):
        return self.call("GET", path, None, want)

    def post(self, path, value=None, want=(200, 201), headers=None):
        return self.call("POST", path, {} if value is None else value, want, headers)

    def submit(self, **spec):
        return self.post("/v1/jobs", spec)["id"]

    def ended(self, job, state="succeeded"):
        """Wait for the end by the job's events; it must be this one."""
        j = self.reach(job, ("succeeded", "failed", "cancelled"))
        assert j["state"] == state, f"job {job}: {j}"
        return j

    def reach(self, job, states):
        for e in self.events(f"/v1/jobs/{job}/events?after=0"):
            if e["event"] == "state" and json.loads(e["data"])["state"] in states:
                return self.get(f"/v1/jobs/{job}")
        raise AssertionError(f"the events of job {job} ended before {states}")

    def events(self, path):
        """Server-sent events; the caller ends the loop."""
        c = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_S)
        c.request("GET", path, headers={"Authorization": f"Bearer {self.token}"}
                  if self.token else {})
        r = c.getresponse()
        assert r.status == 200, (r.status, r.read())
        event = {}
        until = time.monotonic() + PATIENCE_S
        try:
            while time.monotonic() < until:
                line = r.readline().decode()
                if not line:
                    return
                line = line.rstrip("\n")
                if line:
                    key, _, value = line.partition(": ")
                    event[key] = value
                elif "data" in event:
                    yield event
                    event = {}
                else:
                    event = {}
        finally:
            c.close()
