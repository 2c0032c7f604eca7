"""Divide a data set among the workers, evenly (IID) or with a different mix of classes for each; the portion of one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Self

from wanbench.workloads.seeding import stream

EXPECTED = 'expected "iid" or "dirichlet:ALPHA" with ALPHA above 0, such as "dirichlet:0.5"'


@dataclass(frozen=True, slots=True)
class Shards:
    """A rule that gives every sample to exactly one worker.

    Attributes:
        alpha: None: samples are distributed at random, as evenly as possible. A number: each class is divided among
            the workers in proportions drawn from a symmetric Dirichlet distribution with this concentration
            (Yurochkin et al. 2019, section 4). Shards then differ in size and in classes, more so for a smaller alpha.
    """

    alpha: float | None = None

    @classmethod
    def parse(cls, text: object) -> Self:
        """Read "iid" or "dirichlet:0.5".

        Raises:
            ValueError: any other text.
        """
        if text == "iid":
            return cls()
        if isinstance(text, str) and text.startswith("dirichlet:"):
            try:
                alpha = float(text.removeprefix("dirichlet:"))
            except ValueError:
                alpha = math.nan
            if 0 < alpha < math.inf:
                return cls(alpha)
        raise ValueError(f"{EXPECTED}, got {text!r}")

    def __str__(self) -> str:
        return "iid" if self.alpha is None else f"dirichlet:{self.alpha:g}"

    def divide(self, labels: Sequence[int], world_size: int, seed: int) -> list[list[int]]:
        """Return the samples of each worker, as indices into `labels`; all workers compute the same division.

        No shard is empty: a worker without samples takes one from the largest shard.

        Raises:
            ValueError: there are fewer samples than workers.
        """
        if len(labels) < world_size:
            raise ValueError(f"{len(labels)} samples for {world_size} workers; expected at least one per worker")
        random = stream(seed, "shards", str(self))
        order = list(range(len(labels)))
        random.shuffle(order)
        if self.alpha is None:
            return [order[rank::world_size] for rank in range(world_size)]
        divided: list[list[int]] = [[] for _ in range(world_size)]
        members: dict[int, list[int]] = {label: [] for label in sorted(set(labels))}
        for index in order:
            members[labels[index]].append(index)
        for group in members.values():
            weights = [random.gammavariate(self.alpha, 1.0) for _ in range(world_size)]
            for shard, part in zip(divided, _cut(group, weights), strict=True):
                shard.extend(part)
        for shard in divided:
            if not shard:
                shard.append(max(divided, key=len).pop())
        return divided


IID = Shards()


def _cut(members: Sequence[int], weights: Sequence[float]) -> list[Sequence[int]]:
    """Cut `members` into consecutive parts in proportion to `weights`."""
    total = sum(weights)
    # With a tiny concentration, all gamma variates can round to zero. Then the last worker gets the whole class.
    ends = [round(len(members) * done / total) if total > 0 else 0 for done in accumulate(weights)]
    ends[-1] = len(members)
    return [members[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


DEFAULT_BATCH_SIZE = 32


@dataclass(frozen=True, slots=True)
class Portion:
    """The settings of one worker for a built-in workload that trains a model.

    Attributes:
        rank: the worker's rank. world_size: number of workers.
        seed: seed of the repetition; the initial parameters depend only on it.
        batch_size: samples per worker and step.
        shards: how the samples are divided among the workers.
        folds: None: the test samples are the same in every repetition. k: the data are cut into k parts, and a
            repetition with seed s is tested on part s mod k and trained on the others.
        folder: folder of the data set, unless it is bundled.
    """

    rank: int
    world_size: int
    seed: int
    batch_size: int = DEFAULT_BATCH_SIZE
    shards: Shards = IID
    folds: int | None = None
    folder: Path | None = None

    def indices(self, labels: tuple[int, ...]) -> Sequence[int]:
        """Return this worker's samples, as indices into `labels`. Raises: ValueError: fewer samples than workers."""
        return _divided(self.shards, labels, self.world_size, self.seed)[self.rank]

    def random(self) -> Random:
        """Return the random generator for this worker's batches."""
        return stream(self.seed, "batches", self.rank)


@lru_cache(maxsize=2)  # a simulation asks for it once per worker
def _divided(shards: Shards, labels: tuple[int, ...], world_size: int, seed: int) -> Sequence[Sequence[int]]:
    return shards.divide(labels, world_size, seed)
