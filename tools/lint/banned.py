#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Functions that may be called from their wrappers only, or not at all."""
import re
from fnmatch import fnmatch
from source import Report, files, read, strip_c

# Programs, and the modules of MPI and PMIx, which are not linked with the library.
PROGRAMS = ["cmd/*", "src/coll/mpi/*", "src/launch/foreign/pmix/*", "tests/*", "bench/*",
            "examples/*", "tools/*"]
# (names, where they are allowed, what to use instead)
RULES = [
    ("malloc calloc realloc free strdup strndup aligned_alloc posix_memalign memalign asprintf",
     # safetensors_write.c frees a text that jansson allocated, sweep.c one of open_memstream.
     ["src/base/alloc.c", "src/tensor/safetensors_write.c", "src/service/sweep/sweep.c"] + PROGRAMS,
     "allocate through base/alloc.h"),
    ("getenv secure_getenv", ["src/base/config.c", "src/base/log.c"] + PROGRAMS,
     "the environment is read in base/config.c and base/log.c only"),
    ("setenv putenv unsetenv", PROGRAMS, "the library does not change the environment"),
    ("printf vprintf puts putchar perror psignal", PROGRAMS, "report through base/log.h"),
    # A child process of the launcher has nowhere to return to.
    ("exit _exit _Exit quick_exit atexit",
     ["src/launch/spawn.c", "src/launch/agent_start.c", "src/fault/faults.c"] + PROGRAMS,
     "return a status"),
    ("abort raise", ["src/base/fail.c"] + PROGRAMS, "use TD_ASSERT (base/fail.h)"),
    ("assert", PROGRAMS, "use TD_ASSERT: it stays on in release builds"),
    ("strcpy strcat sprintf vsprintf gets stpcpy", [], "use snprintf or memcpy with a size"),
    ("atoi atol atoll atof", [], "use strtol and friends, and look at the end pointer"),
    ("strtok", [], "keeps hidden state"),
    ("system popen", ["tests/e2e/*"], "starts a shell"),
    ("rand srand random srandom drand48 rand_r", ["examples/*"],
     "use base/rng.h: keyed, the same everywhere"),
    ("alloca", [], "use scratch memory planned beforehand"),
    # Faults stop and slow down on purpose.
    ("sleep usleep nanosleep", ["bench/*", "tools/*", "src/fault/faults.c"],
     "wait for a condition with a deadline"),
]
STREAMS = re.compile(r"\b(stdout|stderr)\b")
STREAMS_ALLOWED = ["src/base/log.c", "src/base/fail.c"] + PROGRAMS

report = Report("banned")


def allowed(path, patterns):
    return any(fnmatch(path, p) for p in patterns)


compiled = [(re.compile(r"(?<![\w.>*])(" + "|".join(names.split()) + r")\s*\("), where, instead)
            for names, where, instead in RULES]
for path in files(".c", ".h", ".def"):
    text = strip_c(read(path))
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, where, instead in compiled:
            m = pattern.search(line)
            if m and not allowed(path, where):
                report.error(path, number, f"{m[1]}: {instead}")
        if STREAMS.search(line) and not allowed(path, STREAMS_ALLOWED):
            report.error(path, number, "the library prints through base/log.h only")
report.done()
