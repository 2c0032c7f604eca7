"""The process group in processes that multiprocessing has started, as torch.multiprocessing.spawn does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
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


def exit_codes(ranks: int, target: Callable[..., None], *arguments: str) -> list[int | None]:
    """Run `target(rank, *arguments)` in a process for each rank. Return how they ended; None after two minutes."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=target, args=(rank, *arguments)) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
        process.join()
        process.close()
    return codes


@pytest.mark.long  # in threads, what was sent arrives although the sender has left each time
def test_what_a_process_has_sent_arrives_although_its_function_has_returned(tmp_path):
    store, received = tmp_path / "store", tmp_path / "received"
    assert exit_codes(2, take_part, str(store), str(received)) == [0, 0]
    assert received.read_text() == str(float(NUMEL))


def survive(rank: int, path: str) -> None:
    """Three ranks add up, the middle one dies, and the others go on as two."""
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    store = dist.FileStore(path, -1)
    dist.init_process_group("wan", store=dist.PrefixStore("0", store), rank=rank, world_size=3)
    tensor = torch.ones(10)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [3.0] * 10
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError, match="rank 1"):
        dist.all_reduce(torch.ones(10))
    dist.destroy_process_group()
    dist.init_process_group("wan", store=dist.PrefixStore("1", store), rank=[0, None, 1][rank], world_size=2)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [6.0] * 10
    dist.destroy_process_group()


@pytest.mark.long  # those who are left regroup each time, without torch's interface
def test_those_who_are_left_after_a_rank_was_killed_form_a_new_group(tmp_path):
    assert exit_codes(3, survive, str(tmp_path / "store")) == [0, -signal.SIGKILL, 0]
