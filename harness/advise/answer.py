"""The answer: plain data for machines, and a dozen lines for people."""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wanbench.harness.advise.compression import unpriced_s
from wanbench.harness.advise.evidence import Source, Tier
from wanbench.harness.advise.flips import Flip, flips
from wanbench.harness.advise.own_evidence import FILE, Proposal, proposal
from wanbench.harness.advise.ranking import TIE, Measured, advisable, ranked, without_risk
from wanbench.harness.advise.search import Found
from wanbench.harness.advise.uplinks import Uplinks, shared
from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.plan.law import predict
from wanbench.harness.plan.load import worker_bytes
from wanbench.harness.run.progress import clock
from wanbench.harness.text import size

_DAY_S = 86_400
_BINDS = {
    "compute": "compute: messages are hidden behind it",
    "latency": "the round trip",
    "bandwidth": "the rate",
    "channels": "gloo, which has two operations on the way for each channel",
}
_HEAD = 12


@dataclass(frozen=True)
class Answer:
    """What `advise` found.

    Attributes:
        no_risk: the fastest setting with the mathematics of `ssgd`. advised: the fastest with enough accuracy; the same
            setting if no other is known to be accurate enough. runner_up: the next setting.
        proposal: a design that measures the fastest settings with this model, if it has no evidence of its own.
        compression_s: what the advised setting's compression takes on this host in a step, if nothing was charged.
        faster: a faster setting whose recorded accuracy is too low. unknown: the fastest setting of which no accuracy
            is recorded.
    """

    found: Found
    no_risk: Measured
    advised: Measured
    runner_up: Measured | None
    faster: Measured | None
    unknown: Measured | None
    flips: list[Flip] | None = None
    proposal: Proposal | None = None
    compression_s: float | None = None
    uplinks: Uplinks | None = None


def answer(found: Found, minutes: float) -> Answer:
    """Choose from what was measured.

    Args:
        minutes: the budget of a design that would measure more, if the accuracy of this model is not known.
    """
    best = found.advisable
    advised = best[0]
    others = [each for each in best if each.candidate.cell.label != advised.candidate.cell.label]
    ineligible = [each for each in found.simulated if each.candidate.evidence.tier is Tier.EVIDENCE
                  and not each.candidate.eligible]  # fmt: skip
    unknown = [each for each in found.simulated if each.candidate.evidence.tier is Tier.UNKNOWN]
    here = _simulated(found, advised)
    measured_itself = any(not each.proxy for one in found.simulated for each in one.candidate.evidence.sources)
    faster_s = here.step_time_s * (1 - TIE)
    return Answer(
        found,
        without_risk(found.simulated)[0],
        advised,
        others[0] if others else None,
        next((each for each in ranked(ineligible) if each.step_time_s < faster_s), None),
        next((each for each in ranked(unknown) if each.step_time_s < faster_s), None),
        flips(found.question, here, advisable(found.simulated)),
        None if measured_itself else proposal(found.question, found.simulated, minutes),
        unpriced_s(advised.candidate.cell),
        shared(found.question, advisable(found.simulated)),
    )


def _simulated(found: Found, advised: Measured) -> Measured:
    """The simulated measurement of a setting."""
    key = advised.candidate.cell.key
    return next(each for each in found.simulated if each.candidate.cell.key == key)


def to_json(found: Answer) -> dict[str, Any]:
    """Everything that the text says, with numbers in seconds and bytes."""
    of = found.found
    question = of.question
    return {
        "network": question.network_name,
        "workload": question.reference.workload.to_json(),
        "workers": question.workers,
        "placement": list(question.reference.placement),
        "step_times_s": list(question.reference.each_step_time_s),
        "step_time_measured_here": question.step_time_measured,
        "limits": {**asdict(question.limits), "excluded": sorted(question.limits.excluded)},
        "binds": predict(of.baseline.candidate.cell.law_inputs).bound,
        "baseline": _plain(of.baseline, of),
        "no_risk": _plain(found.no_risk, of),
        "advised": _plain(found.advised, of),
        "runner_up": _plain(found.runner_up, of),
        "faster_but_less_accurate": _plain(found.faster, of),
        "faster_but_unknown": _plain(found.unknown, of),
        "flips": None if found.flips is None else [asdict(each) for each in found.flips],
        "uplinks": None if found.uplinks is None else asdict(found.uplinks),
        "compression_s_on_this_host": found.compression_s,
        "emulated": [_plain(each, of) for each in of.emulated.measured],
        "emulation": {key: getattr(of.emulated, key) for key in ("scale", "testbed", "emulator", "why_not")},
        "recordings_without_learning": list(of.without_learning),
        "recordings_trained_otherwise": list(of.others),
        "considered": len(of.candidates),
        "simulated": len(of.simulated),
    }


def _plain(one: Measured | None, found: Found) -> dict[str, Any] | None:
    if one is None:
        return None
    cell, evidence = one.candidate.cell, one.candidate.evidence
    return {
        "algorithm": cell.label,
        "kind": cell.kind,
        "params": dict(cell.params),
        "collective": cell.collective,
        "step_time_s": one.step_time_s,
        "simulated_step_time_s": next(
            (each.step_time_s for each in found.simulated if each.candidate.cell.key == cell.key), None
        ),
        "law_step_time_s": cell.predicted_step_time_s,
        "speedup": speedup(one, found) if one.candidate.eligible else None,
        "tier": str(evidence.tier),
        "sources": [_source(each) for each in evidence.sources],
        "message_bytes_per_worker_and_day": _bytes_a_day(one),
        "worker_bytes": worker_bytes(cell),
    }


def _source(source: Source) -> dict[str, Any]:
    plain = asdict(source)
    difference = plain.pop("difference")
    plain |= {"difference": difference["mean"]}
    plain |= {f"difference_{end}": _finite(difference[end]) for end in ("low", "high")}
    return plain


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def speedup(one: Measured, found: Found) -> float:
    """Simulated time of `ssgd` on gloo over the time to the target of a setting."""
    return found.baseline.step_time_s / one.to_target_s


def text(found: Answer, files: Sequence[str], width: int = 110) -> str:
    """The answer as lines of a title and text."""
    lines = []
    for head, body in _lines(found, files):
        filled = textwrap.wrap(body, max(40, width - _HEAD), break_on_hyphens=False)
        lines += [f"{head if i == 0 else '':{_HEAD}}{line}" for i, line in enumerate(filled)]
    return "\n".join(lines)


def _lines(found: Answer, files: Sequence[str]) -> Iterator[tuple[str, str]]:
    of = found.found
    question, workload = of.question, of.question.reference.workload
    assert workload.step_time_s is not None
    measured = ", measured on this host" if question.step_time_measured else ""
    yield (
        "question",
        (
            f"{question.network_name}, {_placed(question.reference.placement)}; {workload.name}: "
            f"{size(workload.message_bytes)} a gradient, {_compute(question.reference)} a step of compute{measured}"
        ),
    )
    bound = predict(of.baseline.candidate.cell.law_inputs).bound
    yield (
        "binds",
        (
            f"{_BINDS[bound]}; DDP on gloo takes {_seconds(of.baseline.step_time_s)} a step (simulated), "
            f"{of.baseline.step_time_s / workload.step_time_s:.1f} times {_whose(question.reference)} compute"
        ),
    )
    yield "no risk", f"{_setting(found.no_risk, of)}: the mathematics of ssgd, so the same accuracy"
    if found.advised.candidate.cell.label == found.no_risk.candidate.cell.label:
        yield "advised", "the same: no other setting is known to be faster to this accuracy"
    else:
        yield "advised", f"{_setting(found.advised, of)}, to {_target(question.limits)}"
        for source in found.advised.candidate.evidence.sources:
            yield "evidence", _evidence(source)
    if found.compression_s is not None:
        took = f"on this host's processor it takes about {_seconds(found.compression_s)} a step"
        yield "assumed", f"compression takes no time, as on a GPU; {took}; ns_per_byte in a spec charges it"
    for each in of.without_learning:
        yield "no evidence", f"{each}, so it shows nothing of the others; check model, data and learning rates"
    for each in of.others:
        yield "no evidence", f"{each}; a recording counts for this model only as it was trained"
    if found.runner_up is not None:
        yield "runner-up", _setting(found.runner_up, of)
    if found.faster is not None:
        lost = min(found.faster.candidate.evidence.sources, key=lambda source: source.difference.mean)
        what = f"{found.faster.name}: {_seconds(found.faster.step_time_s)} a step"
        yield "too costly", f"{what}, but {_points(lost)} on {lost.workload}"
    if found.unknown is not None:
        what = f"{found.unknown.name}: {_seconds(found.unknown.step_time_s)} a step"
        yield "unknown", f"{what}; its accuracy is not known"
    yield "emulated", _emulated(found)
    yield "flips", _flips(found.flips)
    if found.uplinks is not None:
        yield "uplinks", _uplinks(found.uplinks)
    if found.proposal is not None:
        yield "learn", _learn(found.proposal, next(each for each in files if each.endswith(FILE)))
    costs = f"{_a_day(found.advised)} of messages a day from each worker, without what the collective adds, and "
    costs += f"{size(worker_bytes(found.advised.candidate.cell))} of its memory"
    if found.runner_up is not None:
        costs += f"; runner-up: {_a_day(found.runner_up)}, {size(worker_bytes(found.runner_up.candidate.cell))}"
    yield "costs", costs
    yield "files", ", ".join(files)


def _compute(cell: TrainingCell) -> str:
    """The step time of the workers, or the range of them."""
    times_s = cell.each_step_time_s
    return f"{_seconds(min(times_s))} to {_seconds(max(times_s))}" if cell.step_times else _seconds(times_s[0])


def _whose(cell: TrainingCell) -> str:
    return "the slowest worker's" if cell.step_times else "its"


def _a_day(one: Measured) -> str:
    sent = _bytes_a_day(one)
    return "an unknown number of bytes" if sent is None else size(sent)


def _bytes_a_day(one: Measured) -> float | None:
    return None if one.bytes_per_step is None else one.bytes_per_step / one.step_time_s * _DAY_S


def _placed(placement: tuple[str, ...]) -> str:
    sites = {site: placement.count(site) for site in placement}
    if len(sites) == len(placement):
        return f"{len(placement)} workers"
    return f"{len(placement)} workers in {len(sites)} sites"


def _target(limits: Any) -> str:
    if limits.target_loss is not None:
        return f"a loss of {limits.target_loss:g}"
    return f"within {100 * limits.accuracy_drop:g} point{'s' * (limits.accuracy_drop != 0.01)} of its accuracy"


def _setting(one: Measured, found: Found) -> str:
    how = "emulated" if any(each is one for each in found.emulated.measured) else "simulated"
    more = one.candidate.evidence.more_steps
    steps = ""
    if more is not None and abs(more - 1) > 0.005:
        steps = f" and {more:.2f}{_interval(one)} times the steps"
    took = f"{one.name}: {_seconds(one.step_time_s)} a step ({how}){steps}"
    return f"{took}, {speedup(one, found):.1f} times as fast as DDP on gloo"


def _interval(one: Measured) -> str:
    """The 95 % interval of the number of steps, if there is one source, and if all of its seeds got there."""
    (source, *others) = one.candidate.evidence.sources
    return "" if others or source.low is None or source.high is None else f" ({source.low:.2f} to {source.high:.2f})"


def _evidence(source: Source) -> str:
    what = f"recorded with {'a proxy, not your model' if source.proxy else 'this model'}"
    trained = f"{source.workload}, {source.workers} workers, {source.optimizer}, {source.seeds} seeds"
    return f"{what}: {trained}: {_points(source)}"


def _points(source: Source) -> str:
    low, high = source.difference.low, source.difference.high
    interval = f" ({100 * low:+.1f} to {100 * high:+.1f})" if math.isfinite(low) else ""
    return f"{100 * source.difference.mean:+.1f} points of accuracy{interval}"


def _emulated(found: Answer) -> str:
    emulated = found.found.emulated
    if emulated.why_not:
        return f"no: {emulated.why_not}"
    if not emulated.measured:
        return "no (--no-emulate); step times are simulated"
    compared = []
    own = emulated.ssgd is not None and all(each.name != emulated.ssgd.name for each in emulated.measured)
    for each in [*emulated.measured, *([emulated.ssgd] if emulated.ssgd is not None and own else [])]:
        off = each.step_time_s / _simulated(found.found, each).step_time_s - 1
        compared.append(f"{each.name} {_seconds(each.step_time_s)} ({off:+.0%} of simulated)")
    scale = "at full size"
    if emulated.scale != 1:
        scale = f"with messages and rates x {emulated.scale:g}, at which TCP's first window is too large"
    return f"{', '.join(compared)}; {emulated.testbed} and {emulated.emulator}, {scale}"


def _uplinks(found: Uplinks) -> str:
    case = f"not in the profile for {', '.join(found.sites)}: above, their paths share no link"
    if found.best is None or found.step_time_s is None:
        return f"{case}; add up_mbps if they do"
    shared_s = f"{found.best}: {_seconds(found.step_time_s)} a step (by the law)"
    return f"{case}; if they share one as fast as the fastest, {shared_s}"


def _learn(found: Proposal, file: str) -> str:
    settings = f"{len(found.design.settings) - 1} settings and ssgd with this model"
    out = Path(file).parent.parent  # where `advise` looks for its recording
    elsewhere = "" if out == Path("results") else f" --out {shlex.quote(str(out))}"
    took = f"about {clock(60 * found.minutes)} here"
    return f"wanbench learn {shlex.quote(file)}{elsewhere}: {settings}, {took}; then ask again"


def _flips(found: list[Flip] | None) -> str:
    if found is None:
        return "not known: the step-time law does not describe the advised setting"
    if not found:
        return "nothing within half and twice the round trip, the rate and the step time, by the law"
    parts = [f"{each.axis} x {each.factor:g}: {each.name} ({each.gain:.0%} less time)" for each in found]
    return f"{'; '.join(parts)} (by the law)"


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"
