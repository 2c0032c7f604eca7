"""A program without torch that acts out WANBENCH_CASE, unless it is alone; the spec fills in --rounds."""

import os
import subprocess
import sys
import time

import wanbench

case = os.environ["WANBENCH_CASE"]
rank, alone = os.environ["RANK"], os.environ["WORLD_SIZE"] == "1"
rounds = int(sys.argv[sys.argv.index("--rounds") + 1])

if case == "failing" and rank == "1":
    sys.exit("no such thing as a free lunch")
if case in {"failing", "hanging"} and not alone:
    subprocess.Popen(["sleep", "1003"], start_new_session=True)
    print("up", flush=True)
    time.sleep(1004)
for _ in range(rounds):
    time.sleep(0.05)
    if case == "stepping":
        wanbench.step()
