#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A node of a real Kubernetes API server, for tests: fake_kubelet.py KUBECONFIG DIR PORT [empty].

Binds every pod to itself, runs its container as a process of this host, reports phases, exit codes
and image errors in the pod's status, ends pods that are deleted, and serves their output. Names of
services mean this host. Files of ConfigMaps are put in their places; with "empty", directories that
are to be empty are made so: where nobody else sees them.

As a real one does, it says everything again until the server has taken it, and looks at all pods
again when the stream of events ends: a server that is busy loses neither a pod nor its end."""
import base64
import http.client
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

kubeconfig, folder, port = open(sys.argv[1]).read(), sys.argv[2], int(sys.argv[3])
server = re.search(r'server: "([^"]+)"', kubeconfig)[1]
token = re.search(r'token: "([^"]+)"', kubeconfig)[1]
trust = ssl.create_default_context(
    cafile=re.search(r'certificate-authority: "([^"]+)"', kubeconfig)[1])
BAD_IMAGES = {"no/such": ("ImagePullBackOff", 'Back-off pulling image "no/such"'),
              "Bad": ("InvalidImageName", "couldn't parse image reference")}
LATE = "late"  # an image that comes to rank 0 when another member of its group has failed
failed = set()  # groups of which one has
running = {}  # uid -> process
seen = set()
lock = threading.Lock()


def call(method, path, body=None, kind="application/json"):
    request = urllib.request.Request(server + path, method=method,
                                     data=json.dumps(body).encode() if body else None)
    request.add_header("Authorization", "Bearer " + token)
    request.add_header("Content-Type", kind)
    return urllib.request.urlopen(request, context=trust, timeout=600)


def path_of(pod, more=""):
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}{more}"


def insist(method, path, body, kind="application/json", over=(404,)):
    """Until the server takes it; False: it answers one of `over`, or nothing good for a minute."""
    end = time.monotonic() + 60
    while True:
        try:
            call(method, path, body, kind).read()
            return True
        except urllib.error.HTTPError as e:
            said = f"{e.code} {e.read(300)!r}"
            if e.code in over:
                return False
        except (OSError, http.client.HTTPException) as e:
            said = repr(e)
        print(f"{method} {path}: {said}", flush=True)
        if time.monotonic() > end:
            return False
        threading.Event().wait(0.2)


def report(pod, phase, state):
    status = {"phase": phase, "containerStatuses": [
        {"name": "traincode", "image": "i", "imageID": "", "ready": phase == "Running",
         "restartCount": 0, "state": state}]}
    insist("PATCH", path_of(pod, "/status"), {"status": status}, "application/merge-patch+json")


def output(pod):
    return os.path.join(folder, pod["metadata"]["name"] + ".log")


def group_of(pod):
    return re.sub("-(master|worker-[0-9]+)$", "", pod["metadata"]["name"])


def value_of(pod, variable):
    """Its own value, or that of a Secret."""
    if "valueFrom" not in variable:
        return variable.get("value", "")
    ref = variable["valueFrom"]["secretKeyRef"]
    namespace = pod["metadata"]["namespace"]
    secret = json.load(call("GET", f"/api/v1/namespaces/{namespace}/secrets/{ref['name']}"))
    return base64.b64decode(secret["data"][ref["key"]]).decode()


def run(pod):
    container = pod["spec"]["containers"][0]
    if container["image"] in BAD_IMAGES:
        reason, message = BAD_IMAGES[container["image"]]
        report(pod, "Pending", {"waiting": {"reason": reason, "message": message}})
        return
    local = lambda text: re.sub(r"[-a-z0-9.]+\.svc\.cluster\.local", "127.0.0.1",
                                text.replace("$$(", "$("))
    env = dict(os.environ, **{e["name"]: local(value_of(pod, e)) for e in container["env"]})
    end = time.monotonic() + 60
    while (container["image"] == LATE and env["RANK"] == "0" and group_of(pod) not in failed
           and time.monotonic() < end):
        threading.Event().wait(0.1)
    argv = [local(a) for a in container.get("command", []) + container.get("args", [])]
    volumes = {v["name"]: v for v in pod["spec"].get("volumes", [])}
    for mount in container.get("volumeMounts", []):
        path, volume = mount["mountPath"], volumes[mount["name"]]
        if "configMap" in volume:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            space = pod["metadata"]["namespace"]
            name = volume["configMap"]["name"]
            config = json.load(call("GET", f"/api/v1/namespaces/{space}/configmaps/{name}"))
            with open(path, "w") as file:
                file.write(config["data"][mount["subPath"]])
        else:
            if "empty" in sys.argv:
                shutil.rmtree(path, ignore_errors=True)
            os.makedirs(path, exist_ok=True)
    with open(output(pod), "wb") as log:
        process = subprocess.Popen(argv, env=env, stdout=log, stderr=log, start_new_session=True)
    with lock:
        running[pod["metadata"]["uid"]] = process
        output_of[process.pid] = pod["metadata"]["name"]
    report(pod, "Running", {"running": {}})
    code = process.wait()
    code = code if code >= 0 else 128 - code
    with lock:
        running[pod["metadata"]["uid"]] = None
    if pod["metadata"]["uid"] + "end" in seen:
        return  # deleted: whether its end is seen before it goes would be chance
    report(pod, "Succeeded" if code == 0 else "Failed",
           {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}})
    if code:
        failed.add(group_of(pod))


def end(pod):
    """A deleted pod: SIGTERM, SIGKILL after its grace time; then its object goes."""
    with lock:
        process = running.get(pod["metadata"]["uid"])
    if process:
        for number, patience in ((signal.SIGTERM, pod["metadata"]["deletionGracePeriodSeconds"]),
                                 (signal.SIGKILL, 10)):
            try:
                os.killpg(process.pid, number)
                process.wait(timeout=patience)
                break
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
    insist("DELETE", path_of(pod), {"kind": "DeleteOptions", "apiVersion": "v1",
                                    "gracePeriodSeconds": 0,
                                    "preconditions": {"uid": pod["metadata"]["uid"]}},
           over=(404, 409))  # 409: another pod of that name


class Logs(BaseHTTPRequestHandler):
    def do_GET(self):  # /containerLogs/NAMESPACE/POD/CONTAINER?follow=true
        parts = self.path.split("?")[0].split("/")
        path = os.path.join(folder, parts[3] + ".log")
        if not os.path.exists(path):
            self.send_error(404)
            return
        self.send_response(200)
        self.end_headers()
        command = ["tail", "-c", "+1", "-f"] if "follow=true" in self.path else ["cat"]
        with subprocess.Popen(command + [path], stdout=subprocess.PIPE) as tail:
            if "follow=true" in self.path:
                threading.Thread(target=self.end_with_pod, args=(parts[3], tail)).start()
            for piece in iter(lambda: tail.stdout.read1(4096), b""):
                self.wfile.write(piece)
                self.wfile.flush()

    def end_with_pod(self, name, tail):
        while tail.poll() is None:
            with lock:
                processes = [p for p in running.values() if p]
            if not any(output_of.get(p.pid) == name for p in processes):
                tail.terminate()
            threading.Event().wait(0.2)

    def log_message(self, *_):
        pass


output_of = {}  # pid -> pod's name
cert = os.path.join(folder, "kubelet.pem")
subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                "/CN=node", "-keyout", cert, "-out", cert + ".crt"], check=True,
               stderr=subprocess.DEVNULL)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(cert + ".crt", cert)
web = ThreadingHTTPServer(("127.0.0.1", port), Logs)
web.socket = context.wrap_socket(web.socket, server_side=True)
threading.Thread(target=web.serve_forever, daemon=True).start()

call("POST", "/api/v1/nodes",
     {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "node"}}).read()
call("PATCH", "/api/v1/nodes/node/status", {"status": {
    "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
    "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    "conditions": [{"type": "Ready", "status": "True"}]}}, "application/merge-patch+json").read()
print("ready", flush=True)


def bind_and_run(pod):
    bound = insist("POST", path_of(pod, "/binding"),
                   {"kind": "Binding", "apiVersion": "v1",
                    "metadata": {"name": pod["metadata"]["name"]},
                    "target": {"kind": "Node", "name": "node"}}, over=(404, 409))
    # 409: it is bound, by a try of which the answer was lost, or it is being deleted
    with lock:
        ending = pod["metadata"]["uid"] + "end" in seen
    if bound or not ending:
        run(pod)


def notice(pod):
    uid = pod["metadata"]["uid"]
    with lock:
        deleted = bool(pod["metadata"].get("deletionTimestamp"))
        new = uid + ("end" if deleted else "") not in seen
        seen.add(uid + ("end" if deleted else ""))
    if new:
        threading.Thread(target=end if deleted else bind_and_run, args=(pod,)).start()


while True:
    try:
        pods = json.load(call("GET", "/api/v1/pods"))
        for pod in pods["items"]:
            notice(pod)
        since = pods["metadata"]["resourceVersion"]
        for line in call("GET", "/api/v1/pods?watch=true&resourceVersion=" + since):
            event = json.loads(line)
            if event["type"] in ("ADDED", "MODIFIED"):
                notice(event["object"])
            elif event["type"] == "ERROR":
                break
    except (OSError, http.client.HTTPException, ValueError) as e:
        print(f"the stream of events: {e!r}", flush=True)
    threading.Event().wait(0.1)
