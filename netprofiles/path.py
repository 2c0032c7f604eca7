"""Sites, the directed paths between them, and where each value comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal, get_args

from wanbench.netprofiles.errors import ProfileError
from wanbench.netprofiles.impairments.base import Impairment
from wanbench.netprofiles.impairments.delay import ONE_WAY, RTT
from wanbench.netprofiles.impairments.jitter import JITTER
from wanbench.netprofiles.impairments.loss import LOSS
from wanbench.netprofiles.impairments.queue import BUFFER, RATE
from wanbench.netprofiles.units import NO_DELAY, NO_LOSS, Delay, Quantity, Rate, Ratio, Size

Standing = Literal["measured", "inferred", "assumed", "fitted", "given"]
STANDINGS: tuple[str, ...] = get_args(Standing)

SITE_VALUES = ("up", "down", "local_rtt")

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Provenance:
    """How much a value can be trusted, and where it was read.

    measured: a published or own measurement. inferred: calculated from measurements of something else.
    assumed: chosen, no measurement found. fitted: chosen so that a model reproduces a published result.
    given: stated by the user.
    """

    standing: Standing
    source: str


@dataclass(frozen=True, slots=True)
class Site:
    """A place. Its workers share its `up` and `down` rates (None: unlimited) and are `local_rtt` apart.

    `provenance` has a key of `SITE_VALUES` for each value that is set.
    """

    name: str
    region: str | None = None
    city: str | None = None
    up: Rate | None = None
    down: Rate | None = None
    local_rtt: Delay = NO_DELAY
    provenance: Mapping[str, Provenance] = field(default_factory=dict)

    @property
    def aliases(self) -> tuple[str, ...]:
        """The names the site answers to: its own, then its region code."""
        return (self.name,) if self.region in (None, self.name) else (self.name, str(self.region))


@dataclass(frozen=True, slots=True)
class Path:
    """One directed way between two sites, shared by all their workers.

    `delay` is one way. `jitter` is the standard deviation of the one-way delay. `loss` is per packet.
    A `rate` of None is unlimited; a `buffer` of None holds one round trip at `rate`.
    `provenance` has a key of `PATH_VALUES` for each value that is set; `rtt` is about the delay, because
    round trips are what people measure.

    Raises:
        ProfileError: source and destination are one site, or an impairment is none that a path can have.
    """

    src: str
    dst: str
    delay: Delay = field(metadata={"impairment": ONE_WAY})
    jitter: Delay = field(default=NO_DELAY, metadata={"impairment": JITTER})
    loss: Ratio = field(default=NO_LOSS, metadata={"impairment": LOSS})
    rate: Rate | None = field(default=None, metadata={"impairment": RATE})
    buffer: Size | None = field(default=None, metadata={"impairment": BUFFER})
    provenance: Mapping[str, Provenance] = field(default_factory=dict)

    def __post_init__(self) -> None:
        way = f"{self.src} -> {self.dst}"
        if self.src == self.dst:
            raise ProfileError(f"{way}: a path joins two sites; inside a site, set its local_rtt")
        for impairment in IMPAIRMENTS.values():
            if (wrong := impairment.wrong(self)) is not None:
                raise ProfileError(f"{way}: {wrong}")

    def values(self) -> Iterator[tuple[Impairment, Quantity | None]]:
        """Every impairment, and what it is here; None is a queue without limit."""
        return ((impairment, getattr(self, name)) for name, impairment in IMPAIRMENTS.items())

    def reversed(self) -> Path:
        """The way back, with the same values."""
        return replace(self, src=self.dst, dst=self.src)


IMPAIRMENTS: Mapping[str, Impairment] = {
    each.name: each.metadata["impairment"] for each in fields(Path) if "impairment" in each.metadata
}
"""By the name of the field of `Path`, in its order."""

STATED: tuple[Impairment, ...] = (RTT, *(each for each in IMPAIRMENTS.values() if each is not ONE_WAY))
"""What a file says about a path; the RTT, or the one-way delay in its place."""

EFFECTS: tuple[Impairment, ...] = tuple(each for each in STATED if each.about is not None)
"""What packets meet one by one, on uniform networks too."""

PATH_VALUES = tuple(each.key for each in STATED)


class SamePaths(Mapping[Pair, Path]):
    """Every ordered pair of distinct `names`, all with the values of one path.

    Paths are made when asked for: a thousand sites have a million of them.
    """

    def __init__(self, names: tuple[str, ...], like: Path) -> None:
        self._names = dict.fromkeys(names)
        self.like = like

    def __getitem__(self, pair: Pair) -> Path:
        src, dst = pair
        if src == dst or src not in self._names or dst not in self._names:
            raise KeyError(pair)
        return replace(self.like, src=src, dst=dst)

    def __len__(self) -> int:
        return len(self._names) * (len(self._names) - 1)

    def __iter__(self) -> Iterator[Pair]:
        return ((src, dst) for src in self._names for dst in self._names if src != dst)

    def joins(self, names: Iterable[str]) -> bool:
        """Whether these are the paths between exactly these sites."""
        return self._names.keys() == set(names)

    def changed(self, change: Callable[[Path], Path]) -> SamePaths:
        """All paths with `change` applied."""
        return SamePaths(tuple(self._names), change(self.like))


def both_ways(paths: Mapping[Pair, Path]) -> dict[Pair, Path]:
    """`paths`, where one given in a single direction stands for the other direction too."""
    back = {(dst, src): path.reversed() for (src, dst), path in paths.items() if (dst, src) not in paths}
    return {**paths, **back}
