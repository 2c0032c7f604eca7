"""Groups of the backend `wan`, which leave at the end of a test."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch.distributed as dist
from wan_groups import on_every_rank

from wanbench.workloads.group.group import WanGroup


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
        groups = [WanGroup(store, rank, size, timedelta(seconds=20)) for rank in range(size)]
        on_every_rank(groups, lambda wan: wan._set_sequence_number_for_group())
        for wan in groups:
            wan.set_timeout(timedelta(seconds=timeout_s))
        made.extend(groups)
        return groups

    yield make
    on_every_rank(made, lambda wan: wan.shutdown())
