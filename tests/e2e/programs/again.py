"""Rank 1 sends rank 0 its number of restarts, and first waits to be killed. Rank 0 ends when rank 1 is back."""

import os
import socket
import subprocess
import time

PORT = 4000
count, most = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["TORCHELASTIC_MAX_RESTARTS"]
first = os.environ["WANBENCH_ADDRESSES"].split(",")[0]
print(f"start {count} of {most}", flush=True)
subprocess.Popen(["sleep", "1005"], start_new_session=True)

if os.environ["RANK"] == "0":
    heard = ""
    with socket.create_server((first, PORT)) as server:
        while heard != "1":
            peer, _ = server.accept()
            heard = peer.recv(1).decode()
            print(f"heard from start {heard}", flush=True)
            if heard == "0":
                assert peer.recv(1) == b""
                print("it hung up", flush=True)
else:
    while True:
        try:
            peer = socket.create_connection((first, PORT))
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    peer.sendall(count.encode())
    if count == "0":
        time.sleep(1006)
