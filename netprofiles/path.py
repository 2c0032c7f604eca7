"""Sites, the directed paths between them, and where each value comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from wanbench.netprofiles.errors import ProfileError
from wanbench.netprofiles.units import NO_DELAY, NO_LOSS, Delay, Rate, Ratio, Size

Standing = Literal["measured", "inferred", "assumed", "fitted", "given"]
STANDINGS: tuple[str, ...] = get_args(Standing)

SITE_VALUES = ("up", "down", "local_rtt")
PATH_VALUES = ("rtt", "jitter", "loss", "rate", "buffer")

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
        ProfileError: source and destination are one site; jitter above a third of the delay; every
            packet lost; a buffer without a byte.
    """

    src: str
    dst: str
    delay: Delay
    jitter: Delay = NO_DELAY
    loss: Ratio = NO_LOSS
    rate: Rate | None = None
    buffer: Size | None = None
    provenance: Mapping[str, Provenance] = field(default_factory=dict)

    def __post_init__(self) -> None:
        way = f"{self.src} -> {self.dst}"
        if self.src == self.dst:
            raise ProfileError(f"{way}: a path joins two sites; inside a site, set its local_rtt")
        # Jitter is drawn from a normal distribution: below a third of the delay, a draw that would
        # have to arrive before it was sent (and be cut off, moving the mean) is one in 740.
        if 3 * self.jitter.ns > self.delay.ns:
            raise ProfileError(
                f"{way}: jitter {self.jitter} is above a third of the one-way delay {self.delay}; "
                f"expected at most {Delay(self.delay.ns // 3)}"
            )
        if self.loss.value == 1:
            raise ProfileError(f"{way}: loss 100% lets nothing through; expected less")
        if self.buffer == Size(0):
            raise ProfileError(f"{way}: buffer 0B holds no packet; leave it out for one round trip at the rate")

    def reversed(self) -> Path:
        """The way back, with the same values."""
        return replace(self, src=self.dst, dst=self.src)


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
