"""hivemind: workers find each other in a distributed hash table and average a tensor."""

import os

import hivemind
import torch
from torch.distributed import TCPStore

rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), workers, is_master=rank == 0)
peers = [] if rank == 0 else store.get("peers").decode().split()
dht = hivemind.DHT(host_maddrs=[f"/ip4/{os.environ['WANBENCH_ADDRESS']}/tcp/0"], initial_peers=peers, start=True)
if rank == 0:
    store.set("peers", " ".join(map(str, dht.get_visible_maddrs())))
averager = hivemind.averaging.DecentralizedAverager(
    [torch.full((250_000,), float(rank))], dht, prefix="mean", target_group_size=workers,
    min_group_size=workers, min_matchmaking_time=5.0, start=True,
)  # fmt: skip
averager.step(timeout=120)
with averager.get_tensors() as (mean,):
    print(f"rank {rank}: mean {float(mean[0])}", flush=True)
store.set(f"done{rank}", "")
for other in range(workers):
    store.wait([f"done{other}"])
averager.shutdown()
dht.shutdown()
