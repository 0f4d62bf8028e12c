#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job trained from Python, with ctypes alone: api_train.py LIBTANDEM JOB RUN_DIR [KEY=VALUE...].

Loads the shared library, trains the job with a callback for every step, loads the run again and
predicts. Prints the digest of the weights, the steps that the callback heard of, and how many
samples of the test part were classified rightly. Under a launcher it is one of its ranks. With
API_TRAIN_PAUSE=SECONDS it does something else for so long between its calls.

api_train.py --sizes: names of structs and their bytes, to be compared with those of C."""
import ctypes
import os
import sys
import time

MAX_DIMS, MAX_METRICS = 6, 8
I64, U64, DOUBLE, TEXT = ctypes.c_int64, ctypes.c_uint64, ctypes.c_double, ctypes.c_char_p
VOID = ctypes.c_void_p


class Shape(ctypes.Structure):
    _fields_ = [("ndim", ctypes.c_int), ("dim", I64 * MAX_DIMS)]


class Metrics(ctypes.Structure):
    _fields_ = [("n", ctypes.c_int), ("name", TEXT * (MAX_METRICS + 1)),
                ("value", DOUBLE * (MAX_METRICS + 1)), ("samples", I64), ("seconds", DOUBLE)]


class StepInfo(ctypes.Structure):
    _fields_ = [("step", U64), ("epoch", U64), ("loss", DOUBLE), ("lr", DOUBLE),
                ("grad_norm", DOUBLE), ("samples", I64), ("seconds", DOUBLE), ("elapsed", DOUBLE)]


class RunResult(ctypes.Structure):
    _fields_ = [("end", ctypes.c_int), ("step", U64), ("epoch", U64), ("seconds", DOUBLE),
                ("samples_per_second", DOUBLE), ("train_loss", DOUBLE), ("best", DOUBLE),
                ("best_step", U64), ("test", Metrics), ("digest", ctypes.c_char * 65),
                ("run_dir", ctypes.c_char * 4096)]


ON_STEP = ctypes.CFUNCTYPE(ctypes.c_int, VOID, ctypes.POINTER(StepInfo))


class Callbacks(ctypes.Structure):
    _fields_ = [("user", VOID), ("begin", VOID), ("step", ON_STEP), ("eval", VOID),
                ("checkpoint", VOID), ("end", VOID)]


class JobOpts(ctypes.Structure):
    _fields_ = [("comm", VOID), ("run_dir", TEXT), ("no_run_dir", ctypes.c_bool),
                ("resume", ctypes.c_bool), ("profile", ctypes.c_bool), ("threads", ctypes.c_int),
                ("input", TEXT), ("callbacks", Callbacks), ("train", VOID), ("valid", VOID),
                ("test", VOID)]


STRUCTS = {"td_shape": Shape, "td_metrics": Metrics, "td_step_info": StepInfo,
           "td_run_result": RunResult, "td_callbacks": Callbacks, "td_job_opts": JobOpts}


def pause():
    time.sleep(float(os.environ.get("API_TRAIN_PAUSE", "0")))


def main(library, path, run_dir, *sets):
    td = ctypes.CDLL(library)
    td.td_last_error.restype = TEXT
    td.td_dataset_count.restype = I64
    td.td_shape_count.restype = I64
    td.td_dataset_count.argtypes = td.td_dataset_destroy.argtypes = [VOID]
    td.td_trainer_destroy.argtypes = td.td_job_destroy.argtypes = [VOID]

    def check(status):
        if status:
            sys.exit(f"api_train.py: {td.td_last_error().decode()}")

    job, trainer, part = VOID(), VOID(), VOID()
    result, metrics, row, heard = RunResult(), Metrics(), Shape(), []

    def on_step(_user, info):
        heard.append((info.contents.step, info.contents.loss))
        return 0  # TD_CONTINUE

    options = JobOpts(run_dir=run_dir.encode(), callbacks=Callbacks(step=ON_STEP(on_step)))
    check(td.td_job_load(path.encode(), ctypes.byref(job)))
    for key_value in sets:
        check(td.td_job_set(job, key_value.encode()))
    check(td.td_trainer_from_job(job, ctypes.byref(options), ctypes.byref(trainer)))
    check(td.td_trainer_part(trainer, b"test", ctypes.byref(part)))
    check(td.td_trainer_evaluate(trainer, part, ctypes.byref(metrics)))
    assert 0 < metrics.value[0] < 100, "loss of the first weights"
    td.td_dataset_destroy(part)
    first = metrics.value[0]
    pause()
    check(td.td_trainer_fit(trainer, ctypes.byref(result)))
    pause()
    rank = td.td_trainer_rank(trainer)
    check(td.td_trainer_save(trainer, (run_dir + ".safetensors").encode()))
    check(td.td_trainer_part(trainer, b"test", ctypes.byref(part)))
    check(td.td_trainer_evaluate(trainer, part, ctypes.byref(metrics)))
    assert rank > 0 or metrics.value[0] == result.test.value[0], "another loss after the run"
    td.td_dataset_destroy(part)
    td.td_trainer_destroy(trainer)
    td.td_job_destroy(job)
    if rank > 0 and not heard:  # an elastic rank: rank 0 alone is told
        return
    assert heard[-1][0] == result.step and heard[-1][1] == result.train_loss, heard[-1]
    if rank > 0:
        return

    check(td.td_trainer_from_run(run_dir.encode(), None, None, ctypes.byref(trainer)))
    check(td.td_trainer_part(trainer, b"test", ctypes.byref(part)))
    check(td.td_trainer_evaluate(trainer, part, ctypes.byref(metrics)))
    check(td.td_trainer_predict(trainer, part, None, ctypes.c_size_t(0), ctypes.byref(row)))
    count, classes = td.td_dataset_count(part), row.dim[0]
    scores = (ctypes.c_float * (count * classes))()
    check(td.td_trainer_predict(trainer, part, scores, ctypes.c_size_t(count * classes), None))
    best = [max(range(classes), key=lambda c, i=i: scores[i * classes + c]) for i in range(count)]
    assert len(set(best)) > 1, "one class for all samples"
    assert metrics.value[0] == result.test.value[0], "the trained run has another test loss"
    assert metrics.value[0] < first, "nothing was learnt"
    td.td_dataset_destroy(part)
    td.td_trainer_destroy(trainer)
    print(result.digest.decode(), len(heard), f"{metrics.value[1]:.6f}")


if __name__ == "__main__":
    if sys.argv[1] == "--sizes":
        for name, struct in STRUCTS.items():
            print(name, ctypes.sizeof(struct))
    else:
        main(*sys.argv[1:])
