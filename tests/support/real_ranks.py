"""Ranks of a gloo group on loopback, each a process."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warm import Warm

_MAIN = """
import pickle, sys
folder, rank, world_size, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].split(":")
sys.path[:0] = path
import torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", world_size), rank=rank, world_size=world_size)
with open(f"{folder}/body", "rb") as file:
    body, arguments = pickle.load(file)
result = body(*arguments)
dist.barrier()
dist.destroy_process_group()
torch.save(result, f"{folder}/result-{rank}")
"""


def on_processes(world_size: int, folder: Path, body: Callable[..., Any], *arguments: object) -> list[Any]:
    """Return what a function of a module returns on each rank, in a process of its own."""
    import torch

    (folder / "body").write_bytes(pickle.dumps((body, arguments)))
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    path = ":".join(
        dict.fromkeys([str(Path(sys.modules[body.__module__].__file__ or "").parent), *filter(None, sys.path)])
    )
    with (folder / "errors").open("a") as errors:
        ranks = [
            Warm(_MAIN, [str(folder), str(rank), str(world_size), path], err=errors.fileno(), environment=environment)
            for rank in range(world_size)
        ]
    for rank in ranks:
        rank.communicate(timeout=120)
    assert [rank.returncode for rank in ranks] == [0] * world_size, (folder / "errors").read_text()
    return [torch.load(folder / f"result-{rank}", weights_only=False) for rank in range(world_size)]
