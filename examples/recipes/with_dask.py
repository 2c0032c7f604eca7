"""Dask: a task on every worker, and a sum over the network."""

import os
import socket

from distributed import Client

workers = int(os.environ["WORLD_SIZE"])
with Client(f"tcp://{os.environ['MASTER_ADDR']}:8786") as client:
    client.wait_for_workers(workers)
    hosts = client.run(socket.gethostname)
    parts = client.map(lambda k: sum(range(1000 * k, 1000 * (k + 1))), range(10 * workers))
    total = client.submit(sum, parts).result()
    print(f"ran on {','.join(sorted(hosts.values()))}; sum {total}", flush=True)
    client.shutdown()
