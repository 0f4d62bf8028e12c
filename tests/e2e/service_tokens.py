# SPDX-License-Identifier: Apache-2.0
"""Tokens and their scopes over HTTPS, and the client commands with them."""
import glob
import http.client
import json
import os
import ssl
import subprocess
import sys
import time
from service import PATIENCE_S, Service

TANDEM = os.path.join(os.environ["TD_BUILD"], "tandem")
JOB = """name: tiny
model: [flatten, {linear: {out: 8, act: relu}}, linear]
data: {source: spirals, count: 200, split: {valid: 0.2}}
train: {batch: 20, steps: 12, optimizer: {name: sgd, lr: 0.1}}
"""


class Secure(Service):
    def raw(self, method, path, body=None, headers=None):
        trust = ssl.create_default_context(cafile=f"{self.folder}/cert.pem")
        c = http.client.HTTPSConnection("localhost", self.port, timeout=PATIENCE_S, context=trust)
        all_headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        c.request(method, path, body, {**all_headers, **(headers or {})})
        r = c.getresponse()
        data = r.read()
        c.close()
        return r.status, dict(r.getheaders()), data


def run(folder, *command, want=0, token=None, **more):
    """A client command; its output."""
    env = {**os.environ, "HOME": folder}
    for name in ("TANDEM_SERVER", "TANDEM_TOKEN", "XDG_CONFIG_HOME"):
        env.pop(name, None)
    if token:
        env["TANDEM_TOKEN"] = token
    done = subprocess.run([TANDEM, *command], env=env, capture_output=True, text=True,
                          timeout=PATIENCE_S, cwd=folder, **more)
    assert done.returncode == want, (command, done.returncode, done.stdout, done.stderr)
    if want == 2:
        assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stdout + done.stderr


def make_tokens(folder):
    """A configuration with three users, and their tokens."""
    tokens, rows = {}, []
    for user, scope in (("ann", "read"), ("bob", "submit"), ("carl", "submit"), ("eve", "admin")):
        rows.append(run(folder, "token", user, "--scope", scope, "-o", f"{user}.token"))
        assert os.stat(f"{folder}/{user}.token").st_mode & 0o777 == 0o600
        tokens[user] = open(f"{folder}/{user}.token").read().strip()
        assert tokens[user] not in rows[-1]
    with open(f"{folder}/service.yaml", "w") as f:
        f.write("security:\n  tls: {cert: %s/cert.pem, key: %s/key.pem}\n  tokens:\n" %
                (folder, folder) + "".join("    " + row for row in rows))
    return tokens


def scopes(s, tokens):
    assert s.get("/healthz") and s.get("/v1/whoami")["scope"] == "none"
    for path in ("/v1/jobs", "/metrics", "/v1/stats"):
        s.get(path, 401)
    assert s.raw("GET", "/")[0] == 200  # the dashboard itself asks for a token
    s.token = tokens["ann"]
    assert s.get("/v1/whoami") == {"user": "ann", "scope": "read", "tokens": True}
    s.get("/v1/jobs")
    assert "scope submit" in s.post("/v1/jobs", {"job": JOB}, 403)["error"]["message"]
    s.token = tokens["bob"]
    job = s.post("/v1/jobs", {"job": JOB})["id"]
    assert s.get(f"/v1/jobs/{job}")["user"] == "bob"
    other = s.post("/v1/jobs", {"job": JOB, "user": "eve"})["id"]
    assert s.get(f"/v1/jobs/{other}")["user"] == "bob"  # in nobody else's name
    s.post("/v1/jobs", {"command": ["true"]}, 403)  # what runs is the admin's to allow
    s.call("PUT", "/v1/quotas/bob", {"slots": 1}, 403)
    assert s.raw("PUT", "/v1/buckets/b/k", b"bob's")[0] == 201
    s.post(f"/v1/jobs/{job}/metrics", {"step": 1}, (201, 409))  # it may have ended
    s.token = tokens["carl"]
    assert s.raw("PUT", "/v1/buckets/b/k", b"carl's")[0] == 403
    assert s.raw("GET", "/v1/buckets/b/k")[2] == b"bob's"
    s.post(f"/v1/jobs/{job}/metrics", {"step": 1}, 403)
    for what in ("cancel", "pause"):
        s.post(f"/v1/jobs/{job}/{what}", want=(403, 409))
    s.token = tokens["eve"]
    s.post("/v1/jobs", {"command": ["true"]})
    s.call("PUT", "/v1/quotas/bob", {"slots": 4})
    s.token = tokens["bob"] + "x"
    s.get("/v1/jobs", 401)
    for name in tokens.values():
        assert name not in open(f"{s.folder}/serve.log").read()
        for root, _, files in os.walk(f"{s.folder}/data"):
            for path in (os.path.join(root, file) for file in files):
                if os.path.isfile(path):
                    assert name.encode() not in open(path, "rb").read(), path


def clients(s, tokens):
    folder = s.folder
    os.makedirs(f"{folder}/.config/tandem")
    config = f"{folder}/.config/tandem/client.yaml"
    with open(config, "w") as f:
        f.write(f"server: https://localhost:{s.port}\nca: {folder}/cert.pem\n"
                f"token: {tokens['bob']}\n")
    assert "chmod 600" in run(folder, "jobs", want=2)
    os.chmod(config, 0o600)
    with open(f"{folder}/job.yaml", "w") as f:
        f.write(JOB)
    text = run(folder, "submit", "job.yaml", "--set", "train.steps=16", "--label", "team=x", "-w")
    job = text.split()[1]
    assert "succeeded" in text and "running" in text, text
    assert "step 16 of 16" in text, text
    assert "finished at step 16" in run(folder, "logs", "-f", job)
    assert f" {job}  succeeded" in run(folder, "jobs", "--all", "label.team=x")
    assert json.loads(run(folder, "jobs", job))["state"] == "succeeded"
    assert json.loads(run(folder, "jobs", "--all", "--json"))
    with open(f"{folder}/data.bin", "wb") as f:
        f.write(bytes(range(256)) * 100)
    run(folder, "artifacts", "put", "data.bin", f"{job}/d/data.bin")
    assert "d/data.bin" in run(folder, "artifacts", job)
    run(folder, "artifacts", "get", job, "d/data.bin", "-o", "back.bin")
    assert open(f"{folder}/back.bin", "rb").read() == open(f"{folder}/data.bin", "rb").read()
    assert "no artifact" in run(folder, "artifacts", "get", job, "none", want=2)
    run(folder, "artifacts", "put", "data.bin", "bucket/key")
    again = run(folder, "retry", job).split()[-1]
    run(folder, "watch", again)
    run(folder, "delete", again)
    assert "doesn't exist" in run(folder, "watch", again, want=2)
    assert "has ended" in run(folder, "cancel", job, want=2)
    with open(f"{folder}/sweep.yaml", "w") as f:
        f.write("search: grid\nmetric: loss\nspace: {train.optimizer.lr: [0.1, 0.2]}\n")
    assert "2 trials" in run(folder, "submit", "job.yaml", "--sweep", "sweep.yaml")
    assert "0 of 2" in run(folder, "sweeps") or "of 2" in run(folder, "sweeps")
    assert "train.optimizer.lr=0.2" in run(folder, "sweeps", "1")
    assert "valid token" in run(folder, "jobs", want=2, token="wrong")
    assert "cannot reach" in run(folder, "jobs", "--server", "http://127.0.0.1:1", want=1)
    assert "not an address" in run(folder, "jobs", "--server", "localhost", want=2)


def restart(s, tokens):
    """tandem watch and tandem logs -f outlive the service: they go on where they were."""
    s.token = tokens["eve"]
    hold = "echo before; mkfifo go; read x < go; echo after"
    job = s.post("/v1/jobs", {"name": "holds", "command": ["sh", "-c", hold]})["id"]
    env = {**os.environ, "HOME": s.folder, "TANDEM_TOKEN": tokens["eve"]}
    followers = [subprocess.Popen([TANDEM, *command, str(job)], env=env, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                 for command in (["watch"], ["logs", "-f"])]
    try:
        while "running" not in followers[0].stdout.readline():
            assert followers[0].poll() is None, "watch has ended"
        assert followers[1].stdout.readline() == "before\n"
        s.stop()
        s.start()
        until = time.monotonic() + PATIENCE_S
        while not glob.glob(f"{s.folder}/data/jobs/{job}/**/go", recursive=True):
            assert time.monotonic() < until
        with open(glob.glob(f"{s.folder}/data/jobs/{job}/**/go", recursive=True)[0], "w") as f:
            f.write("on\n")
        said = followers[0].communicate(timeout=PATIENCE_S)[0]
        assert "succeeded" in said, said
        assert followers[1].communicate(timeout=PATIENCE_S)[0] == "after\n"
        assert [f.returncode for f in followers] == [0, 0]
    finally:
        for f in followers:
            f.kill()
            f.wait()


def main():
    folder = sys.argv[1]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1",
                    "-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"],
                   check=True, capture_output=True)
    # Without tokens nobody on other machines is let in.
    line = run(folder, "serve", "--set", "http.listen=0.0.0.0:0", "--set",
               "grpc.listen=127.0.0.1:0", "--set", f"data.dir={folder}/open", want=2)
    assert "security.tokens" in line, line
    tokens = make_tokens(folder)
    s = Secure(folder, config=f"{folder}/service.yaml")
    try:
        scopes(s, tokens)
        print("scopes", flush=True)
        clients(s, tokens)
        print("clients", flush=True)
        restart(s, tokens)
        print("restart", flush=True)
    finally:
        s.stop()


main()
