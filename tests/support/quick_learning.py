"""A fixture: `learn` measures neither the price of a gradient nor step times for longer than a claim needs."""

from __future__ import annotations

import pytest

from wanbench.harness.learning import campaign, cost


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a price be that of a few calls, and a step time that of a few steps."""
    monkeypatch.setattr(cost, "_LEAST_S", 0.0)
    monkeypatch.setattr(campaign, "_TIMED", "20 steps")
