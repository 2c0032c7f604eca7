"""What torch passes to a group, checked before anything is sent. Refusals contain the words that gloo uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch.distributed import ReduceOp

from wanbench.workloads.comm.base import CommError
from wanbench.workloads.comm.tensors import REDUCTIONS, Reduction

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
    name = next((name for name, known in _OPS.items() if op == known), None)
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


def check_root(name: str, root: int, size: int) -> None:
    """Raises: CommError: there is no such rank."""
    if not 0 <= root < size:
        raise CommError(f"wan: {name}: invalid root rank {root}; expected 0 to {size - 1}")


def check_root_tensor(name: str, index: int, tensors: Sequence[torch.Tensor]) -> None:
    """Raises: CommError: there is no such tensor."""
    if not 0 <= index < len(tensors):
        raise CommError(f"wan: {name}: invalid root tensor {index} of {len(tensors)}")


def check_any(name: str, tensors: Sequence[torch.Tensor], what: str = "tensor list") -> None:
    """Raises: CommError: there is none."""
    if not tensors:
        raise CommError(f"wan: {name}: requires non-empty {what}")


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
