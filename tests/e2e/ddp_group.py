# SPDX-License-Identifier: Apache-2.0
"""A group of PyTorch workers for tests of trackers: ddp_group.py MODE FOLDER. All train together;
then, `wait`: each says so by a file, and goes on when the file `go` is there; `fail`: rank 1 ends
with status 7, and the others would wait for ever."""
import os
import sys
import time
from pathlib import Path

import ddp_example

mode, folder, rank = sys.argv[1], Path(sys.argv[2]), os.environ["RANK"]
ddp_example.main()
sys.stdout.flush()
if mode == "fail" and rank == "1":
    os._exit(7)  # threads of gloo may abort a process that takes itself apart
(folder / f"trained-{rank}").touch()
end = time.monotonic() + 600
while mode == "fail" or not (folder / "go").exists():
    if time.monotonic() > end:
        sys.exit("nobody said go")
    time.sleep(0.05)
print(f"rank {rank} ends")
