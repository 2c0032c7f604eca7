"""Rank 1 sends rank 0 bytes over one TCP connection for some seconds; rank 0 prints the rate.

python stream.py SECONDS
"""

import os
import socket
import sys
import time

address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    with socket.create_server(address) as server:
        connection, _ = server.accept()
    began, received, buffer = time.monotonic(), 0, bytearray(1 << 20)
    while count := connection.recv_into(buffer):
        received += count
    print(f"{8 * received / (time.monotonic() - began) / 1e6:.1f} Mbit/s")
else:
    while True:
        try:
            connection = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    data, end = bytes(1 << 20), time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        connection.sendall(data)
