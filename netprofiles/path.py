"""Sites, the directed paths between them, and the provenance of each value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal, get_args

from wanbench.netprofiles.errors import ProfileError
from wanbench.netprofiles.impairments import (
    BUFFER,
    EMPTY_BUFFER,
    JITTER,
    LOSS,
    LOSS_BURST,
    ONE_WAY,
    RATE,
    RTT,
    Impairment,
    burst_problem,
)
from wanbench.netprofiles.units import NO_DELAY, NO_LOSS, Delay, Packets, Quantity, Rate, Ratio, Size

ProvenanceKind = Literal["measured", "inferred", "assumed", "fitted", "given"]
PROVENANCE_KINDS: tuple[str, ...] = get_args(ProvenanceKind)

# The values that a file gives for a site. They are read and shown like those of a path.
STATED_OF_SITES = (
    Impairment("up", Rate, "site up"),
    Impairment("down", Rate, "site down"),
    Impairment("buffer", Size, "site buffer"),
    Impairment("local_rtt", Delay, "local RTT"),
)
SITE_VALUES = tuple(value.key for value in STATED_OF_SITES)

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Provenance:
    """How a value was found, and its source.

    measured: a published or own measurement. inferred: calculated from other measurements. assumed: chosen, because
    no measurement was found. fitted: chosen to make a model reproduce a published result. given: set by the user.
    """

    kind: ProvenanceKind
    source: str


@dataclass(frozen=True, slots=True)
class Site:
    """A place. Its workers share its `up` and `down` rates (None: unlimited) and are `local_rtt` apart.

    The queue of each of the two rates has a `buffer`; None holds the site's longest round trip at the rate.
    `provenance` has a key of `SITE_VALUES` for each value that is set.
    """

    name: str
    region: str | None = None
    city: str | None = None
    up: Rate | None = None
    down: Rate | None = None
    buffer: Size | None = None
    local_rtt: Delay = NO_DELAY
    provenance: Mapping[str, Provenance] = field(default_factory=dict)

    @property
    def aliases(self) -> tuple[str, ...]:
        """The names by which the site is found: its own, then its region code."""
        return (self.name,) if self.region in (None, self.name) else (self.name, str(self.region))


@dataclass(frozen=True, slots=True)
class Path:
    """The directed path from one site to another, shared by all their workers.

    `delay` is one way. `jitter` is the standard deviation of the one-way delay. `loss` is the share of lost packets;
    they are lost in bursts of `loss_burst` on average, or independently if that is None or 0. A `rate` of None is
    unlimited; a `buffer` of None holds one round trip at `rate`. `provenance` has a key of `PATH_VALUES` for each value
    that is set. The provenance of the delay is under `rtt`, because people measure round trips.

    Raises:
        ProfileError: source and destination are the same site, or an impairment has an impossible value.
    """

    src: str
    dst: str
    delay: Delay = field(metadata={"impairment": ONE_WAY})
    jitter: Delay = field(default=NO_DELAY, metadata={"impairment": JITTER})
    loss: Ratio = field(default=NO_LOSS, metadata={"impairment": LOSS})
    loss_burst: Packets | None = field(default=None, metadata={"impairment": LOSS_BURST})
    rate: Rate | None = field(default=None, metadata={"impairment": RATE})
    buffer: Size | None = field(default=None, metadata={"impairment": BUFFER})
    provenance: Mapping[str, Provenance] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = f"{self.src} -> {self.dst}"
        if self.src == self.dst:
            raise ProfileError(f"{where}: expected two different sites; inside a site, set its local_rtt")
        if (problem := self._problem()) is not None:
            raise ProfileError(f"{where}: {problem}")

    def _problem(self) -> str | None:
        """Why a path cannot have these values, as the end of the message "a -> b: ..."; None if it can."""
        if 3 * self.jitter.ns > self.delay.ns:
            # Jitter is drawn from a normal distribution. Up to a third of the delay, only one draw in 740 would
            # arrive before it was sent; such draws are cut off, which moves the mean.
            expected = f"expected at most {Delay(self.delay.ns // 3)}"
            return f"jitter {self.jitter} is above a third of the one-way delay {self.delay}; {expected}"
        if self.loss.value == 1:
            return "loss 100% drops every packet; expected less than 100%"
        if self.buffer == Size(0):
            return EMPTY_BUFFER
        return None if self.loss_burst is None else burst_problem(self.loss.value, self.loss_burst.value)

    def values(self) -> Iterator[tuple[Impairment, Quantity | None]]:
        """Yield every impairment with its value on this path; None means no limit."""
        return ((impairment, getattr(self, name)) for name, impairment in IMPAIRMENTS.items())

    def reversed(self) -> Path:
        """Return the path in the other direction, with the same values."""
        return replace(self, src=self.dst, dst=self.src)


IMPAIRMENTS: Mapping[str, Impairment] = {
    item.name: item.metadata["impairment"] for item in fields(Path) if "impairment" in item.metadata
}
"""The impairments by the name of their field in `Path`, in the order of the fields."""

STATED: tuple[Impairment, ...] = (RTT, *(value for value in IMPAIRMENTS.values() if value is not ONE_WAY))
"""The values that a file gives for a path; a one-way delay can replace the RTT."""

EFFECTS: tuple[Impairment, ...] = tuple(value for value in STATED if value.about is not None)
"""The impairments that act on each packet, also on uniform networks."""

UNIFORM_KEYS = ("rtt", "rate", "buffer", *(effect.key for effect in EFFECTS))
"""What a uniform network takes; `rate` and `buffer` are those of its sites."""

PATH_VALUES = tuple(value.key for value in STATED)


class SamePaths(Mapping[Pair, Path]):
    """Every ordered pair of distinct `names`, all with the values of one path.

    Paths are created on demand, because a thousand sites have a million paths.
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
        """True if these are the paths between exactly these sites."""
        return self._names.keys() == set(names)

    def changed(self, change: Callable[[Path], Path]) -> SamePaths:
        """Return all paths with `change` applied."""
        return SamePaths(tuple(self._names), change(self.like))


def both_ways(paths: Mapping[Pair, Path]) -> dict[Pair, Path]:
    """Return `paths`, with each path that is given in only one direction copied to the other."""
    back = {(dst, src): path.reversed() for (src, dst), path in paths.items() if (dst, src) not in paths}
    return {**paths, **back}
