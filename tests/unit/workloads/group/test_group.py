"""The process group `wan` without torch's front. Each rank is a thread; every result follows from the definition."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

import pytest
import torch
import torch.distributed as dist

from wanbench.workloads.comm.base import CommError
from wanbench.workloads.group import register
from wanbench.workloads.group.group import Elsewhere, WanGroup

T = TypeVar("T")
SUM = dist.ReduceOp.SUM


@pytest.fixture
def group(monkeypatch):
    """Yield a factory of groups over loopback; leave them at the end."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    made: list[WanGroup] = []

    def make(size: int, timeout_s: float = 20.0, **variables: str) -> list[WanGroup]:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        store = dist.HashStore()
        groups = [WanGroup(store, rank, size, timedelta(seconds=timeout_s)) for rank in range(size)]
        on_every_rank(groups, lambda one: one._set_sequence_number_for_group())
        made.extend(groups)
        return groups

    yield make
    on_every_rank(made, lambda one: one.shutdown())


def on_every_rank(groups: list[WanGroup], body: Callable[[WanGroup], T]) -> list[T]:
    if not groups:
        return []
    with ThreadPoolExecutor(len(groups)) as pool:
        return list(pool.map(body, groups))


def all_reduce_options(op: Any = SUM) -> Any:
    options = dist.AllreduceOptions()
    options.reduceOp = op
    return options


def rooted(options: Any, root: int, op: Any = SUM, tensor: int = 0) -> Any:
    options.rootRank = root
    if hasattr(options, "rootTensor"):
        options.rootTensor = tensor
    if hasattr(options, "reduceOp"):
        options.reduceOp = op
    return options


def given(rank: int, numel: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The contribution of a rank, which every rank can compute."""
    numbers = torch.randint(1, 100, (numel,), generator=torch.Generator().manual_seed(rank))
    return numbers.to(dtype)


# ---------------------------------------------------------------- reductions

REAL, WHOLE = (torch.float32, torch.float64), (torch.int64, torch.int32, torch.uint8)
OPS: dict[str, tuple[Any, Callable[[torch.Tensor], torch.Tensor]]] = {
    "sum": (dist.ReduceOp.SUM, lambda all_: all_.sum(0)),
    "mean": (dist.ReduceOp.AVG, lambda all_: all_.sum(0) / len(all_)),
    "product": (dist.ReduceOp.PRODUCT, lambda all_: all_.prod(0)),
    "min": (dist.ReduceOp.MIN, lambda all_: all_.min(0).values),
    "max": (dist.ReduceOp.MAX, lambda all_: all_.max(0).values),
    "band": (dist.ReduceOp.BAND, lambda all_: all_[0] & all_[1] & all_[2]),
    "bor": (dist.ReduceOp.BOR, lambda all_: all_[0] | all_[1] | all_[2]),
    "bxor": (dist.ReduceOp.BXOR, lambda all_: all_[0] ^ all_[1] ^ all_[2]),
}


@pytest.mark.parametrize("numel", [0, 1, 7, 50_000])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, dtype) for name in ("sum", "product", "min", "max") for dtype in (*REAL, *WHOLE)),
        *(("mean", dtype) for dtype in REAL),
        *((name, dtype) for name in ("band", "bor", "bxor") for dtype in WHOLE),
    ],
)
def test_every_reduction_of_every_type_of_number(group, name, dtype, numel):
    op, expected = OPS[name]

    def body(one: WanGroup) -> torch.Tensor:
        tensor = given(one.rank(), numel, dtype)
        one.allreduce([tensor], all_reduce_options(op)).wait()
        return tensor

    every = torch.stack([given(rank, numel, dtype) for rank in range(3)])
    for result in on_every_rank(group(3), body):
        assert torch.equal(result, expected(every).to(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_added_in_single_precision_and_rounded_once(group, dtype):
    def body(one: WanGroup) -> torch.Tensor:
        tensor = torch.full((40_000,), 1.0 if one.rank() == 0 else 2.0**-10, dtype=dtype)
        one.allreduce([tensor], all_reduce_options()).wait()
        return tensor

    expected = torch.tensor(1 + 4 * 2.0**-10).to(dtype)
    for result in on_every_rank(group(5), body):
        assert (result == expected).all()


def test_the_mean_of_whole_numbers_is_refused(group):
    (one,) = group(1)
    with pytest.raises(CommError, match="the mean of whole numbers is not a whole number"):
        one.allreduce([torch.ones(3, dtype=torch.int64)], all_reduce_options(dist.ReduceOp.AVG))


@pytest.mark.parametrize("root", range(3))
def test_a_reduce_ends_at_its_root_and_changes_nothing_elsewhere(group, root):
    def body(one: WanGroup) -> torch.Tensor:
        tensor = given(one.rank(), 1000)
        one.reduce([tensor], rooted(dist.ReduceOptions(), root)).wait()
        return tensor

    results = on_every_rank(group(3), body)
    assert torch.equal(results[root], sum(given(rank, 1000) for rank in range(3)))
    assert all(torch.equal(result, given(rank, 1000)) for rank, result in enumerate(results) if rank != root)


def test_a_reduce_scatter_gives_each_rank_its_piece_and_leaves_the_input(group):
    def body(one: WanGroup) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
        inputs = [given(10 * one.rank() + piece, 100 + piece) for piece in range(3)]  # pieces of different sizes
        output, single = torch.empty(100 + one.rank()), torch.empty(4)
        one.reduce_scatter([output], [inputs], dist.ReduceScatterOptions()).wait()
        one.reduce_scatter_single(single, given(one.rank(), 12), dist.ReduceScatterOptions()).wait()
        return inputs, output, single

    whole = sum(given(rank, 12) for rank in range(3))
    for rank, (inputs, output, single) in enumerate(on_every_rank(group(3), body)):
        assert torch.equal(output, sum(given(10 * peer + rank, 100 + rank) for peer in range(3)))
        assert torch.equal(single, whole[4 * rank : 4 * rank + 4])
        assert all(torch.equal(given(10 * rank + piece, 100 + piece), tensor) for piece, tensor in enumerate(inputs))


# ---------------------------------------------------------------- transfers


@pytest.mark.parametrize("root", range(3))
@pytest.mark.parametrize("numel", [0, 5, 400_000])  # the last one goes in two steps
def test_a_broadcast_copies_the_root(group, root, numel):
    def body(one: WanGroup) -> list[torch.Tensor]:
        tensors = [given(one.rank() + shift, numel) for shift in range(3)]
        works = [one.broadcast([tensor], rooted(dist.BroadcastOptions(), root)) for tensor in tensors]
        for work in reversed(works):
            work.wait()
        return tensors

    for tensors in on_every_rank(group(3), body):
        assert all(torch.equal(tensor, given(root + shift, numel)) for shift, tensor in enumerate(tensors))


def test_gather_scatter_and_all_gather(group):
    def body(one: WanGroup) -> tuple[list[torch.Tensor], torch.Tensor, list[torch.Tensor], torch.Tensor]:
        rank, mine = one.rank(), given(one.rank(), 6).view(2, 3)
        gathered = [torch.empty(2, 3) for _ in range(3)] if rank == 1 else []
        one.gather([gathered] if rank == 1 else [], [mine], rooted(dist.GatherOptions(), 1)).wait()
        part = torch.empty(2, 3)
        pieces = [[given(50 + peer, 6).view(2, 3) for peer in range(3)]] if rank == 2 else []
        one.scatter([part], pieces, rooted(dist.ScatterOptions(), 2)).wait()
        every = [torch.empty(2, 3) for _ in range(3)]
        one.allgather([every], [mine]).wait()
        single = torch.empty(6, 3)
        one.all_gather_single(single, mine).wait()
        return gathered, part, every, single

    all_given = [given(rank, 6).view(2, 3) for rank in range(3)]
    for rank, (gathered, part, every, single) in enumerate(on_every_rank(group(3), body)):
        assert len(gathered) == (3 if rank == 1 else 0)
        assert all(torch.equal(a, b) for a, b in zip(gathered, all_given, strict=rank == 1))
        assert torch.equal(part, given(50 + rank, 6).view(2, 3))
        assert all(torch.equal(a, b) for a, b in zip(every, all_given, strict=True))
        assert torch.equal(single, torch.cat(all_given))


def test_all_to_all_of_equal_and_of_different_pieces(group):
    def body(one: WanGroup) -> tuple[torch.Tensor, torch.Tensor]:
        rank = one.rank()
        equal, uneven = torch.empty(6, dtype=torch.int64), torch.empty(3 * (rank + 1), dtype=torch.int64)
        one.all_to_all_single(equal, torch.arange(6) + 10 * rank, [], []).wait()
        # rank i sends j+1 rows to rank j
        one.all_to_all_single(uneven, torch.arange(6) + 10 * rank, [rank + 1] * 3, [1, 2, 3]).wait()
        return equal, uneven

    begins = [0, 1, 3]
    for rank, (equal, uneven) in enumerate(on_every_rank(group(3), body)):
        assert equal.tolist() == [10 * peer + 2 * rank + item for peer in range(3) for item in range(2)]
        assert uneven.tolist() == [10 * peer + begins[rank] + item for peer in range(3) for item in range(rank + 1)]


def test_tensors_that_are_not_contiguous_are_read_and_filled_in_place(group):
    def body(one: WanGroup) -> torch.Tensor:
        matrix = torch.zeros(4, 4)
        matrix[:, 1] = one.rank() + 1
        one.allreduce([matrix[:, 1]], all_reduce_options()).wait()
        one.broadcast([matrix.t()[2]], rooted(dist.BroadcastOptions(), 0)).wait()
        single = torch.zeros(4, 2).t()
        one.all_gather_single(single, matrix[:, 1]).wait()
        matrix[:, 3] = single.sum(0)
        return matrix

    for matrix in on_every_rank(group(2), body):
        assert matrix.tolist() == [[0, 3, 0, 6]] * 4


# ---------------------------------------------------------------- messages


def test_messages_keep_their_order_for_each_tag_beside_collectives(group):
    def body(one: WanGroup) -> list[float]:
        if one.rank() == 0:
            works = [one.send([torch.tensor([float(n)])], 1, tag) for n, tag in ((1, 0), (2, 7), (3, 0))]
            one.barrier().wait()
            return [float(work.wait()) for work in works]
        one.barrier().wait()
        into = [torch.zeros(1) for _ in range(3)]
        works = [one.recv([tensor], 0, tag) for tensor, tag in zip(into, (7, 0, 0), strict=True)]
        for work in works:
            work.wait()
        return [tensor.item() for tensor in into]

    assert on_every_rank(group(2), body)[1] == [2, 1, 3]


def test_a_message_from_any_rank_names_its_source(group):
    def body(one: WanGroup) -> set[tuple[int, float]]:
        if one.rank():
            one.send([torch.tensor([10.0 * one.rank()])], 0).wait()
            return set()
        found = set()
        for _ in range(2):
            tensor = torch.zeros(1)
            work = one.recv_anysource([tensor])
            work.wait()
            found.add((work._source_rank(), tensor.item()))
        return found

    assert on_every_rank(group(3), body)[0] == {(1, 10.0), (2, 20.0)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda one: one.allreduce([torch.ones(3)], all_reduce_options(dist.ReduceOp.BAND)),
            "wan: BAND of torch.float32 does not exist",
        ),
        (
            lambda one: one.all_gather_single(torch.empty(3, dtype=torch.int32), torch.ones(3)),
            "wan: allgather: invalid tensor type torch.int32 for rank 0; expected torch.float32",
        ),
        *(
            (call, f"wan: {name}: invalid root rank 1; expected 0 to 0")
            for name, call in {
                "broadcast": lambda one: one.broadcast([torch.ones(3)], rooted(dist.BroadcastOptions(), 1)),
                "reduce": lambda one: one.reduce([torch.ones(3)], rooted(dist.ReduceOptions(), 1)),
                "gather": lambda one: one.gather([], [torch.ones(3)], rooted(dist.GatherOptions(), 1)),
                "scatter": lambda one: one.scatter([torch.ones(3)], [], rooted(dist.ScatterOptions(), 1)),
            }.items()
        ),
        (
            lambda one: one.gather([[torch.ones(3)] * 2], [torch.ones(3)], rooted(dist.GatherOptions(), 0)),
            "wan: gather: invalid output tensor list. Incorrect output list size 2. Output list size should be 1",
        ),
        (lambda one: one.allreduce([]), "wan: allreduce: requires non-empty tensor list"),
        (
            lambda one: one.broadcast([torch.ones(3)], rooted(dist.BroadcastOptions(), 0, tensor=1)),
            "wan: broadcast: invalid root tensor 1 of 1",
        ),
        (
            lambda one: one.scatter([torch.ones(3)] * 2, [], rooted(dist.ScatterOptions(), 0)),
            "wan: scatter: requires a single-element output tensor list; got 2",
        ),
        (
            lambda one: one.allgather([[torch.ones(2)]], [torch.ones(3)]),
            "wan: allgather: invalid tensor size: 2 numbers for rank 0; expected 3",
        ),
    ],
)
def test_a_call_that_cannot_be_right_is_refused_before_anything_is_sent(group, call, message):
    (one,) = group(1)
    with pytest.raises(CommError) as caught:
        call(one)
    assert str(caught.value) == message
    one.barrier().wait()


def test_a_barrier_waits_for_collectives_and_not_for_messages(group):
    def body(one: WanGroup) -> list[float]:
        tensors = [torch.ones(50_000) for _ in range(10)]
        message = one.recv([torch.zeros(1)], 1 - one.rank())
        for tensor in tensors:
            one.allreduce([tensor], all_reduce_options())
        one.barrier().wait()
        ended = [tensor.mean().item() for tensor in tensors]
        one.send([torch.ones(1)], 1 - one.rank()).wait()
        message.wait()
        return ended

    assert on_every_rank(group(2), body) == [[2.0] * 10] * 2


def test_a_tensor_that_is_listed_twice_is_reduced_once(group):
    def body(one: WanGroup) -> list[float]:
        tensor = torch.ones(3)
        one.allreduce_coalesced([tensor, tensor], all_reduce_options()).wait()
        return tensor.tolist()

    assert on_every_rank(group(2), body) == [[2.0] * 3] * 2


def test_a_tag_that_does_not_fit_is_refused(group):
    (one,) = group(1)
    with pytest.raises(CommError, match="tag -1: expected 0 to 4294967295"):
        one.send([torch.zeros(1)], 0, -1)


# ---------------------------------------------------------------- work and futures


def test_a_callback_can_wait_for_a_later_operation(group):
    """PowerSGD's hook for DistributedDataParallel does this."""

    def body(one: WanGroup) -> float:
        first = torch.ones(1)

        def twice(future: Any) -> torch.Tensor:
            (tensor,) = future.value()
            return one.allreduce([tensor], all_reduce_options()).get_future().wait()[0]

        return one.allreduce([first], all_reduce_options()).get_future().then(twice).wait().item()

    assert on_every_rank(group(3), body) == [9.0] * 3


def test_operations_between_start_and_end_of_coalescing_are_one_work(group):
    def body(one: WanGroup) -> list[float]:
        tensors = [torch.full((2,), float(n)) for n in range(3)]
        one._start_coalescing(torch.device("cpu"))
        for tensor in tensors:
            one.allreduce([tensor], all_reduce_options())
        one._end_coalescing(torch.device("cpu")).wait()
        return [tensor[0].item() for tensor in tensors]

    assert on_every_rank(group(2), body) == [[0, 2, 4]] * 2


def test_a_coalesced_operation_fills_tensors_that_are_not_contiguous(group):
    def body(one: WanGroup) -> list[float]:
        matrix = torch.ones(3, 2)
        one._start_coalescing(torch.device("cpu"))
        inner = one.allreduce([matrix[:, 1]], all_reduce_options())
        one._end_coalescing(torch.device("cpu")).wait()
        inner.wait()
        return matrix.flatten().tolist()

    assert on_every_rank(group(2), body) == [[1, 2] * 3] * 2


def test_tensors_of_inference_mode_can_be_reduced_and_gathered(group):
    def body(one: WanGroup) -> list[float]:
        with torch.inference_mode():
            tensor = torch.ones(2)
            one.allreduce([tensor], all_reduce_options()).wait()
            every = [torch.zeros(2) for _ in range(2)]
            one.allgather([every], [tensor]).wait()
            return [part.sum().item() for part in every]

    assert on_every_rank(group(2), body) == [[4, 4]] * 2


def test_nothing_refers_to_a_tensor_once_its_operation_has_ended(group):
    def body(one: WanGroup) -> list[bool]:
        gone = []
        for _ in range(3):
            tensor = torch.ones(1000)
            seen = weakref.ref(tensor)
            one.allreduce([tensor], all_reduce_options()).wait()
            one.barrier().wait()
            del tensor
            gone.append(seen() is None)
        return gone

    gc.disable()
    try:
        assert on_every_rank(group(2), body) == [[True] * 3] * 2
    finally:
        gc.enable()


def test_a_failed_operation_raises_from_its_future(group):
    first, second = group(2)
    future = first.allreduce([torch.ones(3)], all_reduce_options()).get_future()
    second.shutdown()
    with pytest.raises(RuntimeError, match="rank 1 has left the group"):
        future.wait()
    with pytest.raises(RuntimeError, match="rank 1 has left the group"):
        future.then(lambda ended: ended.value()).wait()


# ---------------------------------------------------------------- ranks that end, or do not answer


def test_ranks_that_have_finished_can_leave_while_others_still_wait(group):
    groups = group(3)
    last = threading.Event()

    def body(one: WanGroup) -> float:
        tensor = torch.ones(100_000)
        if one.rank() == 2:
            last.wait()
        work = one.allreduce([tensor], all_reduce_options())
        if one.rank() == 0:
            threading.Timer(0.2, last.set).start()
        work.wait()
        if one.rank() == 2:
            one.shutdown()
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

    def body(one: WanGroup) -> str:
        if one.rank() == 1:
            return ""
        with pytest.raises(CommError) as caught:
            one.allreduce([torch.ones(3)], all_reduce_options()).wait()
        return str(caught.value)

    messages = on_every_rank(groups, body)
    assert all(
        "all_reduce did not end within its timeout of 0.3 s; it waits for rank 1" in messages[rank] for rank in (0, 2)
    ), messages


def refusals(groups: list[WanGroup], call: Callable[[WanGroup], Any]) -> list[str]:
    def body(one: WanGroup) -> str:
        with pytest.raises(CommError) as caught:
            call(one).wait()
        return str(caught.value)

    return on_every_rank(groups, body)


def test_ranks_that_disagree_on_a_size_get_an_error(group):
    messages = refusals(group(2), lambda one: one.allreduce([torch.ones(3 + one.rank())], all_reduce_options()))
    assert all("disagree on the size" in message for message in messages)


def all_reduce_of(op: Any = SUM, dtype: torch.dtype = torch.float32, numel: int = 8) -> Callable[[WanGroup], Any]:
    return lambda one: one.allreduce([torch.ones(numel, dtype=dtype)], all_reduce_options(op))


def halves(one: WanGroup) -> Any:
    return one.all_to_all_single(torch.zeros(8), torch.ones(8), [], [])


def broadcast_of(root: int, dtype: torch.dtype = torch.float32) -> Callable[[WanGroup], Any]:
    """And a barrier behind it: a root that has sent is done, and learns of what was wrong in its next operation."""

    def call(one: WanGroup) -> Any:
        one.broadcast([torch.ones(8, dtype=dtype)], rooted(dist.BroadcastOptions(), root)).wait()
        return one.barrier()

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
        lambda one: one.all_gather_single(torch.zeros(8), torch.ones(4)),
        halves,
        ("allgather of float32", "alltoall of float32"),
    ),
    "barrier": (
        lambda one: one.barrier(),
        all_reduce_of(),
        ("barrier of uint8", "all_reduce by sum of float32"),
    ),
    "root of a reduce": (
        lambda one: one.reduce([torch.ones(8)], rooted(dist.ReduceOptions(), 0)),
        lambda one: one.reduce([torch.ones(8)], rooted(dist.ReduceOptions(), 1)),
        ("reduce to rank 0 by sum of float32", "reduce to rank 1 by sum of float32"),
    ),
    "reduce and reduce_scatter": (
        lambda one: one.reduce([torch.ones(4)], rooted(dist.ReduceOptions(), 0)),
        lambda one: one.reduce_scatter([torch.zeros(0)], [[torch.ones(4), torch.ones(0)]]),
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
    messages = refusals(group(2, timeout_s=2.0, **settings), lambda one: calls[one.rank()](one))
    if sites and case == "barrier":  # which do not meet: one goes through leaders, the other does not
        assert all("waits for rank" in message for message in messages)
        return
    assert all(name in message for name in names for message in messages), messages


def test_a_message_of_another_type_than_its_buffer_is_refused(group):
    first, second = group(2)
    first.send([torch.ones(4)], 1)
    with pytest.raises(CommError, match="rank 0 sent 'message of float32'; expected 'message of int32'"):
        second.recv([torch.zeros(4, dtype=torch.int32)], 0).wait()


def test_split_sizes_that_do_not_fit_are_named_on_both(group):
    def call(one: WanGroup) -> Any:
        sizes = [3, 1] if one.rank() else [2, 2]
        return one.all_to_all_single(torch.zeros(4), torch.ones(4), sizes, sizes)

    assert all(
        "sent 12 bytes; rank 0 expected 8" in message or "sent 8 bytes; rank 1 expected 12" in message
        for message in refusals(group(2), call)
    )


def test_a_monitored_barrier_names_all_ranks_that_are_late_and_the_group_goes_on(group):
    register()
    groups = group(4)

    def body(one: WanGroup) -> str:
        if one.rank() in (1, 3):
            return ""
        with pytest.raises(CommError) as caught:
            dist.monitored_barrier(one, timedelta(seconds=0.5))
        return str(caught.value)

    messages = on_every_rank(groups, body)
    assert all(messages[rank].endswith("timeout of 0.5 s; it waits for ranks 1, 3") for rank in (0, 2)), messages
    groups[1].barrier(), groups[3].barrier()  # they come at last
    on_every_rank(groups, lambda one: dist.monitored_barrier(one))


# ---------------------------------------------------------------- restarts


@pytest.fixture
def lives(monkeypatch):
    """Yield a function that forms a group of the ranks of one life, all lives with one store."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    store, made = dist.HashStore(), []

    def form(life: int, ranks: list[int], timeout_s: float) -> list[WanGroup | str]:
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(life))

        def joined(one: WanGroup) -> WanGroup | str:
            try:
                one._set_sequence_number_for_group()
            except CommError as error:
                return str(error)
            made.append(one)
            return one

        return on_every_rank([WanGroup(store, rank, 3, timedelta(seconds=timeout_s)) for rank in ranks], joined)

    yield form
    on_every_rank(made, lambda one: one.shutdown())


def adds_up(groups: list[WanGroup]) -> None:
    for result in on_every_rank(groups, lambda one: all_reduce_of()(one).wait() and one.rank()):
        assert result in range(3)


@pytest.mark.parametrize("there", [[0, 1, 2], [0, 1], [1, 2], [2]])
def test_a_later_life_finds_its_own_peers_in_the_store_of_the_first(lives, there):
    first = lives(0, there, 20.0 if len(there) == 3 else 0.3)
    if len(there) < 3:
        assert all("did not join the group within 0.3 s" in message for message in first)
    adds_up(lives(1, [0, 1, 2], 20.0))
    adds_up(lives(2, [2, 0, 1], 20.0))


def test_a_late_process_of_the_first_life_is_refused_and_the_second_life_goes_on(lives, monkeypatch):
    """It is there before the others of the second life, or comes between them."""
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(lives, 0, [1], 20.0)
        while "TORCHELASTIC_RESTART_COUNT" not in os.environ:
            time.sleep(0.01)
        time.sleep(0.2)
        second = lives(1, [0, 1, 2], 20.0)
        (message,) = late.result()
    adds_up(second)
    assert message == "wan: another process has joined the group as rank 1 after this one"


def test_ranks_that_never_come_are_named(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    lonely = WanGroup(dist.HashStore(), 0, 3, timedelta(seconds=0.2))
    with pytest.raises(CommError, match=r"ranks \[1, 2\] did not join the group within 0.2 s"):
        lonely._set_sequence_number_for_group()


def test_a_late_rank_is_named_rather_than_those_that_wait_for_it_too(group):
    groups = group(4, timeout_s=1.5)

    def body(one: WanGroup) -> str:
        if one.rank() == 2:
            return ""
        with pytest.raises(CommError) as caught:
            one.allreduce([torch.ones(100_000)], all_reduce_options()).wait()
        return str(caught.value)

    messages = on_every_rank(groups, body)
    assert all("waits for rank 2" in messages[rank] for rank in (0, 1, 3)), messages


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
    works = [one.allreduce([torch.ones(100_000)], all_reduce_options()) for one in (first, second)]
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


# ---------------------------------------------------------------- settings, and what gloo carries


def test_two_processes_of_one_site_and_one_of_another_reduce_hierarchically(group):
    groups = group(3, WAN_COLLECTIVE="hierarchical", WAN_SITES="paris,paris,tokyo")

    def body(one: WanGroup) -> float:
        tensor = torch.full((10,), float(one.rank()))
        one.allreduce([tensor], all_reduce_options(dist.ReduceOp.MAX)).wait()
        one.allreduce([tensor], all_reduce_options(dist.ReduceOp.AVG)).wait()
        return tensor[3].item()

    assert on_every_rank(groups, body) == [2.0] * 3


def test_half_precision_is_rounded_once_inside_a_site_too(group):
    groups = group(5, WAN_COLLECTIVE="hierarchical", WAN_SITES="paris,paris,paris,paris,tokyo")

    def body(one: WanGroup) -> float:
        tensor = torch.tensor([1.0 if one.rank() == 0 else 2.0**-9], dtype=torch.bfloat16)
        one.allreduce([tensor], all_reduce_options()).wait()
        return tensor.item()

    assert on_every_rank(groups, body) == [1 + 2.0**-7] * 5


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WAN_COLLECTIVE": "ring"}, "WAN_COLLECTIVE=ring: expected direct or hierarchical"),
        (
            {"WAN_COLLECTIVE": "hierarchical"},
            'needs WAN_SITES, the site of each rank, such as ["paris", "paris", "tokyo"]',
        ),
        ({"WAN_STREAMS": "0"}, "WAN_STREAMS=0: expected a whole number, at least 1"),
        ({"WAN_PACES": "[1]"}, "expected a JSON list of [together, alone] in bytes/s, one per rank"),
        ({"WAN_PACES": "[[NaN, 1]]"}, "expected a JSON list of [together, alone] in bytes/s, one per rank"),
        ({"GLOO_SOCKET_IFNAME": "nothing0"}, "GLOO_SOCKET_IFNAME=nothing0: no IPv4 address of this host"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(group, variables, message):
    with pytest.raises(CommError) as caught:
        group(2, **variables)
    assert message in str(caught.value)


def test_several_tensors_of_one_process_are_reduced_with_each_other_by_gloo(group, monkeypatch):
    monkeypatch.setattr(Elsewhere, "counts", Counter({"allreduce": 1}))

    def body(one: WanGroup) -> list[float]:
        tensors = [torch.tensor([1.0 + one.rank()]), torch.tensor([10.0])]
        one.allreduce(tensors).wait()
        return [tensor.item() for tensor in tensors]

    assert on_every_rank(group(2), body) == [[23.0, 23.0]] * 2
    assert Elsewhere.counts == {"allreduce": 3}


def test_sparse_tensors_go_to_gloo_and_are_counted(group, monkeypatch):
    monkeypatch.setattr(Elsewhere, "counts", Counter({"allreduce": 1}))

    def body(one: WanGroup) -> list[float]:
        tensor = torch.sparse_coo_tensor([[one.rank()]], [2.0], (3,), check_invariants=True)
        one.allreduce([tensor], all_reduce_options()).wait()
        return tensor.to_dense().tolist()

    assert on_every_rank(group(2), body) == [[2, 2, 0]] * 2
    assert Elsewhere.counts == {"allreduce": 3}
