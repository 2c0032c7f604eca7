"""A site of several GPUs, which is one worker: how a user names it, and how long a step takes there."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from wanbench.harness.errors import SpecError
from wanbench.netprofiles import Delay
from wanbench.workloads.models.builtins import BUILTINS
from wanbench.workloads.models.gpt import Throughput


@dataclass(frozen=True)
class Site:
    """A site that trains a built-in workload.

    Attributes:
        workload: its name. published: how fast a node of 8 GPUs is. gpus: of the site. device: of these GPUs.
        tokens: of a step of the site.
    """

    workload: str
    published: Throughput
    gpus: int
    device: str
    tokens: int

    @property
    def step_time_s(self) -> float:
        """Seconds of a step, with what the GPUs of the site exchange; GPUs are as fast as in the published node."""
        return self.tokens / (self.published.per_s[self.device] * self.gpus / self.published.gpus)

    @property
    def microbatches(self) -> int:
        """The number of passes that a step accumulates; only behind the last can its gradient be sent."""
        return max(1, math.ceil(self.tokens / (self.gpus * self.published.microbatch)))

    @property
    def table(self) -> dict[str, Any]:
        """The table `[workload]` of a spec."""
        return {"name": self.workload, "step_time": str(Delay.from_ms(1e3 * self.step_time_s))}


def site_of(text: str) -> Site | None:
    """The site that a workload such as "gpt-1b,gpus=16,device=a100" means; None if one of its workers is no site.

    Raises:
        SpecError: a key or its value is wrong.
    """
    name, *parts = (part.strip() for part in text.split(","))
    published = BUILTINS[name].site if name in BUILTINS else None
    if published is None:
        return None
    devices = [*published.per_s]
    keys: dict[str, Callable[[str], Any]] = {
        "gpus": whole, "tokens": whole, "device": lambda value: devices[devices.index(value)],
    }  # fmt: skip
    defaults: dict[str, Any] = {"gpus": published.gpus, "tokens": published.tokens, "device": devices[0]}
    example = f"gpus=16,device={devices[-1]}; speeds are published for {' and '.join(devices)}"
    return Site(name, published, **(defaults | values(text, parts, keys, example)))


def values(text: str, parts: Iterable[str], keys: Mapping[str, Callable[[str], Any]], example: str) -> dict[str, Any]:
    """The values of `--workload`'s parts, such as "gpus=16".

    Args:
        keys: what reads the value of each key, and raises ValueError.

    Raises:
        SpecError: a key or its value is wrong.
    """
    table = {}
    for part in parts:
        key, _, value = (word.strip() for word in part.partition("="))
        try:
            table[key] = keys[key](value)
        except (KeyError, ValueError, OverflowError):
            expected = f"expected {', '.join(keys)}, as in {example}"
            raise SpecError(f"--workload {text}: {part!r}: {expected}") from None
    return table


def whole(text: str) -> int:
    """A whole number above 0, also as "7e9". Raises: ValueError, OverflowError."""
    number = int(float(text.replace("_", "")))
    if number < 1:
        raise ValueError(text)
    return number
