"""What is said about an impairment, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wanbench.netprofiles.units import Quantity

if TYPE_CHECKING:
    from wanbench.netprofiles.path import Path


@dataclass(frozen=True)
class Impairment:
    """One thing that a path does to packets.

    Attributes:
        key: in profiles, specs and timelines.
        unit: what its values are.
        title: for people.
        wrong: what is wrong about it on a path, in words, as the end of "a -> b: ..."; None if nothing.
        about: of one that packets meet one by one on uniform networks too: what `network.KEY` of a spec means.
        changed: the same of `timeline.KEY`.
        always_stored: profiles state it in JSON even where a path has none of it, as they did before recorded runs.
    """

    key: str
    unit: type[Quantity]
    title: str
    wrong: Callable[[Path], str | None] = lambda path: None
    about: str | None = None
    changed: str | None = None
    always_stored: bool = False

    @property
    def column(self) -> str:
        """In CSV files, where values are bare numbers: `jitter_ms`."""
        return self.key + self.unit.scale.column

    @property
    def plain(self) -> str:
        """In JSON, in the smallest unit: `jitter_ns`."""
        return self.key + self.unit.scale.plain

    def parse(self, text: str) -> Quantity:
        """A value with its unit. Raises: UnitError."""
        return self.unit.parse(text)
