"""Whether the numbers of a run can be published: the rules of `rules.py`, applied to its rows and its files.

All rules but one need the stored rows alone. The last one, whether files are intact, reads the files.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wanbench.harness.grouping import by_key
from wanbench.harness.plan.cell import BASELINE
from wanbench.harness.plan.law import PredictInputs, window_steps
from wanbench.harness.results import digests
from wanbench.harness.results.evidence import window_begin
from wanbench.harness.results.hosts import NOT_RECORDED, hosts_of
from wanbench.harness.results.rules import (
    ACCURACY_BAND,
    INTACT,
    LOSS_BAND,
    MAX_EVENT_LATE_S,
    MAX_LAW_FACTOR,
    MAX_OVERHEAD_PCT,
    MAX_PAUSED_PCT,
    MAX_SCALABILITY,
    MAX_SPREAD_PCT,
    MIN_REPS,
    MIN_STEPS,
)  # fmt: skip
from wanbench.harness.results.scalability import Row, host_of
from wanbench.harness.results.steps import elapsed_per_step_s, step_time_s
from wanbench.harness.results.store import RunFolder
from wanbench.harness.spec.command import looks_like_a_file
from wanbench.harness.text import listed

_REAL = ("netns", "docker")
_OF_ALL = ("complete", "consistent", INTACT)  # the rules that judge also what is not valid
_EMULATED_ONLY = {"fidelity", "hosts", "payload", "processor"}
_STEPS = "steps.parquet"
_ROUNDING = 1e-6  # of a step: values are stored unrounded
_NAMED = 3  # cells of a problem


@dataclass(frozen=True)
class Objection:
    """A broken rule and the cell that breaks it (None: the run as a whole)."""

    rule: str
    cell: str | None
    text: str


def objections(rows: Sequence[Row], expected: Mapping[str, str]) -> list[Objection]:
    """The problems that must be solved before publishing, if any.

    Args:
        rows: of the run, one per repetition.
        expected: slug of every cell of the experiment by its identity.
    """
    return [
        Objection(rule, cell, text)
        for rule, check in CHECKS.items()
        for cell, text in check(rows, expected)
    ]  # fmt: skip


def problems_text(problems: Sequence[Objection]) -> str:
    """The verdict on a run with problems, as "1 problem: do not publish yet"."""
    return f"{len(problems)} problem{'s' * (len(problems) > 1)}: do not publish yet"


def problem_lines(problems: Sequence[Objection], run: str) -> list[str]:
    """One line for each distinct text, after the first few cells that it concerns, or the run."""
    cells = by_key((objection.text, objection.cell or run) for objection in problems)
    return [f"{listed(names, _NAMED)}: {text}" for text, names in cells.items()]


Verdicts = Iterator[tuple[str | None, str]]
Check = Callable[[Sequence[Row], Mapping[str, str]], Verdicts]


def _complete(rows: Sequence[Row], expected: Mapping[str, str]) -> Verdicts:
    valid = {row["cell_key"] for row in _ok(rows)}
    last = {row["cell_key"]: row for row in rows if row["status"] != "ok"}
    for key, slug in expected.items():
        if key not in valid:
            yield slug, f"{last[key]['status']}: {last[key]['reason']}" if key in last else "was never run"


def _consistent(rows: Sequence[Row], expected: Mapping[str, str]) -> Verdicts:
    for row in rows:
        yield from ((row["cell"], f"rep {row['rep']}: {text}") for text in contradictions(row))


def contradictions(row: Row) -> Iterator[str]:
    """Yield what cannot be true in a row, a sentence each. Values that are not known contradict nothing."""
    yield from _of_status(row)
    yield from _of_parts(row)
    yield from _of_counts(row)
    if row["status"] == "ok":
        yield from _of_ratios(row)


def _of_status(row: Row) -> Iterator[str]:
    status, reason = row["status"], row.get("reason")
    if status == "ok" and reason:
        yield f"its status is ok, but it has a reason: {reason}"
    if status != "ok" and not reason:
        yield f"its status is {status}, but it has no reason"
    paused = row.get("paused_pct")
    if status == "ok" and paused is not None and paused > MAX_PAUSED_PCT:
        yield f"its status is ok, but something did not run for {paused:.1f} % of the window"


def _of_parts(row: Row) -> Iterator[str]:
    step_s = row.get("step_time_s")
    parts = [part for name in ("compute_s", "stall_s", "overhead_s") if (part := row.get(name)) is not None]
    if step_s is None or len(parts) < 3:
        return
    total = sum(parts)
    if not math.isclose(total, step_s, rel_tol=_ROUNDING):
        yield f"compute, stall and overhead add up to {total:.6g} s, but the step time is {step_s:.6g} s"
    for name, part in zip(("compute", "stall"), parts, strict=False):
        if part > step_s * (1 + _ROUNDING):
            yield f"{name} takes {part:.6g} s of a step of {step_s:.6g} s"


def _of_counts(row: Row) -> Iterator[str]:
    steps, total = row.get("steps"), row.get("steps_total")
    if steps is not None and total is not None and steps > total:
        yield f"{steps} steps were measured, but there were only {total}"
    if row["testbed"] in _REAL and row["workers"] > 1 and row.get("emulator") is None:
        yield f"{row['workers']} workers on {row['testbed']} had no emulator"
    if row["testbed"] not in _REAL and row.get("wire_bytes") is not None:
        yield f"bytes on a wire, but its testbed is {row['testbed']}"


def _of_ratios(row: Row) -> Iterator[str]:
    scalability, law_s, step_s = row.get("scalability"), row.get("predicted_step_time_s"), row["step_time_s"]
    most = MAX_SCALABILITY[bool((row.get("law_inputs") or {}).get("step_time_s"))]
    if scalability is not None and not 0 < scalability <= most:
        yield f"scalability {scalability:.3g}; the limit is {most:g}"
    if law_s is not None and not law_s / MAX_LAW_FACTOR <= step_s <= law_s * MAX_LAW_FACTOR:
        times = f"{step_s / law_s:.3g} times the {law_s:.6g} s of the step-time law"
        yield f"the step time of {step_s:.6g} s is {times}; the limit is a factor of {MAX_LAW_FACTOR:g}"


def _fidelity(group: Sequence[Row]) -> Iterator[str]:
    emulated = [row for row in group if row["testbed"] in _REAL and row["workers"] > 1]
    unprobed = [row["rep"] for row in emulated if row["one_way_error_ms"] is None]
    if unprobed:
        yield f"rep {_list(unprobed)}: the emulated network was not measured; run it again"


def _reps(group: Sequence[Row]) -> Iterator[str]:
    """Judge the repetitions of a cell, which several hosts can share; those of one worker by host."""
    emulated = (row for row in group if row["testbed"] in _REAL)
    hosts = by_key((host_of(row) if row["workers"] == 1 else None, row) for row in emulated)
    for host, repetitions in hosts.items():
        where = "" if len(hosts) == 1 else f"{host or NOT_RECORDED}: "
        yield from (f"{where}{text}" for text in _few_or_apart(repetitions))


def _few_or_apart(group: Sequence[Row]) -> Iterator[str]:
    if len(group) < MIN_REPS:
        yield f"{len(group)} valid repetition{'s' * (len(group) > 1)}; at least {MIN_REPS} are needed"
    if len({row["seed"] for row in group}) < len(group):
        yield "two repetitions have the same seed"
    times = [row["step_time_s"] for row in group]
    spread = 100 * (max(times) - min(times)) / statistics.median(times)
    if spread > MAX_SPREAD_PCT:
        yield f"step times of the repetitions differ by {spread:.1f} %; the limit is {MAX_SPREAD_PCT:g} %"


def _hosts(rows: Sequence[Row], expected: Mapping[str, str]) -> Verdicts:
    if (problem := hosts_of(rows).problem) is not None:
        yield None, problem


def _window(group: Sequence[Row]) -> Iterator[str]:
    if group[0].get("command"):
        yield from _window_of_a_command(group)
        return
    if not group[0]["law_inputs"]:
        yield "its period and delay are not recorded; measure it again with --fresh"
        return
    inputs = PredictInputs.from_json(group[0]["law_inputs"])
    needed = window_steps(inputs.delay, inputs.period, 0)
    for row in group:
        steps = row["steps"] or 0
        if steps < needed or steps % inputs.period:
            enough = f"at least {needed} are needed, in multiples of {inputs.period}"
            yield f"rep {row['rep']}: {steps} measured steps; {enough}"


def _window_of_a_command(group: Sequence[Row]) -> Iterator[str]:
    """Judge the number of steps only, because wanbench does not know the period of a command."""
    for row in group:
        if row["steps"] is None:
            yield f"rep {row['rep']}: the program reported no steps, so its whole run was timed, including its start"
        elif row["steps"] < MIN_STEPS:
            yield f"rep {row['rep']}: {row['steps']} measured steps; at least {MIN_STEPS} are needed"


def _code(rows: Sequence[Row], expected: Mapping[str, str]) -> Verdicts:
    versions: dict[object, set[str]] = defaultdict(set)
    for row in _ok(rows):
        kind = (row["kind"], *filter(looks_like_a_file, row.get("command") or ()))  # for rows of earlier versions
        for name, digest in (row.get("sources") or {kind: row["code"]}).items():
            versions[name].add(str(digest))
    for name, hashes in versions.items():
        if len(hashes) > 1:
            what = f"{name[0]} was measured by" if isinstance(name, tuple) else f"{name}: measured with"
            yield None, f"{what} {len(hashes)} versions of the code ({_list(sorted(hashes))})"


def _payload(group: Sequence[Row]) -> Iterator[str]:
    row = group[0]
    if row["collective"] == "gloo" and (row["payload_scale"] or 1) < 1 and row["testbed"] in _REAL:
        what = f"gloo with payload_scale {row['payload_scale']:g} does not represent {row['workload']}"
        yield f"{what}; publish it under its message size, or use the direct collective"


def _network(group: Sequence[Row]) -> Iterator[str]:
    if group[0]["workers"] == 1:
        return
    if group[0]["tcp"] is None and group[0]["testbed"] in _REAL:
        yield "TCP congestion control was not pinned; set network.tcp.congestion"
    if all(row["scalability"] is None for row in group):
        yield "its one-worker cell has no step time to compare with"


def _timeline(rows: Sequence[Row], expected: Mapping[str, str]) -> Verdicts:
    several = [row for row in _ok(rows) if row["workers"] > 1]
    if len({row.get("timeline") for row in several}) > 1:
        yield None, "the cells have different timelines, so their step times cannot be compared"
    for slug, group in _cells(several):
        for row in group:
            events = row.get("events") or []
            missed = [event["what"] for event in events if event["actual_s"] is None]
            # A worker slows down at its next step, which can be late by design, for example behind a cut.
            prompt = [event for event in events if not event.get("with_step")]
            late = [event["actual_s"] - event["asked_s"] for event in prompt if event["actual_s"] is not None]
            if missed:
                why = "they were due after the end, or over within one step"
                count = f"{len(missed)} of {len(events)} changes"
                yield slug, f"rep {row['rep']}: {count} never happened, first {missed[0]!r}: {why}"
            if max(late, default=0.0) > MAX_EVENT_LATE_S:
                limit = f"the limit is {MAX_EVENT_LATE_S:g} s"
                yield slug, f"rep {row['rep']}: a change happened {max(late):.2f} s after it was due; {limit}"


def _processor(group: Sequence[Row]) -> Iterator[str]:
    for row in group:
        emulated = (row["law_inputs"] or {}).get("step_time_s")
        if not emulated or row["overhead_s"] is None or row["algorithm"] == BASELINE:
            continue
        share = 100 * row["overhead_s"] / row["step_time_s"]
        if share > MAX_OVERHEAD_PCT:
            limit = f"the limit is {MAX_OVERHEAD_PCT:g} %"
            yield f"rep {row['rep']}: {share:.1f} % of a step is overhead of the host; {limit}"


def _accuracy(rows: Sequence[Row], expected: Mapping[str, str]) -> Verdicts:
    references = by_key((_task(row), row) for row in _ok(rows) if row["kind"] == "ssgd")
    for slug, group in _cells(row for row in _ok(rows) if _trains(row) and row["workers"] > 1):
        yield from ((slug, text) for text in _outside(group, references.get(_task(group[0]), [])))


def _outside(group: Sequence[Row], ssgd: Sequence[Row]) -> Iterator[str]:
    """Yield a text if the accuracy, or else the loss, cannot be compared with that of ssgd, or is too far from it."""
    if not ssgd:
        yield f"no ssgd on as many workers trains {group[0]['workload']}, so there is no accuracy to compare with"
        return
    steps, ssgd_steps = ({row["steps_total"] for row in rows if row.get("steps_total")} for rows in (group, ssgd))
    if steps and ssgd_steps and steps != ssgd_steps:
        yield f"accuracy is known after {_list(sorted(steps))} steps, that of ssgd after {_list(sorted(ssgd_steps))}"
        return
    accuracy, ssgd_accuracy = _mean(group, "accuracy"), _mean(ssgd, "accuracy")
    if accuracy is not None and ssgd_accuracy is not None:
        if not accuracy >= ssgd_accuracy - ACCURACY_BAND:
            yield f"accuracy {accuracy:.3f}; the limit is {ACCURACY_BAND:g} below that of ssgd ({ssgd_accuracy:.3f})"
        return
    loss, ssgd_loss = _mean(group, "final_loss"), _mean(ssgd, "final_loss")
    if loss is not None and ssgd_loss is not None and not loss <= ssgd_loss * LOSS_BAND:
        yield f"final loss {loss:.3f}; the limit is {LOSS_BAND:g} times that of ssgd ({ssgd_loss:.3f})"


def _of_each_cell(judge: Callable[[Sequence[Row]], Iterator[str]]) -> Check:
    """The check that judges the valid repetitions of each cell on their own."""

    def check(rows: Sequence[Row], expected: Mapping[str, str]) -> Verdicts:
        return ((slug, text) for slug, group in _cells(_ok(rows)) for text in judge(group))

    return check


CHECKS: Mapping[str, Check] = {
    "complete": _complete,
    "consistent": _consistent,
    "fidelity": _of_each_cell(_fidelity),
    "reps": _of_each_cell(_reps),
    "hosts": _hosts,
    "window": _of_each_cell(_window),
    "code": _code,
    "payload": _of_each_cell(_payload),
    "network": _of_each_cell(_network),
    "timeline": _timeline,
    "processor": _of_each_cell(_processor),
    "accuracy": _accuracy,
}


def file_objections(folder: RunFolder) -> list[Objection]:
    """The files that were changed later, are damaged or missing, or contradict their row."""
    rows = folder.results()
    texts = [(path, f"{path.name} {text}") for path, text in digests.changed(folder.path, rows)]
    changed = {path for path, _ in texts}
    texts += [
        (path, text)
        for path, row in rows.items()
        if path.with_name(_STEPS) not in changed
        for text in _contradicted(folder.path / path.with_name(_STEPS), row)
    ]
    return [Objection(INTACT, _cell_of(path), f"{_repetition_of(path)}{text}") for path, text in texts]


def files_not_known(folder: RunFolder) -> str | None:
    """Why nothing, or not everything, is known about the files of a run; None if all have digests."""
    noted = digests.noted(folder.path)
    if noted is None:
        return f"no {digests.FILE}: measured or recorded by an earlier version, so later changes are not seen"
    without = [path for path in folder.results() if path.as_posix() not in noted]
    if without:
        count = "1 repetition has" if len(without) == 1 else f"{len(without)} repetitions have"
        return f"{count} no digest, so later changes there are not seen"
    return None


def _contradicted(file: Path, row: Row) -> Iterator[str]:
    """Yield how the steps differ from the row. Rows of earlier versions, which name no digests, are not judged."""
    evidence = row.get("evidence")
    if evidence is None or not row.get("steps"):
        return
    if _STEPS not in evidence:
        yield f"{_STEPS} is missing, so nothing shows that these {row['steps']} steps were measured"
        return
    try:
        seconds = _step_time_of(file, row)
    except (OSError, ValueError, KeyError, TypeError):
        return  # the digest shows the damage
    if seconds is None:
        yield f"{_STEPS} lacks the {row['steps']} measured steps"
    elif not math.isclose(seconds, row["step_time_s"], rel_tol=_ROUNDING):
        yield f"the step time is {row['step_time_s']:.6g} s, but {seconds:.6g} s by {_STEPS}"


def _step_time_of(file: Path, row: Row) -> float | None:
    if row.get("command"):
        return step_time_s(file, row["steps_total"] - row["steps"], 0)
    if row.get("counted_steps") is not None:
        return elapsed_per_step_s(file, row["steps"])
    return step_time_s(file, window_begin(row), row["steps"])


def _cell_of(path: Path) -> str | None:
    return path.parts[1] if path.parts[0] == "cells" and len(path.parts) > 1 else None


def _repetition_of(path: Path) -> str:
    """The repetition of a file, as a beginning of a sentence."""
    return f"rep {path.parent.name.removeprefix('rep-')}: " if _cell_of(path) is not None else ""


def not_applicable(rule: str, rows: Iterable[Row]) -> str | None:
    """Why a rule does not apply to any row, None if it does."""
    valid = _ok(rows)
    reasons = {
        "no repetition is valid": not valid and rule not in _OF_ALL,
        "simulated": rule in _EMULATED_ONLY and not any(row["testbed"] in _REAL for row in valid),
        "measured on one host": rule == "hosts" and len(hosts_of(valid).names) == 1,
        "no model is trained; publish speeds only": rule == "accuracy" and not any(map(_trains, valid)),
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def unmeasured(rows: Iterable[Row]) -> list[str]:
    """Workloads that do not train a model, so only their speeds can be published."""
    rows = [row for row in _ok(rows) if row["workers"] > 1]
    return sorted({row["workload"] for row in rows} - {row["workload"] for row in rows if _trains(row)})


def _ok(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["status"] == "ok"]


def _cells(rows: Iterable[Row]) -> Iterable[tuple[str, list[Row]]]:
    return by_key((row["cell"], row) for row in rows).items()


def _trains(row: Row) -> bool:
    return row.get("accuracy") is not None or row.get("final_loss") is not None


def _task(row: Row) -> tuple[Any, ...]:
    """The values that must be equal for two accuracies to be compared."""
    training = {key: value for key, value in (row.get("axes") or {}).items() if key.startswith("train.")}
    return row["workload"], row["workers"], row["testbed"], row.get("timeline"), str(sorted(training.items()))


def _mean(rows: Sequence[Row], name: str) -> float | None:
    values = [row[name] for row in rows if row[name] is not None]
    return statistics.fmean(values) if values else None


def _list(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))
