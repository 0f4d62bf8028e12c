# SPDX-License-Identifier: Apache-2.0
"""The calls of the book's scripts, by grpcio and reflection: book_calls.py PART DATA-DIR PORT...

Each PART is a function below. What a client prints has the names of the fields as in the .proto
files only if their descriptors have no names for JSON: `show` prints as the book's client does.
"""
import hashlib
import os
import sys
import time

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase)

DATA = "data_management.DataManagementService/"
RUNS = "metadata_store.MetadataStoreService/"
TRAIN = "training.TrainingService/"
PREDICT = "prediction.PredictionService/"
TANDEM = "tandem.v1.TrainingService/"
PARAMETERS = {"LR": "4", "EPOCHS": "5", "BATCH_SIZE": "64", "FC_SIZE": "128"}


class Client:
    def __init__(self, port, cert=None):
        address = f"127.0.0.1:{port}"
        if cert:
            with open(cert, "rb") as f:
                trust = grpc.ssl_channel_credentials(root_certificates=f.read())
            self.channel = grpc.secure_channel(address, trust)
        else:
            self.channel = grpc.insecure_channel(address)
        self.port = port
        self.base = ProtoReflectionDescriptorDatabase(self.channel)
        self.pool = DescriptorPool(self.base)

    def start(self, name, request, **options):
        service, method = name.split("/")
        m = self.pool.FindServiceByName(service).FindMethodByName(method)
        if m.client_streaming:
            return self.start_stream(name, m, request, **options)
        kinds = [message_factory.GetMessageClass(t) for t in (m.input_type, m.output_type)]
        make = self.channel.unary_stream if m.server_streaming else self.channel.unary_unary
        send = make("/" + name, request_serializer=kinds[0].SerializeToString,
                    response_deserializer=kinds[1].FromString)
        return m, send(json_format.ParseDict(request, kinds[0]()), timeout=60, **options)

    def start_stream(self, name, m, requests, **options):
        kinds = [message_factory.GetMessageClass(t) for t in (m.input_type, m.output_type)]
        send = self.channel.stream_unary("/" + name, request_serializer=kinds[0].SerializeToString,
                                         response_deserializer=kinds[1].FromString)
        return m, send.future((kinds[0](**r) for r in requests), timeout=60, **options)

    def __call__(self, name, request=None, **options):
        """The answer as the book's client prints it; of a failed call (code, text)."""
        try:
            m, answer = self.start(name, request or {}, **options)
            if m.client_streaming:
                answer = answer.result()
            return [show(a) for a in answer] if m.server_streaming else show(answer)
        except grpc.RpcError as e:
            return e.code().name, e.details()


def show(message):
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def expect(got, want, what):
    if got != want:
        sys.exit(f"{what}: {got}\ninstead of {want}")


def metadata(**fields):
    base = {"algorithm": "intent-classification", "dataset_id": "1", "name": "test1",
            "train_data_version_hash": "hashAg==", "output_model_name": "my-model",
            "parameters": PARAMETERS}
    return {"metadata": {k: v for k, v in {**base, **fields}.items() if v is not None}}


def wait_for(condition, what):
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"{what}: waited too long")
        time.sleep(0.02)


def finish(client, job):
    end = time.monotonic() + 100
    while time.monotonic() < end:
        answer = client(TRAIN + "GetTrainingStatus", {"job_id": job})
        if isinstance(answer, dict) and answer.get("status") in ("succeed", "failure"):
            return answer
        time.sleep(0.1)
    sys.exit(f"job {job} does not end: {answer}")


def reflection(clients, folder):
    """Both versions list the services; no descriptor has a name for JSON."""
    want = ["training.TrainingService", "data_management.DataManagementService",
            "metadata_store.MetadataStoreService", "prediction.PredictionService",
            "tandem.v1.TrainingService", "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"]
    for client in clients:
        expect(sorted(client.base.get_services()), sorted(want), "services")
        for service in want:
            client.pool.FindServiceByName(service)
        expect(client("grpc.health.v1.Health/Check"), {"status": "SERVING"}, "health")
    stub = reflection_pb2_grpc.ServerReflectionStub(clients[0].channel)
    query = reflection_pb2.ServerReflectionRequest
    ask = [query(file_containing_symbol=s) for s in ("training.TrainingService", "no.Such")]
    found, missing = stub.ServerReflectionInfo(iter(ask))
    raw = found.file_descriptor_response.file_descriptor_proto[0]
    assert b"job_id" in raw and b"jobId" not in raw and b"positionInQueue" in raw
    expect(missing.error_response.error_code, 5, "an unknown symbol")
    try:
        clients[0].channel.unary_unary("/training.TrainingService/Nothing")(b"", timeout=10)
        sys.exit("an unknown method answers")
    except grpc.RpcError as e:
        expect(e.code().name, "UNIMPLEMENTED", "an unknown method")


def data(clients, folder):
    """Scripts dm-003 to dm-007: a data set, two more commits, versions by commit and tag."""
    client = clients[0]
    upload = f"{folder}/buckets/mini-automl-dm/upload"
    rows = ["what is the weather,weather", "hello there,greeting", "see you,goodbye",
            '"say ""no"", please",no;cancel']
    for i, name in enumerate(("001.csv", "002.csv", "003.csv")):
        with open(f"{upload}/{name}", "w", encoding="utf-8") as f:
            f.write("\n".join(rows[i:] * 40) + "\n")
    tags = [[{"tag_key": "category", "tag_value": v}] for v in ("aaa", "bbb")]
    made = client(DATA + "CreateDataset", {
        "name": "dataset-1", "dataset_type": "TEXT_INTENT", "bucket": "mini-automl-dm",
        "path": "upload/001.csv", "tags": tags[0]})
    expect((made["dataset_id"], made["commits"][0]["statistics"]),
           ("1", {"numLabels": "5", "numExamples": "160"}), "CreateDataset")
    for name, tag in (("002.csv", tags[0]), ("003.csv", tags[1])):
        made = client(DATA + "UpdateDataset", {
            "dataset_id": "1", "commit_message": "More training data", "bucket": "mini-automl-dm",
            "path": "upload/" + name, "tags": tag})
    expect([c["commit_id"] for c in made["commits"]], ["1", "2", "3"], "UpdateDataset")
    expect(client(DATA + "GetDatasetSummary", {"dataset_id": "1"}), made, "GetDatasetSummary")
    for query, name in (({}, "hashDg=="), ({"commit_id": "1"}, "hashAg=="),
                        ({"tags": tags[0]}, "hashBg=="), ({"tags": tags[1]}, "hashCA==")):
        version = client(DATA + "PrepareTrainingDataset", {"dataset_id": "1", **query})
        expect(version["version_hash"], name, f"PrepareTrainingDataset {query}")
    end = time.monotonic() + 60
    while True:
        got = client(DATA + "FetchTrainingDataset", {"dataset_id": "1", "version_hash": "hashDg=="})
        if got.get("state") == "READY" or time.monotonic() > end:
            break
    root = "versionedDatasets/1/hashDg=="
    expect(got, {"dataset_id": "1", "version_hash": "hashDg==", "state": "READY",
                 "parts": [{"name": n, "bucket": "mini-automl-dm", "path": f"{root}/{n}"}
                           for n in ("examples.csv", "labels.csv")],
                 "root": {"name": "root", "bucket": "mini-automl-dm", "path": root},
                 "statistics": {"numLabels": "5", "numExamples": "360"}}, "FetchTrainingDataset")
    with open(f"{folder}/buckets/mini-automl-dm/{root}/labels.csv", encoding="utf-8") as f:
        labels = dict(line.strip().replace('"', "").split(",") for line in f)
    with open(f"{folder}/buckets/mini-automl-dm/{root}/examples.csv", encoding="utf-8") as f:
        lines = f.read().splitlines()
    numbers = {label: number for number, label in labels.items()}
    expect(lines[:4:3], [f'"what is the weather","{numbers["weather"]}"',
                         f'"say ""no"", please","{numbers["no"]};{numbers["cancel"]}"'],
           "the first rows of a version")
    expect(client(DATA + "ListDatasets"), [{"dataset_id": "1"}], "ListDatasets")
    for name, request, text in (
            ("GetDatasetSummary", {"dataset_id": "7"}, "Dataset 7 not found"),
            ("PrepareTrainingDataset", {"dataset_id": "7"}, "Dataset 7 not found"),
            ("FetchTrainingDataset", {"dataset_id": "7"}, "Dataset 7 not found"),
            ("FetchTrainingDataset", {"dataset_id": "1", "version_hash": "h"},
             "VersionHash h for Dataset 1 not found")):
        expect(client(DATA + name, request), ("NOT_FOUND", text), name)
    bad = {"dataset_id": "1", "bucket": "mini-automl-dm", "path": "../../service.db"}
    expect(client(DATA + "UpdateDataset", bad)[0], "INVALID_ARGUMENT", "a path outside the bucket")
    generic = client(DATA + "CreateDataset", {"name": "g", "bucket": "mini-automl-dm",
                                              "path": "upload"})
    expect((generic["dataset_id"], "dataset_type" in generic), ("2", False), "a GENERIC data set")
    version = client(DATA + "PrepareTrainingDataset", {"dataset_id": "2"})["version_hash"]
    while client(DATA + "FetchTrainingDataset",
                 {"dataset_id": "2", "version_hash": version}).get("state") != "READY":
        if time.monotonic() > end:
            sys.exit("a GENERIC version is not built")
    got = client(DATA + "FetchTrainingDataset", {"dataset_id": "2", "version_hash": version})
    expect([p["name"] for p in got["parts"]], ["part-0-0", "part-0-1", "part-0-2"], "its parts")
    expect(client(DATA + "DeleteDataset", {"dataset_id": "2"}), {}, "DeleteDataset")
    expect(client(DATA + "ListDatasets"), [{"dataset_id": "1"}], "ListDatasets after it")


def train(clients, folder):
    """Scripts ts-002 and ts-003, and what can be wrong with them."""
    client = clients[-1]
    for lacks, text in (("output_model_name", "outputModelName"), ("dataset_id", "datasetId"),
                        ("train_data_version_hash", "trainDataVersionHash"),
                        ("algorithm", "algorithm")):
        name = None if lacks == "output_model_name" else "x"
        expect(client(TRAIN + "Train", metadata(**{"name": name, lacks: None})),
               ("INVALID_ARGUMENT", f'"{text}" is required.'), f"Train without {lacks}")
    expect(client(TRAIN + "GetTrainingStatus", {"job_id": "1"}),
           ("NOT_FOUND", "Job 1 doesn't exist"), "an unknown job")
    expect(client(TRAIN + "Train", metadata()), {"job_id": 1}, "Train")
    # The request that the book prints has no output_model_name: the name stands for it.
    expect(client(TRAIN + "Train", metadata(output_model_name=None, name="seed")), {"job_id": 2},
           "Train as the book prints it")
    expect(client(TRAIN + "Train", metadata(train_data_version_hash="hashZz==")), {"job_id": 3},
           "Train")
    done = finish(client, 1)
    expect(done, {"status": "succeed", "job_id": 1, "message": "Exit code 0", **metadata()},
           "a job that succeeded")
    done = finish(client, 2)
    expect((done["status"], done["metadata"]["output_model_name"]), ("succeed", "seed"), "job 2")
    secret = metadata(train_data_version_hash="hashZz==")
    secret["metadata"]["parameters"] = {**PARAMETERS, "API_TOKEN": "s3cret"}
    expect(client(TRAIN + "Train", secret), {"job_id": 4}, "Train with a secret")
    expect(finish(client, 4)["metadata"]["parameters"]["API_TOKEN"], "***", "a secret parameter")
    done = finish(client, 3)
    expect((done["status"], done["message"]),
           ("failure", "NOT_FOUND: VersionHash hashZz== for Dataset 1 not found"),
           "a job without its data")


def predict(clients, folder):
    """Scripts lab-003 and ps-003: the run and the model of a job, and what it predicts."""
    client = clients[0]
    run = client(RUNS + "GetRunStatus", {"run_id": "1"})["run_info"]
    expect((run["success"], run["run_name"], run["tracing"], len(run["epochs"])),
           (True, "test1", {"dataset_id": "1", "version_hash": "hashAg=="}, 5), "the run of job 1")
    assert run["message"].startswith("test accuracy ") and "accuracy" in run["epochs"]["0-1"][
        "metrics"], run
    model = client(RUNS + "GetArtifact", {"run_id": "1"})
    expect((model["name"], model["version"], model["algorithm"]),
           ("my-model", "1", "intent-classification"), "the model of job 1")
    expect(client(PREDICT + "Predict", {"runId": "1", "document": "what is the weather"}),
           {"response": '{"result": "weather"}'}, "Predict")
    expect(client(PREDICT + "Predict", {"runId": "77", "document": "x"}),
           ("NOT_FOUND", "Cannot locate model artifact for runId 77."), "Predict without a model")
    run = client(RUNS + "GetRunStatus", {"run_id": "3"})
    expect(run if isinstance(run, tuple) else run["run_info"].get("success", False), False,
           "the run of a job that failed")


def parallel(clients, folder):
    """Script ts-004: three workers."""
    client = clients[0]
    version = client(DATA + "PrepareTrainingDataset", {"dataset_id": "1"})["version_hash"]
    request = metadata(name="test-parallel", train_data_version_hash=version,
                       output_model_name="my-parallel-intent-classification-model",
                       parameters={**PARAMETERS, "EPOCHS": "10", "PARALLEL_INSTANCES": "3"})
    job = client(TRAIN + "Train", request)["job_id"]
    expect(finish(client, job), {"status": "succeed", "job_id": job, "message": "Exit code 0",
                                 **request}, "a job of three workers")
    expect(client(RUNS + "GetArtifact", {"run_id": str(job)})["name"],
           "my-parallel-intent-classification-model", "its model")


def runs(clients, folder):
    """Scripts ms-003 to ms-006 and what a training program reports."""
    client = clients[0]
    tracing = {"dataset_id": "1", "version_hash": "hashBA==", "code_version": "12a3bfd"}
    start = {"start_time": "2021-08-01T00:00:00Z", "run_id": "r1", "run_name": "demo-run",
             "tracing": tracing}
    info = {**start, "message": "Running"}
    expect(client(RUNS + "LogRunStart", start),
           {"run_info": info, "bucket": "mini-automl-ms", "path": "run_r1"}, "LogRunStart")
    expect(client(RUNS + "LogRunStart", start), ("ALREADY_EXISTS", "Run r1 already exists"),
           "the same run again")
    epoch = {"epoch_info": {"start_time": "2021-08-01T01:00:00Z", "run_id": "r1", "epoch_id": "0-1",
                            "end_time": "2021-08-01T01:30:00Z",
                            "metrics": {"foo_metrics": "bar_value"}}}
    expect(client(RUNS + "LogEpoch", epoch), epoch, "LogEpoch")
    expect(client(RUNS + "LogEpoch", epoch),
           ("ALREADY_EXISTS", "Epoch 0-1 in Run r1 already exists"), "the same epoch again")
    info["epochs"] = {"0-1": epoch["epoch_info"]}
    expect(client(RUNS + "GetRunStatus", {"run_id": "r1"}), {"run_info": info}, "GetRunStatus")
    end = {"end_time": "2021-08-01T02:00:00Z", "success": True, "message": "completed"}
    expect(client(RUNS + "LogRunEnd", {"run_id": "r1", **end}), {"run_info": {**info, **end}},
           "LogRunEnd")
    for name in ("LogRunEnd", "GetRunStatus"):
        expect(client(RUNS + name, {"run_id": "r9"}), ("NOT_FOUND", "Run r9 doesn't exist"), name)
    made = f"{folder}/buckets/mini-automl-ms/run_r1"
    os.makedirs(made)
    for name in ("model.pth", "manifest.json"):
        with open(f"{made}/{name}", "w", encoding="utf-8") as f:
            f.write(name)
    for version, path in (("1", "intent"), ("2", "intent@2")):
        artifact = {"name": "intent", "bucket": "mini-automl-ms", "path": path}
        want = {"version": version, "artifact": artifact, "run_id": "r" + version,
                "name": "intent", "algorithm": "intent-classification"}
        asked = {"artifact": {**artifact, "path": "run_r1"}, "run_id": "r" + version,
                 "algorithm": "intent-classification"}
        expect(client(RUNS + "CreateArtifact", asked), want, "CreateArtifact")
        expect(client(RUNS + "GetArtifact", {"run_id": "r" + version}), want, "GetArtifact")
        expect(sorted(os.listdir(f"{folder}/buckets/mini-automl-ms/{path}")),
               ["manifest.json", "model.pth"], "the files of a model")
    expect(client(RUNS + "GetArtifact"), ("INVALID_ARGUMENT", "RunId required."), "GetArtifact")
    expect(client(RUNS + "GetArtifact", {"run_id": "r9"}),
           ("NOT_FOUND", "Artifact with runId r9 doesn't exist"), "GetArtifact")


def uploads(client, job, folder):
    """A file that comes in pieces is whole or absent."""
    data = bytes(range(256)) * 20000
    sha = hashlib.sha256(data).hexdigest()

    def put(name, pieces, **first):
        head = {"job_id": job, "name": name, **first}
        return client(TANDEM + "PutArtifact",
                      ([{**head, "data": pieces[0]}] if pieces else []) +
                      [{"data": p} for p in pieces[1:]])

    pieces = [data[i:i + 700000] for i in range(0, len(data), 700000)]
    answer = put("sub/big.bin", pieces, sha256=sha)
    expect((answer["name"], answer["bytes"], answer["sha256"]),
           ("sub/big.bin", str(len(data)), sha), "PutArtifact")
    expect(put("empty", [b""])["sha256"], hashlib.sha256().hexdigest(), "an empty file")
    expect(put("bad", [b"other"], sha256=sha)[0], "INVALID_ARGUMENT", "another sha256")
    expect(put("../job.yaml", [b"x"])[0], "INVALID_ARGUMENT", "a name that leaves the folder")
    expect(client(TANDEM + "PutArtifact", [{"job_id": 99, "name": "x", "data": b"x"}]),
           ("NOT_FOUND", "Job 99 doesn't exist"), "a file of no job")
    expect(client(TANDEM + "PutArtifact", [])[0], "INVALID_ARGUMENT", "no message")

    def endless():
        yield {"job_id": job, "name": "half", "data": data}
        while True:
            yield {"data": data}

    _, call = client.start(TANDEM + "PutArtifact", endless())
    spool = os.path.join(folder, "spool")
    wait_for(lambda: os.listdir(spool), "an upload under way")
    call.cancel()
    wait_for(lambda: not os.listdir(spool), "what a cancelled upload leaves")
    names = [f["name"] for f in client(TANDEM + "ListArtifacts", {"job_id": job})["artifacts"]]
    expect(sorted(names), ["empty", "sub/big.bin"], "ListArtifacts")
    _, chunks = client.start(TANDEM + "ReadArtifact", {"job_id": job, "name": "sub/big.bin"})
    expect(b"".join(c.data for c in chunks) == data, True, "the file that comes back")


def workers(client):
    """Members of a group while it runs."""
    job = client(TANDEM + "Submit", {"spec": {
        "name": "group", "command": ["sh", "-c", "test $RANK = 0 || exec sleep 100"],
        "resources": {"members": 2, "slots": 0}}})["job_id"]

    def states():
        found = client(TANDEM + "ListWorkers", {"job_id": job}).get("workers", [])
        return [(w.get("member", 0), w.get("rank", 0), w["ranks"], w["state"]) for w in found]

    wait_for(lambda: states() == [(0, 0, 1, "ended"), (1, 1, 1, "running")], "members")
    one = client(TANDEM + "ListWorkers")["workers"][-1]
    expect((one["job_id"], one["tracker"], one["host"]), (job, "process", os.uname().nodename),
           "ListWorkers")
    client(TANDEM + "Cancel", {"job_id": job})
    finish(client, job)
    expect(client(TANDEM + "ListWorkers", {"job_id": job}), {}, "workers of a job that has ended")
    expect(client(TANDEM + "ListWorkers", {"job_id": 99})[0], "NOT_FOUND", "workers of no job")


def tandem(clients, folder):
    """What is new: submit once, list, cancel, watch, logs, metrics, quotas."""
    client = clients[0]
    spec = {"name": "sleeper", "command": ["sh", "-c", "echo one; echo two; exec sleep 100"],
            "labels": {"team": "nlp"}, "resources": {"slots": 0}, "priority": 3}
    job = client(TANDEM + "Submit", {"spec": spec, "idempotency_key": "k1"})
    again = client(TANDEM + "Submit", {"spec": spec, "idempotency_key": "k1"})
    number = job["job_id"]
    expect(again["job_id"], number, "the same key again")
    expect(job["spec"]["labels"], {"team": "nlp"}, "labels")
    listed = client(TANDEM + "List", {"filter": "label.team=nlp"})
    expect([j["job_id"] for j in listed["jobs"]], [number], "List by label")
    page = client(TANDEM + "List", {"page_size": 2})
    expect([j["job_id"] for j in page["jobs"]], [number, number - 1], "a page")
    rest = client(TANDEM + "List", {"page_size": 100, "page_token": page["next_page_token"]})
    expect([j["job_id"] for j in rest["jobs"]], list(range(number - 2, 0, -1)), "the rest")
    _, log = client.start(TANDEM + "Logs", {"job_id": number, "follow": True})
    text = b""
    for chunk in log:
        text += chunk.data
        if text.count(b"\n") == 2:
            break
    log.cancel()
    expect(text, b"one\ntwo\n", "Logs")
    _, events = client.start(TANDEM + "Watch", {"job_id": number, "until_final": True})
    expect(client(TANDEM + "Cancel", {"job_id": number, "reason": "enough"})["job_id"], number,
           "Cancel")
    states = [e.state for e in events if e.kind == "state"]
    expect((states[0], states[-1]), (0, 6), "the states that Watch tells")
    last = client(TANDEM + "Get", {"job_id": number})
    expect(last["state"], "CANCELLED", "a cancelled job")
    expect(client(TRAIN + "GetTrainingStatus", {"job_id": number})["status"], "failure",
           "a cancelled job in the book's words")
    lines = client(TANDEM + "Metrics", {"job_id": 1})
    assert lines and all(c["lines"].endswith("\n") for c in lines), lines
    assert '"kind": "step"' in lines[0]["lines"], lines[0]
    expect(client(TANDEM + "Submit", {"spec": {"name": "x", "priority": 5000}})[0],
           "INVALID_ARGUMENT", "a priority out of range")
    expect(client(TANDEM + "Get", {"job_id": 99}), ("NOT_FOUND", "Job 99 doesn't exist"), "Get")
    expect(client(TANDEM + "SetQuota", {"user": "ann", "slots": "4", "weight": 2.0}),
           {"user": "ann", "slots": "4", "weight": 2.0}, "SetQuota")
    assert {"user": "ann", "slots": "4", "weight": 2.0} in client(TANDEM + "ListQuotas")["quotas"]
    client(TANDEM + "RemoveQuota", {"user": "ann"})
    expect(client(TANDEM + "ListQuotas").get("quotas", []), [], "ListQuotas")
    assert client(TANDEM + "GetStats")["slots"] != "0"
    assert "sweeps" in client(TANDEM + "ListSweeps")["json"]
    where = {"name": "where", "dataset_id": "1", "train_data_version_hash": "hashAg==",
             "command": ["sh", "-c", "echo $METADATA_STORE_SERVER; ls $TRAINING_DATA_DIR"]}
    other_job = client(TANDEM + "Submit", {"spec": where})["job_id"]
    expect(finish(client, other_job)["status"], "succeed", "a job that says where the service is")
    _, log = client.start(TANDEM + "Logs", {"job_id": other_job})
    expect(b"".join(c.data for c in log).decode(),
           f"127.0.0.1:{client.port}\nexamples.csv\nlabels.csv\n", "its address, and its data")
    uploads(client, number, folder)
    workers(client)
    expect(client(TANDEM + "Delete", {"job_id": number}), {}, "Delete")
    expect(client(TANDEM + "Get", {"job_id": number})[0], "NOT_FOUND", "a deleted job")


def after(clients, folder):
    """A service that was killed and started again knows everything, and numbers go on."""
    client = clients[0]
    expect(client(TRAIN + "GetTrainingStatus", {"job_id": 1})["status"], "succeed", "job 1")
    expect(client(DATA + "FetchTrainingDataset",
                  {"dataset_id": "1", "version_hash": "hashDg=="})["state"], "READY", "a version")
    expect(client(RUNS + "GetRunStatus", {"run_id": "r1"})["run_info"]["success"], True, "a run")
    job = client(TRAIN + "Train", metadata())["job_id"]
    assert job > 4, job
    expect(finish(client, job)["status"], "succeed", "a job after it")
    expect(client(RUNS + "GetArtifact", {"run_id": str(job)})["version"], "2", "its model")


def other(clients, folder):
    """A service that asks another one for data sets: refused there, or waiting for its files."""
    client = clients[0]
    own = {str(job): clients[-1](RUNS + "GetRunStatus", {"run_id": str(job)}) for job in (1, 2, 3)}
    own = {job: run for job, run in own.items() if isinstance(run, dict)}
    assert own, "the first service has no runs of its own"
    request = metadata(dataset_id="7")
    expect(client(TRAIN + "Train", request), {"job_id": 1}, "Train")
    done = finish(client, 1)
    expect((done["status"], done["message"]), ("failure", "NOT_FOUND: Dataset 7 not found"),
           "a job whose data the other service does not know")
    spec = {"name": "seen", "dataset_id": "1", "train_data_version_hash": "hashDg==",
            "command": ["sh", "-c", "echo $TRAINING_DATA_BUCKET/$TRAINING_DATA_PATH"]}
    expect(client(TANDEM + "Submit", {"spec": spec})["job_id"], 2, "Submit")
    expect(finish(client, 2)["status"], "succeed", "a job whose data the other service knows")
    _, log = client.start(TANDEM + "Logs", {"job_id": 2})
    expect(b"".join(c.data for c in log), b"mini-automl-dm/versionedDatasets/1/hashDg==\n",
           "where its data lies")
    # The first service, the last one here, is told of the runs of this one.
    for job in range(3, 41):  # beyond the numbers that it has used itself
        expect(client(TRAIN + "Train", request), {"job_id": job}, "Train")
    until = time.monotonic() + 60
    got = {}
    while "run_info" not in got or "end_time" not in got["run_info"]:
        assert time.monotonic() < until, got
        got = clients[-1](RUNS + "GetRunStatus", {"run_id": "40"})
    expect(got["run_info"]["message"], "NOT_FOUND: Dataset 7 not found", "a run of another")
    for job, run in own.items():
        expect(clients[-1](RUNS + "GetRunStatus", {"run_id": job}), run, "a run of its own")


def secure(clients, folder):
    """TLS, and tokens with scopes: `reader` and `writer`."""
    client = Client(clients[0].port, "cert.pem")
    request = {"job_id": 1}
    expect(client("grpc.health.v1.Health/Check"), {"status": "SERVING"}, "health needs no token")
    expect(client(TRAIN + "GetTrainingStatus", request)[0], "UNAUTHENTICATED", "no token")
    for token, scope in (("wrong", None), ("reader", "read"), ("writer", "submit")):
        metadata_ = (("authorization", "Bearer " + token),)
        got = client(TRAIN + "GetTrainingStatus", request, metadata=metadata_)
        if scope is None:
            expect(got[0], "UNAUTHENTICATED", "a wrong token")
            continue
        expect(got["status"], "succeed", f"a status with the token of {token}")
        got = client(TRAIN + "Train", {}, metadata=metadata_)
        expect(got[0], "PERMISSION_DENIED" if scope == "read" else "INVALID_ARGUMENT",
               f"Train with the token of {token}")
    # What was made before there were tokens belongs to nobody: only an admin changes it.
    denied = {DATA + "DeleteDataset": {"dataset_id": "1"},
              DATA + "UpdateDataset": {"dataset_id": "1", "bucket": "b", "path": "p"},
              RUNS + "LogRunEnd": {"run_id": "1", "success": True},
              TANDEM + "ReportMetric": {"job_id": 1, "json": "{}"}}
    for method, request in denied.items():
        expect(client(method, request, metadata=metadata_)[0], "PERMISSION_DENIED", method)
    mine = {"run_id": "bob-1", "run_name": "x"}
    expect("run_info" in client(RUNS + "LogRunStart", mine, metadata=metadata_), True, "a run")
    done = client(RUNS + "LogRunEnd", {"run_id": "bob-1", "success": True}, metadata=metadata_)
    expect("run_info" in done, True, "the end of an own run")
    expect(clients[0]("grpc.health.v1.Health/Check")[0], "UNAVAILABLE", "a client without TLS")


def main():
    part, folder, *ports = sys.argv[1:]
    globals()[part]([Client(port) for port in ports], folder)


main()
