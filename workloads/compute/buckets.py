"""Which gradients travel together, and when in the backward pass they are ready.

The rule is the one of DistributedDataParallel (Li et al., VLDB 2020, section 3.2.3): walk the parameter
tensors in reverse registration order, which is about the order in which the backward pass finishes them, and
close a bucket with the tensor that makes it reach the cap. A bucket may therefore be larger than the cap.

DDP's default has a smaller first bucket (1 MiB before 25 MiB), but only while `bucket_cap_mb` is left alone:
given explicitly, it holds for every bucket. Here the cap always holds for every bucket, so `buckets =
"25MiB"` compares with `DistributedDataParallel(..., bucket_cap_mb=25)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from wanbench.workloads.models.tensors import ParameterTensor

FLOAT32_BYTES = 4


@dataclass(frozen=True, slots=True)
class Bucket:
    """Neighbouring parameter tensors whose gradients are sent as one message.

    Attributes:
        first, last: its parameter tensors, by registration index; both included.
        start, stop: its elements of the flat gradient vector, `gradient[start:stop]`.
        ready: the part of the backward pass that is over when its last gradient is complete, in (0, 1].
    """

    first: int
    last: int
    start: int
    stop: int
    ready: float

    @property
    def nbytes(self) -> int:
        """Bytes of its message, as float32."""
        return (self.stop - self.start) * FLOAT32_BYTES


def scaled_numel(tensors: Sequence[ParameterTensor], payload_scale: float) -> int:
    """Elements of the flat vector of a model whose messages are scaled: at least one for each tensor."""
    params = sum(tensor.numel for tensor in tensors)
    return max(len(tensors), round(params * payload_scale))


def plan_buckets(tensors: Sequence[ParameterTensor], cap_bytes: int, payload_scale: float = 1.0) -> tuple[Bucket, ...]:
    """The buckets of a model, in the order in which the backward pass completes them.

    Tensors are grouped by their true sizes against the true cap; the messages are scaled afterwards. A scaled
    run therefore sends as many messages as a full-size one. Every bucket keeps at least one element, and
    their elements add up to `scaled_numel`.

    Args:
        tensors: in registration order.
        cap_bytes: size at which a bucket is closed, before scaling.
        payload_scale: factor on the size of each message, in (0, 1].

    Raises:
        ValueError: `cap_bytes` is below 1.
    """
    if cap_bytes < 1:
        raise ValueError(f"buckets: expected a cap of at least 1 byte, got {cap_bytes}")
    groups = _group(tensors, cap_bytes)
    sizes = [sum(tensor.numel for tensor in tensors[first : last + 1]) for first, last in groups]
    stops = _scaled_stops(sizes[::-1], scaled_numel(tensors, payload_scale))[::-1]
    starts = [*stops[1:], 0]
    ready = _ready(tensors, groups)
    return tuple(
        Bucket(first, last, start, stop, part)
        for (first, last), start, stop, part in zip(groups, starts, stops, ready, strict=True)
    )


def _group(tensors: Sequence[ParameterTensor], cap_bytes: int) -> list[tuple[int, int]]:
    """The first and last tensor of each bucket, from the end of the model to its beginning."""
    groups: list[tuple[int, int]] = []
    last, filled = len(tensors) - 1, 0
    for index in reversed(range(len(tensors))):
        filled += tensors[index].numel * FLOAT32_BYTES
        if filled >= cap_bytes or index == 0:
            groups.append((index, last))
            last, filled = index - 1, 0
    return groups


def _scaled_stops(sizes: Sequence[int], total: int) -> list[int]:
    """The ends of consecutive slices of range(total), as long as `sizes` are in proportion; none is empty."""
    whole, after = sum(sizes), len(sizes)
    stops: list[int] = []
    previous = 0
    for size_so_far in accumulate(sizes):
        after -= 1
        previous = min(max(round(size_so_far * total / whole), previous + 1), total - after)
        stops.append(previous)
    return stops


def _ready(tensors: Sequence[ParameterTensor], groups: Iterable[tuple[int, int]]) -> list[float]:
    work = [sum(tensor.backward_work for tensor in tensors[first : last + 1]) for first, last in groups]
    total = sum(work)
    return [*(done / total for done in accumulate(work[:-1])), 1.0]
