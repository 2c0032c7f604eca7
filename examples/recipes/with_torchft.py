"""torchft: DiLoCo, an outer step of SGD with Nesterov momentum on the mean change of all replicas."""

import os
import time
from datetime import timedelta

import torch
from torchft import Manager, ProcessGroupGloo
from torchft.local_sgd import DiLoCo

OUTER_STEPS, SYNC_EVERY = 3, 8

replica, replicas = int(os.environ["REPLICA_GROUP_ID"]), int(os.environ["NUM_REPLICA_GROUPS"])
torch.manual_seed(0)
model = torch.nn.Linear(64, 10)
inner = torch.optim.AdamW(model.parameters(), lr=0.01)
outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=60)),
    min_replica_size=replicas,
    use_async_quorum=False,
    replica_id=f"replica_{replica}",
    load_state_dict=model.load_state_dict,
    state_dict=model.state_dict,
    timeout=timedelta(seconds=60),
)
torch.manual_seed(1 + replica)  # every replica has its own data
ends = []
with DiLoCo(manager, [model], inner, outer, sync_every=SYNC_EVERY):
    for _ in range(OUTER_STEPS * SYNC_EVERY):
        loss = torch.nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.randint(10, (32,)))
        inner.zero_grad()
        loss.backward()
        inner.step()  # the last one of a period waits for the outer step
        ends.append(time.monotonic())
print(f"replica {replica} of {replicas}: sum {sum(p.sum() for p in model.parameters()):.5f}", flush=True)
print(f"{1000 * (ends[-1] - ends[SYNC_EVERY - 1]) / (len(ends) - SYNC_EVERY):.1f} ms per step", flush=True)
manager.shutdown(wait=False)
