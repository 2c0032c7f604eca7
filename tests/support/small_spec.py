"""A small spec, edited and expanded."""

from __future__ import annotations

import pytest
from on_relay import expand

from wanbench.harness.errors import SpecError
from wanbench.harness.plan.cell import Cell
from wanbench.harness.spec.experiment import Spec

GOOD = """\
schema = 1
name = "t"

[workload]
params = 1000
tensors = 2
step_time = "10ms"

[network]
rate = "1Gbit"

[algorithms]
ssgd = {}

[sweep]
workers = [2]
rtt = ["10ms"]
"""


def cells(text: str = GOOD, where: str = "x.toml") -> list[Cell]:
    return expand(Spec.from_toml(text, where), where)


def swept(text: str = GOOD) -> list[Cell]:
    """Return the cells without the one-worker cells."""
    return [cell for cell in cells(text) if not cell.is_baseline]


def edited(*changes: tuple[str, str]) -> str:
    text = GOOD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def refusal(*changes: tuple[str, str]) -> str:
    with pytest.raises(SpecError) as caught:
        cells(edited(*changes))
    return str(caught.value)
