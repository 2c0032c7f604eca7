"""The rules by which the numbers of a run can be published, judged from the stored rows alone. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wanbench.harness.plan.cell import BASELINE
from wanbench.harness.plan.law import PredictInputs, window_steps
from wanbench.harness.results.consistency import contradictions
from wanbench.harness.results.hosts import NOT_RECORDED, hosts_of
from wanbench.harness.results.scalability import host_of
from wanbench.harness.spec.command import looks_like_a_file
from wanbench.harness.text import some

MIN_REPS = 3
MIN_STEPS = 20
MAX_SPREAD_PCT = 10.0
MAX_OVERHEAD_PCT = 5.0
MAX_EVENT_LATE_S = 0.1
ACCURACY_BAND = 0.02
LOSS_BAND = 1.10
_REAL = ("netns", "docker")
_NAMED = 3  # cells of a problem

Row = Mapping[str, Any]


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
        for rule, judge in RULES.items()
        for cell, text in judge(rows, expected)
    ]  # fmt: skip


_EMULATED_ONLY = {"fidelity", "hosts", "payload", "processor"}


def problems_text(found: Sequence[Objection]) -> str:
    """The verdict on a run with problems, as "1 problem: do not publish yet"."""
    return f"{len(found)} problem{'s' * (len(found) > 1)}: do not publish yet"


def problem_lines(found: Sequence[Objection], run: str) -> list[str]:
    """One line for each distinct text, after the first few cells that it concerns, or the run."""
    cells: dict[str, list[str]] = {}
    for objection in found:
        cells.setdefault(objection.text, []).append(objection.cell or run)
    return [f"{some(names, _NAMED)}: {text}" for text, names in cells.items()]


Verdicts = Iterator[tuple[str | None, str]]


def _complete(rows: Sequence[Row], expected: Mapping[str, str]) -> Verdicts:
    """Every cell has a valid result."""
    valid = {row["cell_key"] for row in _ok(rows)}
    last = {row["cell_key"]: row for row in rows if row["status"] != "ok"}
    for key, slug in expected.items():
        if key not in valid:
            why = f"{last[key]['status']}: {last[key]['reason']}" if key in last else "was never run"
            yield slug, why


def _consistent(rows: Sequence[Row], expected: Mapping[str, str]) -> Verdicts:
    """Each row agrees with itself: its parts make up the step, its ratios are possible, its status has a reason."""
    for row in rows:
        yield from ((row["cell"], f"rep {row['rep']}: {text}") for text in contradictions(row))


def _fidelity(rows: Sequence[Row], expected: Mapping[str, str]) -> Verdicts:
    """The emulated network was measured and matches its configuration."""
    for slug, group in _cells(_ok(rows)):
        emulated = [row for row in group if row["testbed"] in _REAL and row["workers"] > 1]
        unprobed = [row["rep"] for row in emulated if row["one_way_error_ms"] is None]
        if unprobed:
            yield slug, f"rep {_list(unprobed)}: the emulated network was not measured; run it again"


def _reps(rows: Sequence[Row], expected: Mapping[str, str]) -> Verdicts:
    """Every emulated cell has enough repetitions; they have different seeds, and their step times agree."""
    for slug, group in _cells(_ok(rows)):
        if group[0]["testbed"] in _REAL:
            yield from ((slug, f"{where}{text}") for where, mine in _repeated(group) for text in _few_or_apart(mine))


def _repeated(group: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield the repetitions of a cell, which several hosts can share; those of one worker by host, with its name."""
    hosts: dict[str | None, list[Row]] = {}
    for row in group:
        hosts.setdefault(host_of(row) if row["workers"] == 1 else None, []).append(row)
    yield from (("" if len(hosts) == 1 else f"{host or NOT_RECORDED}: ", mine) for host, mine in hosts.items())


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
    """All hosts of the run are alike: the step times of their own one-worker repetitions differ by at most 3 %."""
    problem = hosts_of(rows).problem
    if problem is not None:
        yield None, problem


def _window(rows: Sequence[Row], expected: Mapping[str, str]) -> Verdicts:
    """The window covers whole periods and several times the depth of the pipeline."""
    for slug, group in _cells(_ok(rows)):
        if group[0].get("command"):
            yield from _window_of_a_command(slug, group)
            continue
        if not group[0]["law_inputs"]:
            yield slug, "its period and delay are not recorded; measure it again with --fresh"
            continue
        inputs = PredictInputs.from_json(group[0]["law_inputs"])
        needed = window_steps(inputs.delay, inputs.period, 0)
        for row in group:
            if (row["steps"] or 0) < needed or (row["steps"] or 0) % inputs.period:
                yield (
                    slug,
                    (
                        f"rep {row['rep']}: {row['steps'] or 0} measured steps; at least {needed} are needed, "
                        f"in multiples of {inputs.period}"
                    ),
                )


def _window_of_a_command(slug: str, group: Sequence[Row]) -> Verdicts:
    """Judge the number of steps only, because wanbench does not know the period of a command."""
    for row in group:
        if row["steps"] is None:
            yield (
                slug,
                f"rep {row['rep']}: the program reported no steps, so its whole run was timed, including its start",
            )
        elif row["steps"] < MIN_STEPS:
            yield slug, f"rep {row['rep']}: {row['steps']} measured steps; at least {MIN_STEPS} are needed"


def _code(rows: Sequence[Row], expected: Mapping[str, str]) -> Verdicts:
    """All cells were measured by the same code: the same version of each file."""
    versions: dict[object, set[str]] = defaultdict(set)
    for row in _ok(rows):
        kind = (row["kind"], *filter(looks_like_a_file, row.get("command") or ()))  # for rows of earlier versions
        for name, digest in (row.get("sources") or {kind: row["code"]}).items():
            versions[name].add(str(digest))
    for name, digests in versions.items():
        if len(digests) > 1:
            what = f"{name[0]} was measured by" if isinstance(name, tuple) else f"{name}: measured with"
            yield None, f"{what} {len(digests)} versions of the code ({_list(sorted(digests))})"


def _payload(rows: Sequence[Row], expected: Mapping[str, str]) -> Verdicts:
    """gloo was not run with scaled messages under the name of a full-size workload: its segments do not scale."""
    for slug, group in _cells(_ok(rows)):
        row = group[0]
        if row["collective"] == "gloo" and (row["payload_scale"] or 1) < 1 and row["testbed"] in _REAL:
            what = f"gloo with payload_scale {row['payload_scale']:g} does not represent {row['workload']}"
            yield slug, f"{what}; publish it under its message size, or use the direct collective"


def _network(rows: Sequence[Row], expected: Mapping[str, str]) -> Verdicts:
    """Congestion control was pinned, and every cell has a one-worker cell to compare with."""
    for slug, group in _cells(_ok(rows)):
        if group[0]["workers"] == 1:
            continue
        if group[0]["tcp"] is None and group[0]["testbed"] in _REAL:
            yield slug, "TCP congestion control was not pinned; set network.tcp.congestion"
        if all(row["scalability"] is None for row in group):
            yield slug, "no step time of its one-worker cell to compare with"


def _timeline(rows: Sequence[Row], expected: Mapping[str, str]) -> Verdicts:
    """All cells have the same timeline, and every change happened on time."""
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


def _processor(rows: Sequence[Row], expected: Mapping[str, str]) -> Verdicts:
    """With emulated compute, the host adds little to a step beyond compute and stall."""
    for slug, group in _cells(_ok(rows)):
        for row in group:
            emulated = (row["law_inputs"] or {}).get("step_time_s")
            if not emulated or row["overhead_s"] is None or row["algorithm"] == BASELINE:
                continue
            share = 100 * row["overhead_s"] / row["step_time_s"]
            if share > MAX_OVERHEAD_PCT:
                limit = f"the limit is {MAX_OVERHEAD_PCT:g} %"
                yield slug, f"rep {row['rep']}: {share:.1f} % of a step is overhead of the host; {limit}"


def _accuracy(rows: Sequence[Row], expected: Mapping[str, str]) -> Verdicts:
    """Accuracy is close to that of ssgd after as many steps of the same workload, so that speeds can be compared."""
    references: dict[Any, list[Row]] = defaultdict(list)
    for row in _ok(rows):
        if row["kind"] == "ssgd":
            references[_task(row)].append(row)
    for slug, group in _cells(row for row in _ok(rows) if _trains(row) and row["workers"] > 1):
        reference = references.get(_task(group[0]), [])
        if not reference:
            yield (
                slug,
                f"no ssgd on as many workers trains {group[0]['workload']}, so there is no accuracy to compare with",
            )
            continue
        mine, theirs = ({row["steps_total"] for row in one if row.get("steps_total")} for one in (group, reference))
        if mine and theirs and mine != theirs:
            yield (
                slug,
                f"accuracy is known after {_list(sorted(mine))} steps, that of ssgd after {_list(sorted(theirs))}",
            )
            continue
        yield from ((slug, text) for text in _outside(group, reference))


def _outside(group: Sequence[Row], reference: Sequence[Row]) -> Iterator[str]:
    """Yield a text if the accuracy, or else the loss, is too far from that of the reference."""
    mine, theirs = _mean(group, "accuracy"), _mean(reference, "accuracy")
    if mine is not None and theirs is not None:
        if not mine >= theirs - ACCURACY_BAND:
            yield f"accuracy {mine:.3f}; the limit is {ACCURACY_BAND:g} below that of ssgd ({theirs:.3f})"
        return
    mine, theirs = _mean(group, "final_loss"), _mean(reference, "final_loss")
    if mine is not None and theirs is not None and not mine <= theirs * LOSS_BAND:
        yield f"final loss {mine:.3f}; the limit is {LOSS_BAND:g} times that of ssgd ({theirs:.3f})"


RULES: Mapping[str, Callable[[Sequence[Row], Mapping[str, str]], Verdicts]] = {
    "complete": _complete,
    "consistent": _consistent,
    "fidelity": _fidelity,
    "reps": _reps,
    "hosts": _hosts,
    "window": _window,
    "code": _code,
    "payload": _payload,
    "network": _network,
    "timeline": _timeline,
    "processor": _processor,
    "accuracy": _accuracy,
}


def meaning(rule: str) -> str:
    """The requirement of a rule, as a sentence."""
    return (RULES[rule].__doc__ or "").strip()


def not_applicable(rule: str, rows: Iterable[Row]) -> str | None:
    """Why a rule does not apply to any row, None if it does."""
    valid = _ok(rows)
    if rule in _EMULATED_ONLY and valid and not any(row["testbed"] in _REAL for row in valid):
        return "simulated"
    if rule == "hosts" and valid and len(hosts_of(valid).names) == 1:
        return "measured on one host"
    if rule == "accuracy" and valid and not any(_trains(row) for row in valid):
        return "no model is trained; publish speeds only"
    return None


def unmeasured(rows: Iterable[Row]) -> list[str]:
    """Workloads that do not train a model, so only their speeds can be published."""
    rows = [row for row in _ok(rows) if row["workers"] > 1]
    return sorted({row["workload"] for row in rows} - {row["workload"] for row in rows if _trains(row)})


def _ok(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["status"] == "ok"]


def _cells(rows: Iterable[Row]) -> Iterator[tuple[str, list[Row]]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["cell"], []).append(row)
    yield from groups.items()


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
