"""Connect to rank 0 over the emulated network, and print the shortest time of connect() in ms: a round trip."""

import os
import socket
import time

addresses = os.environ["WANBENCH_ADDRESSES"].split(",")
CONNECTIONS = 25


def connected():
    """Return the time of a connection, once rank 0 listens."""
    while True:
        began = time.monotonic()
        try:
            with socket.create_connection((addresses[0], 7000), timeout=10) as sock:
                seconds = time.monotonic() - began
                sock.sendall(b".")
                return seconds
        except ConnectionRefusedError:
            time.sleep(0.05)


if os.environ["RANK"] == "0":
    with socket.create_server((addresses[0], 7000)) as server:
        for _ in range(CONNECTIONS * (len(addresses) - 1)):
            server.accept()[0].recv(1)
else:
    print(f"{os.environ['WANBENCH_SITE']} {1000 * min(connected() for _ in range(CONNECTIONS)):.2f}", flush=True)
