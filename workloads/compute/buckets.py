"""Group gradients into buckets that are sent together, and compute when each is ready in the backward pass.

The rule comes from DistributedDataParallel (Li et al., VLDB 2020, section 3.2.3). It takes the parameter tensors in
reverse registration order, which is about the order in which the backward pass finishes them. The tensor with which a
bucket reaches the cap closes it, so a bucket can be larger than the cap.

DDP's default has a smaller first bucket (1 MiB before 25 MiB), but only if `bucket_cap_mb` is not set; a given value
applies to every bucket. Here the cap always applies to every bucket, so `buckets = "25MiB"` corresponds to
`DistributedDataParallel(..., bucket_cap_mb=25)`.
"""

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
        ready: the part of the backward pass that has run when its last gradient is complete, in (0, 1].
    """

    first: int
    last: int
    start: int
    stop: int
    ready: float

    @property
    def nbytes(self) -> int:
        """The size of its message in bytes, as float32."""
        return (self.stop - self.start) * FLOAT32_BYTES


def scaled_numel(tensors: Sequence[ParameterTensor], payload_scale: float) -> int:
    """Return the size of the flat vector of a model with scaled messages: at least one element per tensor."""
    return max(len(tensors), round(sum(tensor.numel for tensor in tensors) * payload_scale))


def plan_buckets(tensors: Sequence[ParameterTensor], cap_bytes: int, payload_scale: float = 1.0) -> tuple[Bucket, ...]:
    """Return the buckets of a model, in the order in which the backward pass completes them.

    Tensors are grouped by their true sizes and the true cap; the messages are scaled afterwards. So a scaled run sends
    the same number of messages as a full-size run. Every bucket has at least one element, and the buckets together have
    `scaled_numel` elements.

    Args:
        tensors: the parameter tensors in registration order.
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
    """Return the ends of consecutive slices of range(total), with lengths proportional to `sizes`; none is empty."""
    whole, remaining = sum(sizes), len(sizes)
    stops: list[int] = []
    previous = 0
    for size_so_far in accumulate(sizes):
        remaining -= 1
        previous = min(max(round(size_so_far * total / whole), previous + 1), total - remaining)
        stops.append(previous)
    return stops


def _ready(tensors: Sequence[ParameterTensor], groups: Iterable[tuple[int, int]]) -> list[float]:
    work = [sum(tensor.backward_work for tensor in tensors[first : last + 1]) for first, last in groups]
    total = sum(work)
    return [*(done / total for done in accumulate(work[:-1])), 1.0]
