"""The definition of an impairment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wanbench.netprofiles.units import Quantity

if TYPE_CHECKING:
    from wanbench.netprofiles.path import Path


@dataclass(frozen=True)
class Impairment:
    """One effect of a path on packets.

    Attributes:
        key: its key in profiles, specs and timelines.
        unit: the type of its values.
        title: its name for people.
        problem: returns why a path cannot have its value, as the end of the message "a -> b: ..."; None if it can.
        about: the description of `network.KEY` in a spec, if the impairment acts on each packet of uniform networks.
        changed: the description of `timeline.KEY`, likewise.
        always_stored: profiles write it to JSON even if a path does not have it; recorded runs contain it.
    """

    key: str
    unit: type[Quantity]
    title: str
    problem: Callable[[Path], str | None] = lambda path: None
    about: str | None = None
    changed: str | None = None
    always_stored: bool = False

    @property
    def column(self) -> str:
        """Its column in CSV files, whose values are bare numbers: `jitter_ms`."""
        return self.key + self.unit.scale.column

    @property
    def plain(self) -> str:
        """Its key in JSON, in the smallest unit: `jitter_ns`."""
        return self.key + self.unit.scale.plain

    def parse(self, text: str) -> Quantity:
        """Parse a value with its unit. Raises: UnitError."""
        return self.unit.parse(text)
