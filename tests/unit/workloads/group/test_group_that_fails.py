"""Ranks of the process group `wan` that leave, are late or do not do the same: the others say which, and why."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from wan_groups import all_reduce_of, all_reduce_options, given, on_every_rank, rooted

from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.work import DirectWork
from wanbench.workloads.group import register
from wanbench.workloads.group.group import WanGroup
from wanbench.workloads.group.work import GroupWork

# ---------------------------------------------------------------- ranks that end, or do not answer


def test_ranks_that_have_finished_can_leave_while_others_still_wait(group):
    groups = group(3)
    last = threading.Event()

    def body(wan: WanGroup) -> float:
        tensor = torch.ones(100_000)
        if wan.rank() == 2:
            last.wait()
        work = wan.allreduce([tensor], all_reduce_options())
        if wan.rank() == 0:
            threading.Timer(0.2, last.set).start()
        work.wait()
        if wan.rank() == 2:
            wan.shutdown()
        return tensor.sum().item()

    assert on_every_rank(groups, body) == [300_000.0] * 3


def test_what_was_sent_arrives_although_the_sender_has_left(group):
    sender, receiver = group(2)
    sender.send([given(0, 1_000_000)], 1)
    sender.shutdown()
    tensor = torch.empty(1_000_000)
    receiver.recv([tensor], 0).wait()
    assert torch.equal(tensor, given(0, 1_000_000))


def test_an_operation_that_needs_a_rank_that_has_left_names_it(group):
    first, second, third = group(3)
    pending = first.allreduce([torch.ones(3)], all_reduce_options())
    second.shutdown()
    for attempt in (pending.wait, lambda: third.allreduce([torch.ones(3)], all_reduce_options()).wait()):
        with pytest.raises(CommError, match="rank 1 has left the group"):
            attempt()


def test_a_rank_that_is_late_is_named_on_every_rank(group):
    groups = group(3, timeout_s=0.3)

    def body(wan: WanGroup) -> str:
        if wan.rank() == 1:
            return ""
        with pytest.raises(CommError) as caught:
            wan.allreduce([torch.ones(3)], all_reduce_options()).wait()
        return str(caught.value)

    messages = on_every_rank(groups, body)
    assert all(
        "all_reduce did not end within its timeout of 0.3 s; it waits for rank 1" in messages[rank] for rank in (0, 2)
    ), messages


def refusals(groups: list[WanGroup], call: Callable[[WanGroup], Any]) -> list[str]:
    def body(wan: WanGroup) -> str:
        with pytest.raises(CommError) as caught:
            call(wan).wait()
        return str(caught.value)

    return on_every_rank(groups, body)


def test_ranks_that_disagree_on_a_size_get_an_error(group):
    messages = refusals(group(2), lambda wan: wan.allreduce([torch.ones(3 + wan.rank())], all_reduce_options()))
    assert all("disagree on the size" in message for message in messages)


def halves(wan: WanGroup) -> Any:
    return wan.all_to_all_single(torch.zeros(8), torch.ones(8), [], [])


def broadcast_of(root: int, dtype: torch.dtype = torch.float32) -> Callable[[WanGroup], Any]:
    """And a barrier behind it: a root that has sent is done, and learns of what was wrong in its next operation."""

    def call(wan: WanGroup) -> Any:
        wan.broadcast([torch.ones(8, dtype=dtype)], rooted(dist.BroadcastOptions(), root)).wait()
        return wan.barrier()

    return call


DISAGREEMENTS = {  # what rank 0 does, what rank 1 does, and how a message calls both
    "reduction": (
        all_reduce_of(),
        all_reduce_of(dist.ReduceOp.MAX),
        ("all_reduce by sum of float32", "all_reduce by max of float32"),
    ),
    "mean and sum": (
        all_reduce_of(dist.ReduceOp.AVG),
        all_reduce_of(),
        ("all_reduce by mean of float32", "all_reduce by sum of float32"),
    ),
    "type": (
        all_reduce_of(),
        all_reduce_of(dtype=torch.int32),
        ("all_reduce by sum of float32", "all_reduce by sum of int32"),
    ),
    "type and number of elements": (
        all_reduce_of(dtype=torch.float64, numel=4),
        all_reduce_of(),
        ("all_reduce by sum of float64", "all_reduce by sum of float32"),
    ),
    "operation": (
        lambda wan: wan.all_gather_single(torch.zeros(8), torch.ones(4)),
        halves,
        ("allgather of float32", "alltoall of float32"),
    ),
    "barrier": (
        lambda wan: wan.barrier(),
        all_reduce_of(),
        ("barrier of uint8", "all_reduce by sum of float32"),
    ),
    "root of a reduce": (
        lambda wan: wan.reduce([torch.ones(8)], rooted(dist.ReduceOptions(), 0)),
        lambda wan: wan.reduce([torch.ones(8)], rooted(dist.ReduceOptions(), 1)),
        ("reduce to rank 0 by sum of float32", "reduce to rank 1 by sum of float32"),
    ),
    "reduce and reduce_scatter": (
        lambda wan: wan.reduce([torch.ones(4)], rooted(dist.ReduceOptions(), 0)),
        lambda wan: wan.reduce_scatter([torch.zeros(0)], [[torch.ones(4), torch.ones(0)]]),
        ("reduce to rank 0 by sum of float32", "reduce_scatter by sum of float32"),
    ),
    "root of a broadcast": (
        broadcast_of(root=0),
        broadcast_of(root=1),
        (" broadcast from rank ",),  # a rank that is done with its own knows only what the other has sent
    ),
    "type of a broadcast": (
        broadcast_of(root=0),
        broadcast_of(root=0, dtype=torch.int32),
        ("broadcast from rank 0 of float32", "broadcast from rank 0 of int32"),
    ),
}


@pytest.mark.parametrize("sites", ["", "a,b", "a,a"], ids=["direct", "two sites", "one site"])
@pytest.mark.parametrize("case", DISAGREEMENTS)
def test_ranks_that_do_not_do_the_same_are_both_named_on_both(group, case, sites):
    *calls, names = DISAGREEMENTS[case]
    if sites and "all_reduce" not in str(names):
        pytest.skip("everything but an all-reduce goes as in direct")
    settings = {"WAN_COLLECTIVE": "hierarchical", "WAN_SITES": sites} if sites else {}
    do_not_meet = sites and case == "barrier"  # one goes through leaders, the other does not
    messages = refusals(
        group(2, timeout_s=2.0 if do_not_meet else 20.0, **settings), lambda wan: calls[wan.rank()](wan)
    )
    if do_not_meet:
        assert all("waits for rank" in message for message in messages)
        return
    assert all(name in message for name in names for message in messages), messages


def test_a_message_of_another_type_than_its_buffer_is_refused(group):
    first, second = group(2)
    first.send([torch.ones(4)], 1)
    with pytest.raises(CommError, match="rank 0 sent 'message of float32'; expected 'message of int32'"):
        second.recv([torch.zeros(4, dtype=torch.int32)], 0).wait()


def test_split_sizes_that_do_not_fit_are_named_on_both(group):
    def call(wan: WanGroup) -> Any:
        sizes = [3, 1] if wan.rank() else [2, 2]
        return wan.all_to_all_single(torch.zeros(4), torch.ones(4), sizes, sizes)

    assert all(
        "sent 12 bytes; rank 0 expected 8" in message or "sent 8 bytes; rank 1 expected 12" in message
        for message in refusals(group(2), call)
    )


def test_a_monitored_barrier_names_all_ranks_that_are_late_and_the_group_goes_on(group):
    register()
    groups = group(4)

    def body(wan: WanGroup) -> str:
        if wan.rank() in (1, 3):
            return ""
        with pytest.raises(CommError) as caught:
            dist.monitored_barrier(wan, timedelta(seconds=0.5))
        return str(caught.value)

    messages = on_every_rank(groups, body)
    assert all(messages[rank].endswith("timeout of 0.5 s; it waits for ranks 1, 3") for rank in (0, 2)), messages
    groups[1].barrier(), groups[3].barrier()  # they come at last
    on_every_rank(groups, lambda wan: dist.monitored_barrier(wan))


def test_a_late_rank_is_named_rather_than_those_that_wait_for_it_too(group):
    groups = group(4, timeout_s=1.5)

    def body(wan: WanGroup) -> str:
        if wan.rank() == 2:
            return ""
        with pytest.raises(CommError) as caught:
            wan.allreduce([torch.ones(100_000)], all_reduce_options()).wait()
        return str(caught.value)

    messages = on_every_rank(groups, body)
    assert all("waits for rank 2" in messages[rank] for rank in (0, 1, 3)), messages


def test_operations_that_end_together_end_with_the_last_of_them_and_with_the_first_error():
    """The others still fill their tensors when the first one fails."""
    parts, finished = [DirectWork(name, 20.0) for name in "abc"], []
    work = GroupWork(parts, [], lambda: finished.append(True))
    parts[1].complete("rank 1 is gone")
    assert not work.is_completed()
    parts[0].complete()
    parts[2].complete("rank 2 is gone")
    assert work.is_completed()
    assert not work.is_success()
    assert str(work.exception()) == "wan: rank 1 is gone"
    assert not finished


def test_a_future_has_the_time_limit_of_its_operation(group):
    first, _ = group(2, timeout_s=0.3)
    future = first.allreduce([torch.ones(3)], all_reduce_options()).get_future()
    with pytest.raises(RuntimeError, match="it waits for rank 1"):
        future.wait()


def test_what_has_arrived_is_received_although_the_root_has_left(group):
    root, receiver = group(2)
    root.broadcast([given(5, 100)], rooted(dist.BroadcastOptions(), 0)).wait()
    root.shutdown()
    time.sleep(0.1)
    tensor = torch.empty(100)
    receiver.broadcast([tensor], rooted(dist.BroadcastOptions(), 0)).wait()
    assert torch.equal(tensor, given(5, 100))


def test_a_rank_that_leaves_during_an_operation_fails_it_at_once_everywhere(group):
    first, second, third = group(3)
    works = [wan.allreduce([torch.ones(100_000)], all_reduce_options()) for wan in (first, second)]
    second.shutdown()
    for work in works:
        with pytest.raises(CommError, match="left the group"):
            work.wait()
    with pytest.raises(CommError, match="left the group"):
        third.allreduce([torch.ones(100_000)], all_reduce_options()).wait()


def test_a_group_that_was_left_refuses_operations_and_touches_no_descriptor(group):
    first, _ = group(2)
    first.shutdown()
    reads, writes = os.pipe()  # it gets the number of a descriptor that the group has closed
    try:
        for _ in range(2):
            with pytest.raises(CommError, match="this rank has left the group"):
                first.allreduce([torch.ones(3)], all_reduce_options()).wait()
        first.abort()
        os.set_blocking(reads, False)
        with pytest.raises(BlockingIOError):
            os.read(reads, 1)
    finally:
        os.close(reads)
        os.close(writes)
