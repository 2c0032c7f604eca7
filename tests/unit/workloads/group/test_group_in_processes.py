"""The process group in processes that multiprocessing has started, as torch.multiprocessing.spawn does."""

from __future__ import annotations

import multiprocessing
import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from wanbench.workloads.group.group import WanGroup

NUMEL = 5_000_000  # more than the sockets hold
groups: list[WanGroup] = []  # as torch keeps them


def take_part(rank: int, path: str, received: str) -> None:
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    group = WanGroup(dist.FileStore(path, 2), rank, 2, timedelta(seconds=20))
    group._set_sequence_number_for_group()
    groups.append(group)
    if rank == 0:
        group.send([torch.ones(NUMEL)], 1)
        return
    time.sleep(0.5)  # the other process has ended, as far as its program is concerned
    tensor = torch.zeros(NUMEL)
    group.recv([tensor], 0).wait()
    Path(received).write_text(str(tensor.sum().item()))


def test_what_a_process_has_sent_arrives_although_its_function_has_returned(tmp_path):
    context = multiprocessing.get_context("spawn")
    arguments = str(tmp_path / "store"), str(tmp_path / "received")
    processes = [context.Process(target=take_part, args=(rank, *arguments)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
        process.close()
    assert Path(arguments[1]).read_text() == str(float(NUMEL))
