"""The effects of a path on packets: one record per impairment, and one field of `Path`.

Each impairment is defined once, with its name and its unit. File formats, spec keys, sweep axes, timelines and
descriptions are derived from this. What the emulators do about it, and what the probe expects, is the class of the same
name in harness/emulators/impairments.py.
"""

import math
from dataclasses import dataclass

from wanbench.netprofiles.units import Delay, Packets, Quantity, Rate, Ratio, Size

EMPTY_BUFFER = "buffer 0B holds no packet; expected more, or no buffer for the default: one round trip at the rate"
_RAREST = 2.0**-32  # netem's unit of a probability


@dataclass(frozen=True)
class Impairment:
    """One effect of a path on packets.

    Attributes:
        key: its key in profiles, specs and timelines.
        unit: the type of its values.
        title: its name for people.
        about: the description of `network.KEY` in a spec, if the impairment acts on each packet of uniform networks.
        changed: the description of `timeline.KEY`, likewise.
        always_stored: profiles write it to JSON even if a path does not have it; recorded runs contain it.
    """

    key: str
    unit: type[Quantity]
    title: str
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


# People measure round trips, so files can give the RTT instead of the one-way delay.
RTT = Impairment("rtt", Delay, "RTT")
ONE_WAY = Impairment("one_way", Delay, "one-way delay", always_stored=True)


JITTER = Impairment(
    "jitter",
    Delay,
    "one-way jitter",
    about='Uniform only: standard deviation of the one-way delay, such as "2ms". Packets keep their order.',
    changed="New jitter, or a factor for the present one.",
    always_stored=True,
)


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


LOSS = Impairment(
    "loss",
    Ratio,
    "loss per packet",
    about='Uniform only: share of packets lost on every path, such as "0.1%".',
    changed="New loss per packet.",
    always_stored=True,
)

LOSS_BURST = Impairment(
    "loss_burst",
    Packets,
    "packets lost in a row",
    about="Uniform only: mean number of packets lost in a row, such as 5; 0 (default): each is lost independently.",
    changed="New mean number of packets lost in a row; 0: each is lost independently.",
)


RATE = Impairment("rate", Rate, "path rate", always_stored=True)
BUFFER = Impairment("buffer", Size, "path buffer", always_stored=True)
