# SPDX-License-Identifier: Apache-2.0
"""ps-lite beside us: ps_lite.cpp, compiled against a checkout that has been built (`make ps
DEPS_PATH=/usr` there takes the system's ZeroMQ and protobuf), and its processes."""
import os
import shutil
import socket
import subprocess
from pathlib import Path

PATIENCE = 120  # seconds for a case; larger ones have been seen to hang


class PsLite:
    def __init__(self, checkout, folder, first):
        self.first, self.program, self.hung = first, Path(folder, "ps_lite"), []
        source = Path(__file__).resolve().parent / "ps_lite.cpp"
        library = checkout / "build/libps.a"
        compiler = shutil.which(os.environ.get("CXX", "c++"))
        if not compiler or not library.exists():
            raise RuntimeError(f"no C++ compiler, or no {library}: "
                               "run make ps DEPS_PATH=/usr there")
        done = subprocess.run(
            [compiler, "-std=c++17", "-O3", "-w", f"-I{checkout}/include", source, library,
             "-lzmq", "-lprotobuf-lite", "-pthread", "-o", self.program],
            capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{source.name} cannot be compiled: {done.stderr[-2000:]}")

    def run(self, servers, workers, *arguments):
        """Mean over workers of the median of the rounds, in milliseconds; None: it hangs or fails,
        which is noted."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        env = dict(os.environ, DMLC_NUM_SERVER=str(servers), DMLC_NUM_WORKER=str(workers),
                   DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=str(port),
                   DMLC_NODE_HOST="127.0.0.1")
        roles = ["scheduler"] + servers * ["server"] + workers * ["worker"]
        all_of_them = [
            subprocess.Popen([*self.first, self.program, *map(str, arguments)],
                             env=dict(env, DMLC_ROLE=role), stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True) for role in roles]
        try:
            said = [p.communicate(timeout=PATIENCE)[0] for p in all_of_them[1 + servers:]]
            took = [float(text) / 1000 for text in said]
            return sum(took) / len(took)
        except (subprocess.TimeoutExpired, ValueError):
            self.hung.append(" ".join(map(str, arguments)))
            return None
        finally:
            for p in all_of_them:
                p.kill()
                p.wait()
                p.stdout.close()

    def dense(self, nbytes, key, rounds):
        return self.run(1, 1, "dense", nbytes, key, rounds)

    def rows(self, servers, workers, vocab, width, ids, rounds):
        return self.run(servers, workers, "rows", vocab, width, ids, rounds)
