"""The process group `wan` without torch's front. Each rank is a thread; every result follows from the definition."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from wan_groups import all_reduce_options, given, on_every_rank, rooted

from wanbench.workloads.comm.base import CommError
from wanbench.workloads.group import group as group_module
from wanbench.workloads.group.group import WanGroup

SPARSE = torch.ones(3).to_sparse()

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

    def body(wan: WanGroup) -> torch.Tensor:
        tensor = given(wan.rank(), numel, dtype)
        wan.allreduce([tensor], all_reduce_options(op)).wait()
        return tensor

    every = torch.stack([given(rank, numel, dtype) for rank in range(3)])
    for result in on_every_rank(group(3), body):
        assert torch.equal(result, expected(every).to(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_added_in_single_precision_and_rounded_once(group, dtype):
    def body(wan: WanGroup) -> torch.Tensor:
        tensor = torch.full((40_000,), 1.0 if wan.rank() == 0 else 2.0**-10, dtype=dtype)
        wan.allreduce([tensor], all_reduce_options()).wait()
        return tensor

    expected = torch.tensor(1 + 4 * 2.0**-10).to(dtype)
    for result in on_every_rank(group(5), body):
        assert (result == expected).all()


def test_the_mean_of_whole_numbers_is_refused(group):
    (wan,) = group(1)
    with pytest.raises(CommError, match="the mean of whole numbers is not a whole number"):
        wan.allreduce([torch.ones(3, dtype=torch.int64)], all_reduce_options(dist.ReduceOp.AVG))


@pytest.mark.parametrize("root", range(3))
def test_a_reduce_ends_at_its_root_and_changes_nothing_elsewhere(group, root):
    def body(wan: WanGroup) -> torch.Tensor:
        tensor = given(wan.rank(), 1000)
        wan.reduce([tensor], rooted(dist.ReduceOptions(), root)).wait()
        return tensor

    results = on_every_rank(group(3), body)
    assert torch.equal(results[root], sum(given(rank, 1000) for rank in range(3)))
    assert all(torch.equal(result, given(rank, 1000)) for rank, result in enumerate(results) if rank != root)


def test_a_reduce_scatter_gives_each_rank_its_piece_and_leaves_the_input(group):
    def body(wan: WanGroup) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
        inputs = [given(10 * wan.rank() + piece, 100 + piece) for piece in range(3)]  # pieces of different sizes
        output, single = torch.empty(100 + wan.rank()), torch.empty(4)
        wan.reduce_scatter([output], [inputs], dist.ReduceScatterOptions()).wait()
        wan.reduce_scatter_single(single, given(wan.rank(), 12), dist.ReduceScatterOptions()).wait()
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
    def body(wan: WanGroup) -> list[torch.Tensor]:
        tensors = [given(wan.rank() + shift, numel) for shift in range(3)]
        works = [wan.broadcast([tensor], rooted(dist.BroadcastOptions(), root)) for tensor in tensors]
        for work in reversed(works):
            work.wait()
        return tensors

    for tensors in on_every_rank(group(3), body):
        assert all(torch.equal(tensor, given(root + shift, numel)) for shift, tensor in enumerate(tensors))


def test_gather_scatter_and_all_gather(group):
    def body(wan: WanGroup) -> tuple[list[torch.Tensor], torch.Tensor, list[torch.Tensor], torch.Tensor]:
        rank, own = wan.rank(), given(wan.rank(), 6).view(2, 3)
        gathered = [torch.empty(2, 3) for _ in range(3)] if rank == 1 else []
        wan.gather([gathered] if rank == 1 else [], [own], rooted(dist.GatherOptions(), 1)).wait()
        part = torch.empty(2, 3)
        pieces = [[given(50 + peer, 6).view(2, 3) for peer in range(3)]] if rank == 2 else []
        wan.scatter([part], pieces, rooted(dist.ScatterOptions(), 2)).wait()
        every = [torch.empty(2, 3) for _ in range(3)]
        wan.allgather([every], [own]).wait()
        single = torch.empty(6, 3)
        wan.all_gather_single(single, own).wait()
        return gathered, part, every, single

    all_given = [given(rank, 6).view(2, 3) for rank in range(3)]
    for rank, (gathered, part, every, single) in enumerate(on_every_rank(group(3), body)):
        assert len(gathered) == (3 if rank == 1 else 0)
        assert all(torch.equal(a, b) for a, b in zip(gathered, all_given, strict=rank == 1))
        assert torch.equal(part, given(50 + rank, 6).view(2, 3))
        assert all(torch.equal(a, b) for a, b in zip(every, all_given, strict=True))
        assert torch.equal(single, torch.cat(all_given))


def test_all_to_all_of_equal_and_of_different_pieces(group):
    def body(wan: WanGroup) -> tuple[torch.Tensor, torch.Tensor]:
        rank = wan.rank()
        equal, uneven = torch.empty(6, dtype=torch.int64), torch.empty(3 * (rank + 1), dtype=torch.int64)
        wan.all_to_all_single(equal, torch.arange(6) + 10 * rank, [], []).wait()
        # rank i sends j+1 rows to rank j
        wan.all_to_all_single(uneven, torch.arange(6) + 10 * rank, [rank + 1] * 3, [1, 2, 3]).wait()
        return equal, uneven

    begins = [0, 1, 3]
    for rank, (equal, uneven) in enumerate(on_every_rank(group(3), body)):
        assert equal.tolist() == [10 * peer + 2 * rank + item for peer in range(3) for item in range(2)]
        assert uneven.tolist() == [10 * peer + begins[rank] + item for peer in range(3) for item in range(rank + 1)]


def test_tensors_that_are_not_contiguous_are_read_and_filled_in_place(group):
    def body(wan: WanGroup) -> torch.Tensor:
        matrix = torch.zeros(4, 4)
        matrix[:, 1] = wan.rank() + 1
        wan.allreduce([matrix[:, 1]], all_reduce_options()).wait()
        wan.broadcast([matrix.t()[2]], rooted(dist.BroadcastOptions(), 0)).wait()
        single = torch.zeros(4, 2).t()
        wan.all_gather_single(single, matrix[:, 1]).wait()
        matrix[:, 3] = single.sum(0)
        return matrix

    for matrix in on_every_rank(group(2), body):
        assert matrix.tolist() == [[0, 3, 0, 6]] * 4


# ---------------------------------------------------------------- messages


def test_messages_keep_their_order_for_each_tag_beside_collectives(group):
    def body(wan: WanGroup) -> list[float]:
        if wan.rank() == 0:
            works = [wan.send([torch.tensor([float(n)])], 1, tag) for n, tag in ((1, 0), (2, 7), (3, 0))]
            wan.barrier().wait()
            return [float(work.wait()) for work in works]
        wan.barrier().wait()
        into = [torch.zeros(1) for _ in range(3)]
        works = [wan.recv([tensor], 0, tag) for tensor, tag in zip(into, (7, 0, 0), strict=True)]
        for work in works:
            work.wait()
        return [tensor.item() for tensor in into]

    assert on_every_rank(group(2), body)[1] == [2, 1, 3]


def test_a_message_from_any_rank_names_its_source(group):
    def body(wan: WanGroup) -> set[tuple[int, float]]:
        if wan.rank():
            wan.send([torch.tensor([10.0 * wan.rank()])], 0).wait()
            return set()
        received = set()
        for _ in range(2):
            tensor = torch.zeros(1)
            work = wan.recv_anysource([tensor])
            work.wait()
            received.add((work._source_rank(), tensor.item()))
        return received

    assert on_every_rank(group(3), body)[0] == {(1, 10.0), (2, 20.0)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda wan: wan.allreduce([torch.ones(3)], all_reduce_options(dist.ReduceOp.BAND)),
            "wan: BAND of torch.float32 does not exist",
        ),
        (
            lambda wan: wan.all_gather_single(torch.empty(3, dtype=torch.int32), torch.ones(3)),
            "wan: allgather: invalid tensor type torch.int32 for rank 0; expected torch.float32",
        ),
        *(
            (call, f"wan: {name}: invalid root rank 1; expected 0 to 0")
            for name, call in {
                "broadcast": lambda wan: wan.broadcast([torch.ones(3)], rooted(dist.BroadcastOptions(), 1)),
                "reduce": lambda wan: wan.reduce([torch.ones(3)], rooted(dist.ReduceOptions(), 1)),
                "gather": lambda wan: wan.gather([], [torch.ones(3)], rooted(dist.GatherOptions(), 1)),
                "scatter": lambda wan: wan.scatter([torch.ones(3)], [], rooted(dist.ScatterOptions(), 1)),
            }.items()
        ),
        (
            lambda wan: wan.gather([[torch.ones(3)] * 2], [torch.ones(3)], rooted(dist.GatherOptions(), 0)),
            "wan: gather: invalid output tensor list. Incorrect output list size 2. Output list size should be 1",
        ),
        (lambda wan: wan.allreduce([]), "wan: allreduce: requires non-empty tensor list"),
        (
            lambda wan: wan.broadcast([torch.ones(3)], rooted(dist.BroadcastOptions(), 0, tensor=1)),
            "wan: broadcast: invalid root tensor 1 of 1",
        ),
        (
            lambda wan: wan.scatter([torch.ones(3)] * 2, [], rooted(dist.ScatterOptions(), 0)),
            "wan: scatter: requires a single-element output tensor list; got 2",
        ),
        (
            lambda wan: wan.allgather([[torch.ones(2)]], [torch.ones(3)]),
            "wan: allgather: invalid tensor size: 2 numbers for rank 0; expected 3",
        ),
        *(
            (call, f"wan: {name}: invalid root rank 9; expected 0 to 0")
            for name, call in {
                "broadcast": lambda wan: wan.broadcast([torch.ones(3)] * 2, rooted(dist.BroadcastOptions(), 9)),
                "reduce": lambda wan: wan.reduce([SPARSE], opts=rooted(dist.ReduceOptions(), 9)),
                "gather": lambda wan: wan.gather([], [SPARSE], rooted(dist.GatherOptions(), 9)),
                "scatter": lambda wan: wan.scatter([SPARSE], [], rooted(dist.ScatterOptions(), 9)),
            }.items()
        ),
        (
            lambda wan: wan.allgather([[torch.ones(3)] * 2] * 2, [torch.ones(3)]),
            "wan: allgather: requires input/output tensor lists to have the same length",
        ),
        (
            lambda wan: wan.reduce([SPARSE] * 2, rooted(dist.ReduceOptions(), 0)),
            "wan: reduce: requires a single-element tensor list; got 2",
        ),
        (
            lambda wan: wan.gather([[SPARSE]], [], rooted(dist.GatherOptions(), 0)),
            "wan: gather: requires a single-element input tensor list; got 0",
        ),
        (
            lambda wan: wan.scatter([SPARSE] * 2, [], rooted(dist.ScatterOptions(), 0)),
            "wan: scatter: requires a single-element output tensor list; got 2",
        ),
        (lambda wan: wan.allreduce_coalesced(tensors=[]), "wan: allreduce: requires non-empty tensor list"),
    ],
)
def test_a_call_that_cannot_be_right_is_refused_before_anything_is_sent(group, monkeypatch, call, message):
    """Gloo is not formed for it either, for that waits for the other ranks."""
    monkeypatch.setattr(WanGroup, "gloo", lambda wan: pytest.fail("gloo was formed"))
    (wan,) = group(1)
    with pytest.raises(CommError) as caught:
        call(wan)
    assert str(caught.value) == message
    wan.barrier().wait()


def test_a_barrier_waits_for_collectives_and_not_for_messages(group):
    def body(wan: WanGroup) -> list[float]:
        tensors = [torch.ones(50_000) for _ in range(10)]
        message = wan.recv([torch.zeros(1)], 1 - wan.rank())
        for tensor in tensors:
            wan.allreduce([tensor], all_reduce_options())
        wan.barrier().wait()
        ended = [tensor.mean().item() for tensor in tensors]
        wan.send([torch.ones(1)], 1 - wan.rank()).wait()
        message.wait()
        return ended

    assert on_every_rank(group(2), body) == [[2.0] * 10] * 2


def test_a_tensor_that_is_listed_twice_is_reduced_once(group):
    def body(wan: WanGroup) -> list[float]:
        tensor = torch.ones(3)
        wan.allreduce_coalesced([tensor, tensor], all_reduce_options()).wait()
        return tensor.tolist()

    assert on_every_rank(group(2), body) == [[2.0] * 3] * 2


def test_a_tag_that_does_not_fit_is_refused(group):
    (wan,) = group(1)
    with pytest.raises(CommError, match="tag -1: expected 0 to 4294967295"):
        wan.send([torch.zeros(1)], 0, -1)


# ---------------------------------------------------------------- work and futures


def test_a_callback_can_wait_for_a_later_operation(group):
    """PowerSGD's hook for DistributedDataParallel does this."""

    def body(wan: WanGroup) -> float:
        first = torch.ones(1)

        def twice(future: Any) -> torch.Tensor:
            (tensor,) = future.value()
            return wan.allreduce([tensor], all_reduce_options()).get_future().wait()[0]

        return wan.allreduce([first], all_reduce_options()).get_future().then(twice).wait().item()

    assert on_every_rank(group(3), body) == [9.0] * 3


def test_operations_between_start_and_end_of_coalescing_are_one_work(group):
    def body(wan: WanGroup) -> list[float]:
        tensors = [torch.full((2,), float(n)) for n in range(3)]
        wan._start_coalescing(torch.device("cpu"))
        for tensor in tensors:
            wan.allreduce([tensor], all_reduce_options())
        wan._end_coalescing(torch.device("cpu")).wait()
        return [tensor[0].item() for tensor in tensors]

    assert on_every_rank(group(2), body) == [[0, 2, 4]] * 2


def test_a_coalesced_operation_fills_tensors_that_are_not_contiguous(group):
    def body(wan: WanGroup) -> list[float]:
        matrix = torch.ones(3, 2)
        wan._start_coalescing(torch.device("cpu"))
        inner = wan.allreduce([matrix[:, 1]], all_reduce_options())
        wan._end_coalescing(torch.device("cpu")).wait()
        inner.wait()
        return matrix.flatten().tolist()

    assert on_every_rank(group(2), body) == [[1, 2] * 3] * 2


def test_tensors_of_inference_mode_can_be_reduced_and_gathered(group):
    def body(wan: WanGroup) -> list[float]:
        with torch.inference_mode():
            tensor = torch.ones(2)
            wan.allreduce([tensor], all_reduce_options()).wait()
            every = [torch.zeros(2) for _ in range(2)]
            wan.allgather([every], [tensor]).wait()
            return [part.sum().item() for part in every]

    assert on_every_rank(group(2), body) == [[4, 4]] * 2


def test_nothing_refers_to_a_tensor_once_its_operation_has_ended(group):
    def body(wan: WanGroup) -> list[bool]:
        gone = []
        for _ in range(3):
            tensor = torch.ones(1000)
            seen = weakref.ref(tensor)
            wan.allreduce([tensor], all_reduce_options()).wait()
            wan.barrier().wait()
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


# ---------------------------------------------------------------- several sites


def test_two_processes_of_one_site_and_one_of_another_reduce_hierarchically(group):
    groups = group(3, WAN_COLLECTIVE="hierarchical", WAN_SITES="paris,paris,tokyo")

    def body(wan: WanGroup) -> float:
        tensor = torch.full((10,), float(wan.rank()))
        wan.allreduce([tensor], all_reduce_options(dist.ReduceOp.MAX)).wait()
        wan.allreduce([tensor], all_reduce_options(dist.ReduceOp.AVG)).wait()
        return tensor[3].item()

    assert on_every_rank(groups, body) == [2.0] * 3


def test_half_precision_is_rounded_once_inside_a_site_too(group):
    groups = group(5, WAN_COLLECTIVE="hierarchical", WAN_SITES="paris,paris,paris,paris,tokyo")

    def body(wan: WanGroup) -> float:
        tensor = torch.tensor([1.0 if wan.rank() == 0 else 2.0**-9], dtype=torch.bfloat16)
        wan.allreduce([tensor], all_reduce_options()).wait()
        return tensor.item()

    assert on_every_rank(groups, body) == [1 + 2.0**-7] * 5


# ---------------------------------------------------------------- in a ring


@pytest.mark.parametrize("order", ["", "0,2,1"])
def test_in_a_ring_all_ranks_get_the_same_bits_and_gather_in_the_order_of_their_numbers(group, order):
    groups = group(3, WAN_COLLECTIVE="ring", WAN_RING=order)

    def body(wan: WanGroup) -> tuple[bytes, list[float]]:
        tensor = torch.linspace(0, 1, 1000) ** (1 + wan.rank())
        wan.allreduce([tensor], all_reduce_options()).wait()
        parts = [torch.empty(1) for _ in range(3)]
        wan.allgather([parts], [torch.tensor([float(wan.rank())])]).wait()
        return tensor.numpy().tobytes(), [part.item() for part in parts]

    (first, parts), *others = on_every_rank(groups, body)
    assert parts == [0.0, 1.0, 2.0]
    assert others == [(first, parts)] * 2
    powers = sum(torch.linspace(0, 1, 1000, dtype=torch.float64) ** (1 + rank) for rank in range(3))
    assert torch.allclose(torch.frombuffer(bytearray(first), dtype=torch.float32).double(), powers, atol=1e-6)


# ---------------------------------------------------------------- what gloo carries


def test_several_tensors_of_one_process_are_reduced_with_each_other_by_gloo(group, monkeypatch):
    monkeypatch.setattr(group_module, "by_gloo", Counter({"allreduce": 1}))

    def body(wan: WanGroup) -> list[float]:
        tensors = [torch.tensor([1.0 + wan.rank()]), torch.tensor([10.0])]
        wan.allreduce(tensors).wait()
        return [tensor.item() for tensor in tensors]

    assert on_every_rank(group(2), body) == [[23.0, 23.0]] * 2
    assert group_module.by_gloo == {"allreduce": 3}


CALLS: dict[str, Callable[[WanGroup, list[torch.Tensor]], Any]] = {  # with three tensors of four numbers
    "allreduce": lambda wan, t: wan.allreduce(t[:1]),
    "allreduce_coalesced": lambda wan, t: wan.allreduce_coalesced(t[:2], dist.AllreduceCoalescedOptions()),
    "reduce_scatter": lambda wan, t: wan.reduce_scatter(t[:1], [t[1:]]),
    "broadcast": lambda wan, t: wan.broadcast(t[:1], rooted(dist.BroadcastOptions(), 1)),
    "allgather": lambda wan, t: wan.allgather([t[1:]], t[:1]),
    "allgather_coalesced": lambda wan, t: wan.allgather_coalesced([[t[1]], [t[2]]], t[:1]),
    "all_gather_single": lambda wan, t: wan.all_gather_single(t[0], t[1][:2]),
    "gather": lambda wan, t: wan.gather([] if wan.rank() else [t[1:]], t[:1], rooted(dist.GatherOptions(), 0)),
    "scatter": lambda wan, t: wan.scatter(t[:1], [t[1:]] if wan.rank() else [], rooted(dist.ScatterOptions(), 1)),
    "alltoall": lambda wan, t: wan.alltoall([t[0], t[1]], [t[2], t[2] + 1]),
    "allreduce by keyword": lambda wan, t: wan.allreduce(tensors=t[:1], opts=all_reduce_options()),
    "gather by keyword": lambda wan, t: wan.gather(
        opts=rooted(dist.GatherOptions(), 0), inputs=t[:1], outputs=[] if wan.rank() else [t[1:]]
    ),
    "broadcast by keyword": lambda wan, t: wan.broadcast(opts=rooted(dist.BroadcastOptions(), 1), tensors=t[:1]),
    "allgather by keyword": lambda wan, t: wan.allgather(inputs=t[:1], outputs=[t[1:]]),
    "recv without a tag": lambda wan, t: wan.recv(src=1, tensors=t[:1]) if wan.rank() == 0 else wan.send(t[:1], dst=0),
    "send and recv": lambda wan, t: wan.recv(t[:1], 1, 7) if wan.rank() == 0 else wan.send(t[:1], 0, 7),
    "send and recv_anysource": lambda wan, t: wan.recv_anysource(t[:1], 7) if wan.rank() else wan.send(t[:1], 1, 7),
}


@pytest.mark.parametrize("call", CALLS)
def test_gloo_carries_each_call_with_the_same_result(group, monkeypatch, call):
    def body(wan: WanGroup) -> list[torch.Tensor]:
        tensors = [given(10 * wan.rank() + number, 4) for number in range(3)]
        CALLS[call](wan, tensors).wait()
        return tensors

    groups = group(2)
    own = on_every_rank(groups, body)
    monkeypatch.setattr(group_module, "carried", lambda arguments: False)
    counts = Counter({"gloo": 1})
    monkeypatch.setattr(group_module, "by_gloo", counts)
    by_gloo = on_every_rank(groups, body)
    assert counts.total() == 3
    for expected, tensors in zip(own, by_gloo, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(expected, tensors, strict=True))


@pytest.mark.parametrize("by_keyword", [False, True])
def test_sparse_tensors_go_to_gloo_and_are_counted(group, monkeypatch, by_keyword):
    monkeypatch.setattr(group_module, "by_gloo", Counter({"allreduce": 1}))

    def body(wan: WanGroup) -> list[float]:
        tensor = torch.sparse_coo_tensor([[wan.rank()]], [2.0], (3,), check_invariants=True)
        work = wan.allreduce(tensors=[tensor]) if by_keyword else wan.allreduce([tensor], all_reduce_options())
        work.wait()
        return tensor.to_dense().tolist()

    assert on_every_rank(group(2), body) == [[2, 2, 0]] * 2
    assert group_module.by_gloo == {"allreduce": 3}
