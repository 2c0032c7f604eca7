"""A file with only [[timeline]] tables, for programs that run without a spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from wanbench.harness.emulators.plan import EmulatedNetwork
from wanbench.harness.errors import SpecError
from wanbench.harness.spec.refusals import explained
from wanbench.harness.spec.tables import Table
from wanbench.harness.spec.timeline import ChangeTable
from wanbench.harness.timeline.changes import Change, resolve
from wanbench.harness.timeline.edits import TimelineError
from wanbench.harness.timeline.schedule import Schedule
from wanbench.netprofiles import FileError, Profile
from wanbench.netprofiles.user_file import parse_toml, read_text


class _File(Table):
    timeline: list[ChangeTable] = Field(min_length=1)


def read_timeline(path: Path) -> list[dict[str, Any]]:
    """Read the changes that a TOML file lists, as part of a cell. Raises: SpecError."""
    try:
        data = parse_toml(read_text(path, "TOML"))
        tables = _File.model_validate(data).timeline
    except FileError as error:
        raise SpecError(f"{path}: {error}") from None
    except ValidationError as error:
        raise SpecError("\n".join(explained(error, _File, data, str(path)))) from None
    return resolve(tables, str(path))


def schedule_for_program(
    changes: tuple[Change, ...], network: EmulatedNetwork, profile: Profile, where: str
) -> Schedule:
    """Return the schedule for a program, whose steps and compute time are unknown. Raises: SpecError."""
    for index, change in enumerate(changes):
        if change.at_step is not None:
            raise SpecError(
                f'{where}: timeline.{index}.at: the steps of a program are not known; give a time, e.g. "5s"'
            )
        if change.kind == "slow":
            raise SpecError(f"{where}: timeline.{index}.slow: a program's compute time cannot be changed; leave it out")
    try:
        schedule = Schedule(changes, network, profile)
        schedule.check()
    except TimelineError as error:
        raise SpecError(f"{where}: {error}") from None
    return schedule
