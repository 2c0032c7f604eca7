"""Packets that vanish, each with the same probability."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanbench.netprofiles.impairments.base import Impairment
from wanbench.netprofiles.units import Ratio

if TYPE_CHECKING:
    from wanbench.netprofiles.path import Path


def _wrong(path: Path) -> str | None:
    return "loss 100% lets nothing through; expected less" if path.loss.value == 1 else None


LOSS = Impairment(
    "loss",
    Ratio,
    "loss per packet",
    wrong=_wrong,
    about='Uniform only: share of packets lost on every path, as "0.1%".',
    changed="Loss per packet.",
    always_stored=True,
)
