"""Ray: a task on every node, and an object that crosses the network."""

import os
import socket
import time

import numpy as np
import ray

workers = int(os.environ["WORLD_SIZE"])
ray.init(address="auto", log_to_driver=False)
while len([node for node in ray.nodes() if node["Alive"]]) < workers:
    time.sleep(0.2)


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def measure(vector: np.ndarray) -> tuple[str, float]:
    """Return where the task ran, and the mean of the vector."""
    time.sleep(1)
    return socket.gethostname(), float(vector.mean())


shared = ray.put(np.arange(500_000, dtype=np.float64))
found = ray.get([measure.remote(shared) for _ in range(workers)])
print(
    f"ran on {','.join(sorted({host for host, _ in found}))}; means {sorted({mean for _, mean in found})}", flush=True
)
