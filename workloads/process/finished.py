"""The last message of a worker: what it did, and what its machine counted meanwhile."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Self

from wanbench.workloads.loop.job import Outcome
from wanbench.workloads.process.heartbeat import Lost
from wanbench.workloads.wire import MANY, Bounds, Count, Number, Word

_Part = Annotated[str, Bounds(max_length=4096, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
_Counted = Annotated[dict[Word, Count], Bounds(max_length=100)]


@dataclass(frozen=True)
class Counters:
    """The counters of a worker's device, of its TCP, and of its threads; the last is None if it is not known."""

    device: _Counted
    tcp: _Counted
    udp_overflows: Count
    cpu_wait_ns: Count | None


@dataclass(frozen=True)
class Processor:
    """The processor time of a worker's programs."""

    waited_s: Number
    used_s: Number


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What every worker reports.

    Attributes:
        imports: modules of the user's: name, path and SHA-256 (`workloads.imported.noted`).
        lost: times in which something did not run.
        counters_before, counters_after: when all were warm, and at the end.
    """

    imports: Annotated[list[tuple[_Part, _Part, _Part]], MANY]
    lost: Annotated[list[Lost], MANY]
    counters_before: Counters
    counters_after: Counters

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Self:
        """The report in a message that was checked."""
        return cls(**{field.name: message[field.name] for field in fields(cls)})


@dataclass(frozen=True, kw_only=True)
class FinishedJob(Finished):
    """What a worker reports that has trained."""

    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class FinishedProgram(Finished):
    """What a worker reports that has run a program. `changed`: `workloads.process.configuration.Change`."""

    processor: Processor
    changed: tuple[Word, Word] | None
