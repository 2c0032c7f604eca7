"""Packet loss: each packet is lost with the same probability."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanbench.netprofiles.impairments.base import Impairment
from wanbench.netprofiles.units import Ratio

if TYPE_CHECKING:
    from wanbench.netprofiles.path import Path


def _problem(path: Path) -> str | None:
    return "loss 100% drops every packet; expected less than 100%" if path.loss.value == 1 else None


LOSS = Impairment(
    "loss",
    Ratio,
    "loss per packet",
    problem=_problem,
    about='Uniform only: share of packets lost on every path, such as "0.1%".',
    changed="New loss per packet.",
    always_stored=True,
)
