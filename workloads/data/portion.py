"""Which part of a data set one worker learns from, and how it draws its batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from wanbench.workloads.data.shards import IID, Shards
from wanbench.workloads.seeding import stream

DEFAULT_BATCH_SIZE = 32


@dataclass(frozen=True, slots=True)
class Portion:
    """What a built-in workload that learns is made from.

    Attributes:
        rank, world_size: of the worker.
        seed: of the repetition; initial parameters depend on nothing else.
        batch_size: samples of one worker in one step.
        shards: how the samples are divided over the workers.
        folds: None: the test samples are the same in every repetition. k: the data are cut into k parts, and a
            repetition with seed s is tested on part s mod k and trained on the others.
        folder: of the data set, where it is not bundled.
    """

    rank: int
    world_size: int
    seed: int
    batch_size: int = DEFAULT_BATCH_SIZE
    shards: Shards = IID
    folds: int | None = None
    folder: Path | None = None

    def indices(self, labels: Sequence[int]) -> list[int]:
        """This worker's samples, as indices into `labels`. Raises: ValueError: fewer samples than workers."""
        return self.shards.divide(labels, self.world_size, self.seed)[self.rank]

    def random(self) -> Random:
        """The stream of this worker's batches."""
        return stream(self.seed, "batches", self.rank)
