"""All ranks of a group in one process, which join as worker processes do, over loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from wanbench.workloads.loop.job import Job
from wanbench.workloads.process.training import join

C = TypeVar("C")
T = TypeVar("T")
_JOB = Job(0, 1, 0, {}, {}, "ssgd", {}, "direct", 1, 0, 1, 0, 1, 0, 0, 0, 0, timeout_s=10.0, rendezvous="")


@contextmanager
def groups(collective: str, folder: Path) -> Iterator[Callable[..., list[Any]]]:
    """Yield a factory of groups, which takes the number of ranks and fields of their job; close them at the end."""
    made: list[Any] = []

    def make(workers: int, **fields: object) -> list[Any]:
        name = str(folder / f"group-{len(made)}")
        job = replace(_JOB, collective=collective, world_size=workers, rendezvous=name, **fields)  # type: ignore[arg-type]
        with ThreadPoolExecutor(workers) as pool:
            comms = list(pool.map(lambda rank: join(replace(job, rank=rank), "127.0.0.1", "lo"), range(workers)))
        made.extend(comms)
        return comms

    yield make
    for comm in made:
        comm.close()


def on_every_rank(comms: Sequence[C], body: Callable[[C], T]) -> list[T]:
    """Call `body` with each rank at the same time; return the results by rank."""
    with ThreadPoolExecutor(len(comms)) as pool:
        return list(pool.map(body, comms))
