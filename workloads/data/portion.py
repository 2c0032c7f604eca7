"""The part of a data set that one worker trains on, and its batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random

from wanbench.workloads.data.shards import IID, Shards
from wanbench.workloads.seeding import stream

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
