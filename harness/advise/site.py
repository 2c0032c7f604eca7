"""A site of several GPUs, which is one worker: how a user names it, and how long a step takes there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from wanbench.harness.errors import SpecError
from wanbench.netprofiles import Delay
from wanbench.workloads.models.builtins import BUILTINS
from wanbench.workloads.models.gpt import PUBLISHED_GPUS, Throughput


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
    def tokens_per_s(self) -> float:
        """Of a site without others: proportional to its GPUs."""
        return self.published.per_s[self.device] * self.gpus / PUBLISHED_GPUS

    @property
    def step_time_s(self) -> float:
        """Seconds of a step, with what the GPUs of the site exchange."""
        return self.tokens / self.tokens_per_s

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
    values: dict[str, Any] = {"gpus": PUBLISHED_GPUS, "device": next(iter(published.per_s)), "tokens": published.tokens}
    for part in parts:
        key, _, value = (word.strip() for word in part.partition("="))
        fits = value in published.per_s if key == "device" else value.isdecimal() and int(value) > 0
        if key not in values or not fits:
            devices = " or ".join(published.per_s)
            raise SpecError(f"--workload {text}: {part!r}: expected gpus=16, tokens=1000000, or device={devices}")
        values[key] = value if key == "device" else int(value)
    return Site(name, published, **values)
