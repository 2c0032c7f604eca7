"""Packet loss: the share of packets that a path loses, alone or in bursts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from wanbench.netprofiles.impairments.base import Impairment
from wanbench.netprofiles.units import Packets, Ratio

if TYPE_CHECKING:
    from wanbench.netprofiles.path import Path


_RAREST = 2.0**-32  # netem's unit of a probability


def burst_problem(loss: float, burst: float) -> str | None:
    """Return why bursts of this mean length cannot lose this share of packets; None if they can. 0 is no bursts.

    At least one packet passes between two bursts.
    """
    if not burst or not loss:
        return None
    most, what = burst / (burst + 1), f"loss {Ratio(loss)} in bursts of {burst:g}"
    if loss > most:
        return f"{what}; expected at most {math.floor(1000 * most) / 10:g}%"
    if loss / (1 - loss) / burst < _RAREST:
        return f"{what} has less than one burst per 2^32 packets; expected more loss or shorter bursts"
    return None


def _loss_problem(path: Path) -> str | None:
    return "loss 100% drops every packet; expected less than 100%" if path.loss.value == 1 else None


def _burst_problem(path: Path) -> str | None:
    return None if path.loss_burst is None else burst_problem(path.loss.value, path.loss_burst.value)


LOSS = Impairment(
    "loss",
    Ratio,
    "loss per packet",
    problem=_loss_problem,
    about='Uniform only: share of packets lost on every path, such as "0.1%".',
    changed="New loss per packet.",
    always_stored=True,
)

LOSS_BURST = Impairment(
    "loss_burst",
    Packets,
    "packets lost in a row",
    problem=_burst_problem,
    about="Uniform only: mean number of packets lost in a row, such as 5; 0 (default): each is lost independently.",
    changed="New mean number of packets lost in a row; 0: each is lost independently.",
)
