"""Operations that gloo carries instead: on tensors that are sparse or not in this machine's memory, or several."""

from __future__ import annotations

import atexit
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, ClassVar

import torch
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed import ProcessGroupGloo


def carried(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether all tensors are in this machine's memory, and not sparse."""
    return all(tensor.device.type == "cpu" and tensor.layout == torch.strided for tensor in tensors)


class Elsewhere:
    """The gloo group that carries the rest. It is formed when it is first needed."""

    counts: ClassVar[Counter[str]] = Counter()

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        self._arguments = PrefixStore("gloo", store), rank, size, timeout
        self._group: ProcessGroupGloo | None = None

    def group(self, operation: str) -> Any:
        """The group, for one operation, which is counted."""
        if not self.counts:
            atexit.register(_report)
        self.counts[operation] += 1
        if self._group is None:
            self._group = ProcessGroupGloo(*self._arguments)
        return self._group


def _report() -> None:
    each = ", ".join(f"{number} {name}" for name, number in sorted(Elsewhere.counts.items()))
    print(f"wan: carried by gloo, because tensors were sparse, on a GPU or several: {each}", file=sys.stderr)
