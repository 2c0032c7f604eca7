"""What tests of real training need beside a task: a clock that jumps, and one thread. For tests only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


class FakeClock:
    """Sleeping moves it on, at once."""

    def __init__(self) -> None:
        self.time_ns = 0

    def now(self) -> int:
        return self.time_ns

    def sleep(self, seconds: float) -> None:
        self.time_ns += round(seconds * 1e9)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As a worker computes; a module that imports it gets it for all of its tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
