"""The process group: the methods that torch calls, in terms of reductions, transfers and messages."""

from __future__ import annotations

import atexit
import inspect
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from multiprocessing.util import Finalize
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed import ProcessGroup, ProcessGroupGloo, ReduceOp

from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.direct import DirectComm
from wanbench.workloads.comm.tensors import REDUCTIONS, Reduction
from wanbench.workloads.comm.work import DirectWork
from wanbench.workloads.group.joining import agreed, join
from wanbench.workloads.group.settings import settings
from wanbench.workloads.group.work import GroupWork

# A larger tensor is broadcast in two steps, which send 2/N of the bytes through the root's link: pieces to all ranks,
# and from each to all others.
_BROADCAST_WHOLE_BYTES = 1 << 20

Tensors = Sequence[torch.Tensor]


# ------------------------------------------------ what gloo carries: several tensors, sparse ones, those of a GPU


def or_gloo(
    name: str, *, several: bool = False, check: Callable[..., None] = lambda group, *arguments: None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let gloo's method of the same name carry a call whose tensors are sparse or not in this machine's memory.

    Args:
        name: as which the call is counted.
        several: whether gloo also carries a call whose first list has several items.
        check: refuses wrong arguments, given the group and all of them. A rank that errs alone would form gloo alone.
    """

    def decorated(method: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(method)

        @wraps(method)
        def call(*arguments: Any, **options: Any) -> Any:
            bound = signature.bind(*arguments, **options)
            bound.apply_defaults()
            group, *given = bound.args
            check(group, *given)
            if carried(given) and not (several and len(given[0]) > 1):
                return method(group, *given)
            if not by_gloo:
                atexit.register(_report)
            by_gloo[name] += 1
            return getattr(group.gloo(), method.__name__)(*(value for value in given if value is not None))

        return call

    return decorated


def carried(arguments: Any) -> bool:
    """Whether all tensors in arguments and in their lists are in this machine's memory, and not sparse."""
    if isinstance(arguments, torch.Tensor):
        return arguments.device.type == "cpu" and arguments.layout == torch.strided
    return not isinstance(arguments, Sequence) or all(map(carried, arguments))


by_gloo: Counter[str] = Counter()
"""The calls that gloo has carried in this process, which are printed at its exit."""


def _report() -> None:
    counts = ", ".join(f"{number} {name}" for name, number in sorted(by_gloo.items()))
    print(f"wan: carried by gloo, because tensors were sparse, on a GPU or several: {counts}", file=sys.stderr)


# ------------------------------------------------ the group


def create(options: Any) -> WanGroup:
    """Return a group, as torch asks for one. Raises: CommError."""
    group = WanGroup(options.store, options.group_rank, options.group_size, options.timeout)
    group.options.global_ranks_in_group = options.global_ranks_in_group
    group._set_sequence_number_for_group()
    return group


_ProcessGroup: Any = ProcessGroup  # torch's stub has overloads for other callers


class WanGroup(_ProcessGroup):  # type: ignore[misc]
    """A process group of torch over the connections of `direct`, or `hierarchical`.

    Its methods have the names and arguments of `torch.distributed.ProcessGroup`. Each returns at once.

    Args:
        store: of this group alone.
        rank: this rank in the group.
        size: number of ranks.
        timeout: for connecting, and for each operation.
    """

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._store, self._timeout, self._name = store, timeout, ""
        self._gloo: ProcessGroupGloo | None = None
        self._coalesced: list[GroupWork] | None = None
        self._collectives: weakref.WeakSet[GroupWork] = weakref.WeakSet()
        self._issued = 0
        # As a group of gloo has them: torch sets them between the constructor and the sequence number.
        self.options = SimpleNamespace(global_ranks_in_group=[], group_name="", _timeout=timeout)

    # ---------------------------------------------------------------- life

    def _set_sequence_number_for_group(self) -> None:
        """Connect to all ranks. Torch calls this last."""
        world = list(self.options.global_ranks_in_group) or list(range(self.size()))
        self._agreed = agreed(self._store, self.rank(), world, self._timeout.total_seconds())
        self._comm: DirectComm = join(self._agreed, self.rank(), world, settings(), self._timeout.total_seconds())
        # A process that multiprocessing has started does not run what atexit knows, but this.
        Finalize(None, _leave, args=(weakref.ref(self),), exitpriority=0)

    def _get_sequence_number_for_group(self) -> int:
        return self._issued

    def gloo(self) -> ProcessGroupGloo:
        """The group of gloo, which is formed when it is first needed."""
        if self._gloo is None:
            store = PrefixStore("gloo", self._agreed)
            self._gloo = ProcessGroupGloo(store, self.rank(), self.size(), self._timeout)
        return self._gloo

    def shutdown(self) -> None:
        """Leave the group: the others finish what they have begun."""
        self._comm.leave()

    def abort(self) -> None:
        """Fail everything that is in progress, here and at the other ranks."""
        self._comm.give_up(f"rank {self.rank()} aborted the group")
        self._comm.close()

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time limit of later operations."""
        self._timeout, self._comm.timeout_s = timeout, timeout.total_seconds()

    _set_default_timeout = set_timeout

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def _get_backend(self, _device: torch.device) -> WanGroup:
        return self

    def name(self) -> str:
        """The name of the backend."""
        return "wan"

    getBackendName = _get_backend_name = name

    def _set_group_name(self, name: str) -> None:
        self._name = name

    setGroupName = _set_group_name

    def getGroupName(self) -> str:
        """The name that torch gave it."""
        return self._name

    group_name = property(getGroupName)

    def get_group_store(self) -> Store:
        """The store of this group."""
        return self._store

    # ---------------------------------------------------------------- reductions

    # Gloo reduces each of several tensors with the others.
    @or_gloo("allreduce", several=True, check=lambda _, tensors, *__: check_any("allreduce", tensors))
    def allreduce(self, tensors: Tensors, opts: Any = None, *_: Any) -> Any:
        """Reduce a tensor over all ranks, in place."""
        return self.allreduce_coalesced(tensors, opts)

    @or_gloo("allreduce", check=lambda _, tensors, *__: check_any("allreduce", tensors))
    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None, *_: Any) -> Any:
        """Reduce tensors over all ranks, each by itself, in place."""
        if len({tensor.dtype for tensor in tensors}) > 1:
            raise CommError("wan: allreduce: tensors must all have the same type")
        staging, reduction = Staging(), reduction_of(opts, tensors)
        once = {id(tensor): tensor for tensor in tensors}  # one that is listed twice is reduced once, as in gloo
        parts = [self._comm.all_reduce(staging.filled(tensor), reduction) for tensor in once.values()]
        return self._work(parts, tensors, staging)

    @or_gloo("reduce", check=lambda wan, tensors, opts: check_root("reduce", wan, opts, tensors, "tensor list"))
    def reduce(self, tensors: Tensors, opts: Any) -> Any:
        """Reduce a tensor over all ranks, in place, on the root."""
        (tensor,) = tensors
        staging, reduction = Staging(), reduction_of(opts, tensors)
        pieces = [tensor.new_empty(0) for _ in range(self.size())]
        pieces[opts.rootRank] = staging.filled(tensor) if self.rank() == opts.rootRank else staging.given(tensor)
        part = self._comm.reduce_scatter(pieces, reduction, f"reduce to rank {self._comm.names[opts.rootRank]}")
        return self._work([part], tensors, staging)

    @or_gloo("reduce_scatter")
    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None, *_: Any) -> Any:
        """Reduce the tensors of each rank over all ranks; each gets its own."""
        staging, reduction = Staging(), reduction_of(opts, outputs)
        parts = []
        for output, given in zip(outputs, inputs, strict=True):
            pieces = [staging.given(tensor) for tensor in given]
            pieces[self.rank()] = staging.filled(output).copy_(pieces[self.rank()])
            parts.append(self._comm.reduce_scatter(pieces, reduction))
        return self._work(parts, outputs, staging)

    def reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None, *_: Any) -> Any:
        """As `reduce_scatter`, of equal pieces of one tensor."""
        return self.reduce_scatter_single_coalesced([output], [given], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """As `reduce_scatter_single`, for several tensors."""
        return self.reduce_scatter(
            outputs, [given.contiguous().view(-1).tensor_split(self.size()) for given in inputs], opts
        )

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # ---------------------------------------------------------------- transfers

    # Gloo copies one of the root's several tensors to all.
    @or_gloo(
        "broadcast", several=True, check=lambda wan, tensors, opts, *_: check_root("broadcast", wan, opts, tensors)
    )
    def broadcast(self, tensors: Tensors, opts: Any, *_: Any) -> Any:
        """Copy a tensor of the root to all ranks."""
        staging = Staging()
        return self._work([self._broadcast(staging.filled(tensors[0]), opts.rootRank)], tensors, staging)

    def _broadcast(self, flat: torch.Tensor, root: int) -> DirectWork:
        name = f"broadcast from rank {self._comm.names[root]}"
        is_root, peers = self.rank() == root, [rank for rank in range(self.size()) if rank != self.rank()]
        if self.size() == 2 or flat.numel() * flat.element_size() <= _BROADCAST_WHOLE_BYTES:
            return self._comm.transfer(
                name, dict.fromkeys(peers, flat) if is_root else {}, {} if is_root else {root: flat}
            )
        pieces = flat.tensor_split(self.size())
        own = pieces[self.rank()]
        first = self._comm.transfer(
            name, {rank: pieces[rank] for rank in peers} if is_root else {}, {} if is_root else {root: own}
        )
        return self._comm.transfer(
            name,
            {rank: own for rank in peers if rank != root},
            {} if is_root else {rank: pieces[rank] for rank in peers},
            after=first,
        )

    @or_gloo("allgather", several=True, check=lambda _, outputs, inputs, *__: check_all_gather(outputs, inputs))
    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None, *_: Any) -> Any:
        """Copy a tensor of each rank to all ranks."""
        return self._all_gather(Staging(), outputs, inputs, outputs[0])

    def _all_gather(self, staging: Staging, pieces: Sequence[Tensors], inputs: Tensors, outputs: Tensors) -> GroupWork:
        every, parts = range(self.size()), []
        for receives, given in zip(pieces, inputs, strict=True):
            sends = dict.fromkeys(every, staging.given(given))
            into = by_rank("allgather", "output", receives, self.size(), given)
            parts.append(self._transfer("allgather", staging, sends, into))
        return self._work(parts, outputs, staging)

    @or_gloo("allgather")
    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        """As `allgather`, for several tensors; `outputs` has a list for each rank."""
        flat = [tensor for parts in outputs for tensor in parts]
        return self._all_gather(Staging(), list(zip(*outputs, strict=True)), inputs, flat)

    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None, *_: Any) -> Any:
        """As `allgather`, into equal pieces of one tensor."""
        return self.all_gather_single_coalesced([output], [given], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """As `all_gather_single`, for several tensors."""
        if not carried([*outputs, *inputs]):
            return self.allgather([output.chunk(self.size()) for output in outputs], inputs, opts)
        staging = Staging()
        pieces = [staging.filled(output).tensor_split(self.size()) for output in outputs]
        return self._all_gather(staging, pieces, inputs, outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    @or_gloo(
        "gather",
        check=lambda wan, outputs, inputs, opts: check_root("gather", wan, opts, inputs, "input tensor list"),
    )
    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Any:
        """Copy a tensor of each rank to the root."""
        (given,), root = inputs, opts.rootRank
        into = {}
        if self.rank() == root:
            into = by_rank("gather", "output", only("gather", outputs, "output list"), self.size(), given)
        elif outputs:
            raise CommError(f"wan: gather: requires empty output on non-root; rank {root} is the root")
        flat = [tensor for parts in outputs for tensor in parts]
        return self._move(f"gather to rank {self._comm.names[root]}", {root: given}, into, flat)

    @or_gloo(
        "scatter",
        check=lambda wan, outputs, inputs, opts: check_root("scatter", wan, opts, outputs, "output tensor list"),
    )
    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> Any:
        """Copy a tensor of the root to each rank."""
        (output,), root = outputs, opts.rootRank
        given = {}
        if self.rank() == root:
            given = by_rank("scatter", "input", only("scatter", inputs, "input list"), self.size(), output)
        elif inputs:
            raise CommError(f"wan: scatter: requires empty input on non-root; rank {root} is the root")
        return self._move(f"scatter from rank {self._comm.names[root]}", given, {root: output}, outputs)

    @or_gloo("alltoall")
    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None, *_: Any) -> Any:
        """Copy a tensor of each rank to each rank."""
        given = by_rank("alltoall", "input", inputs, self.size())
        return self._move("alltoall", given, by_rank("alltoall", "output", outputs, self.size()), outputs)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        output_sizes: Sequence[int],
        input_sizes: Sequence[int],
        opts: Any = None,
        *_: Any,
    ) -> Any:
        """As `alltoall`, of pieces of one tensor: of these numbers of rows, or of equal ones if there are none."""
        return self.alltoall(self._rows(output, output_sizes), self._rows(given, input_sizes), opts)

    alltoall_base = all_to_all_single

    def _rows(self, tensor: torch.Tensor, sizes: Sequence[int]) -> Tensors:
        return torch.split(tensor, list(sizes)) if sizes else tensor.tensor_split(self.size())

    def barrier(self, opts: Any = None, *_: Any) -> Any:
        """Wait for all ranks, and for the collectives that this rank has begun."""
        empty = torch.empty(0, dtype=torch.uint8, device="cpu")
        peers = dict.fromkeys((rank for rank in range(self.size()) if rank != self.rank()), empty)
        begun = [work for work in self._collectives if not work.is_completed()]
        return self._together([self._comm.transfer("barrier", peers, peers)], begun)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Wait for all ranks, and go on afterwards. Raises: CommError: names all that are late, on all others."""
        self.barrier().wait(timeout or self._timeout)

    # ---------------------------------------------------------------- messages

    @or_gloo("send")
    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> Any:
        """Send a tensor to a rank."""
        (tensor,) = tensors
        return self._message([self._comm.send(Staging().given(tensor), dst, checked(tag))], tensors, Staging())

    @or_gloo("recv")
    def recv(self, tensors: Tensors, src: int | None, tag: int = 0) -> Any:
        """Receive a tensor from a rank; None: from any."""
        (tensor,) = tensors
        staging = Staging()
        return self._message([self._comm.recv(staging.filled(tensor), src, checked(tag))], tensors, staging)

    @or_gloo("recv")
    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Any:
        """Receive a tensor from any rank."""
        return self.recv(tensors, None, tag)

    # ---------------------------------------------------------------- several operations as one

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> GroupWork:
        works, self._coalesced = self._coalesced or [], None
        return self._together([], works)

    def _together(self, parts: Sequence[DirectWork], works: Sequence[GroupWork]) -> GroupWork:
        """Operations that end when these parts and works have."""

        def finish() -> None:
            for work in works:
                work.wait()  # for what it does with its tensors; its parts have ended

        return GroupWork([*(part for work in works for part in work.parts), *parts], [], finish)

    def _work(self, parts: Sequence[DirectWork], outputs: Tensors, staging: Staging) -> GroupWork:
        work = self._message(parts, outputs, staging)
        self._collectives.add(work)
        return work

    def _message(self, parts: Sequence[DirectWork], outputs: Tensors, staging: Staging) -> GroupWork:
        self._issued += 1
        work = GroupWork(parts, outputs, staging.finish)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _move(
        self, name: str, sends: Mapping[int, torch.Tensor], receives: Mapping[int, torch.Tensor], outputs: Tensors
    ) -> GroupWork:
        """Send tensors, and fill others, which are among the outputs."""
        staging = Staging()
        given = {rank: staging.given(tensor) for rank, tensor in sends.items()}
        return self._work([self._transfer(name, staging, given, receives)], outputs, staging)

    def _transfer(
        self, name: str, staging: Staging, sends: Mapping[int, torch.Tensor], receives: Mapping[int, torch.Tensor]
    ) -> DirectWork:
        """Send flat tensors, and fill others; what a rank sends to itself is copied."""
        into = {rank: staging.filled(tensor) for rank, tensor in receives.items()}
        here = self.rank()
        if here in into and (into[here].dtype, into[here].numel()) != (sends[here].dtype, sends[here].numel()):
            raise CommError(
                f"wan: {name}: an output has {into[here].numel()} numbers of {into[here].dtype}; "
                f"its input has {sends[here].numel()} of {sends[here].dtype}"
            )
        if here in into:
            into[here].copy_(sends[here])
        return self._comm.transfer(
            name,
            {rank: tensor for rank, tensor in sends.items() if rank != here},
            {rank: tensor for rank, tensor in into.items() if rank != here},
        )


def _leave(group: weakref.ref[WanGroup]) -> None:
    """Leave a group that the program did not destroy."""
    alive = group()
    if alive is not None:
        alive.shutdown()


# ------------------------------------------------ what torch passes: checked in gloo's words, and as flat memory

_OPS = {
    "sum": ReduceOp.SUM,
    "mean": ReduceOp.AVG,
    "product": ReduceOp.PRODUCT,
    "min": ReduceOp.MIN,
    "max": ReduceOp.MAX,
    "band": ReduceOp.BAND,
    "bor": ReduceOp.BOR,
    "bxor": ReduceOp.BXOR,
}
_TAGS = 1 << 32

T = TypeVar("T")


def reduction_of(opts: Any, tensors: Sequence[torch.Tensor]) -> Reduction:
    """The reduction that options name, or a sum. Raises: CommError: the tensors have none."""
    op = ReduceOp.SUM if opts is None else opts.reduceOp
    name = next((name for name, torch_op in _OPS.items() if op == torch_op), None)
    if name is None:
        raise CommError(f"wan: {op}: expected one of {', '.join(_OPS)}")
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        try:
            REDUCTIONS[name].accumulate(torch.ones(1, dtype=dtype), torch.ones(1, dtype=dtype))
        except (RuntimeError, NotImplementedError):
            raise CommError(f"wan: {name.upper()} of {dtype} does not exist") from None
    if name == "mean" and not all(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors):
        raise CommError("wan: the mean of whole numbers is not a whole number; reduce with SUM, and divide")
    return REDUCTIONS[name]


def checked(tag: int) -> int:
    """A tag that fits into a frame. Raises: CommError."""
    if not 0 <= tag < _TAGS:
        raise CommError(f"wan: tag {tag}: expected 0 to {_TAGS - 1}")
    return tag


def check_root(name: str, group: WanGroup, opts: Any, tensors: Tensors, single: str = "") -> None:
    """Raises: CommError: there is no such rank, or it has no such tensor; `single` names a list that needs just one."""
    if not 0 <= opts.rootRank < group.size():
        raise CommError(f"wan: {name}: invalid root rank {opts.rootRank}; expected 0 to {group.size() - 1}")
    if single:
        only(name, tensors, single)
    if not 0 <= (tensor := getattr(opts, "rootTensor", 0)) < len(tensors):
        raise CommError(f"wan: {name}: invalid root tensor {tensor} of {len(tensors)}")


def check_any(name: str, tensors: Sequence[torch.Tensor], what: str = "tensor list") -> None:
    """Raises: CommError: there is none."""
    if not tensors:
        raise CommError(f"wan: {name}: requires non-empty {what}")


def check_all_gather(outputs: Sequence[Tensors], inputs: Tensors) -> None:
    """Raises: CommError: there are no inputs, or not as many lists of outputs."""
    check_any("allgather", inputs, "input tensor list")
    if len(inputs) != len(outputs):
        raise CommError("wan: allgather: requires input/output tensor lists to have the same length")


def only(name: str, items: Sequence[T], what: str) -> T:
    """The one item of a list. Raises: CommError: it has none, or several."""
    if len(items) != 1:
        raise CommError(f"wan: {name}: requires a single-element {what}; got {len(items)}")
    return items[0]


def by_rank(
    name: str, what: str, tensors: Sequence[torch.Tensor], size: int, like: torch.Tensor | None = None
) -> dict[int, torch.Tensor]:
    """The tensor of each rank. Raises: CommError: their number is wrong, or one differs in type or size from `like`."""
    if len(tensors) != size:
        sizes = f"Incorrect {what} list size {len(tensors)}. {what.capitalize()} list size should be {size}"
        raise CommError(f"wan: {name}: invalid {what} tensor list. {sizes}")
    if like is None:
        return dict(enumerate(tensors))
    for rank, tensor in enumerate(tensors):
        if tensor.dtype != like.dtype:
            raise CommError(f"wan: {name}: invalid tensor type {tensor.dtype} for rank {rank}; expected {like.dtype}")
        if tensor.numel() != like.numel():
            sizes = f"{tensor.numel()} numbers for rank {rank}; expected {like.numel()}"
            raise CommError(f"wan: {name}: invalid tensor size: {sizes}")
    return dict(enumerate(tensors))


class Staging:
    """The flat tensors of one operation. A contiguous tensor is used as it is; others are copied.

    `finish` copies back what has arrived.
    """

    def __init__(self) -> None:
        self._back: list[tuple[torch.Tensor, torch.Tensor]] = []

    def given(self, tensor: torch.Tensor) -> torch.Tensor:
        """A flat tensor with the values of a tensor, which is only read: its own memory, or a copy."""
        return tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1)

    def filled(self, tensor: torch.Tensor) -> torch.Tensor:
        """A flat tensor with the values of a tensor, which is filled from it at the end."""
        flat = self.given(tensor)
        if flat.data_ptr() != tensor.data_ptr():
            self._back.append((tensor.detach(), flat))
        return flat

    @torch.inference_mode()
    def finish(self) -> None:
        """Fill the tensors that are not contiguous."""
        for tensor, flat in self._back:
            tensor.copy_(flat.view(tensor.shape))
