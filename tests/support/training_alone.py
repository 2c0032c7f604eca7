"""A clock that jumps, and a single torch thread, for tests of real training."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


class FakeClock:
    """A clock on which sleeping takes no time."""

    def __init__(self) -> None:
        self.time_ns = 0

    def now(self) -> int:
        return self.time_ns

    def process(self, seconds: float) -> None:
        self.sleep(seconds)

    def sleep(self, seconds: float) -> None:
        self.time_ns += round(seconds * 1e9)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread, as a worker does, in all tests of a module that imports this."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
