"""The answer: plain data for machines, a dozen lines for people, and the files that are written beside it."""

import json
import math
import shlex
import statistics
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wanbench.harness.advise.evidence import Source, Tier
from wanbench.harness.advise.hosts import Hosts
from wanbench.harness.advise.own_evidence import FILE, Proposal, proposal
from wanbench.harness.advise.question import Limits
from wanbench.harness.advise.ranking import TIE, Measured, advisable, equals, ranked, without_risk
from wanbench.harness.advise.recipe import Recipe, recipe
from wanbench.harness.advise.reproduce import emulation_spec, training, trial
from wanbench.harness.advise.search import SearchResult
from wanbench.harness.advise.sensitivity import Shift, Uplinks, sensitivity, shared
from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.plan.law import predict
from wanbench.harness.run.progress import clock
from wanbench.harness.show.tables import objects_as_csv
from wanbench.harness.text import listed, rate, size
from wanbench.netprofiles.toml_text import document

_DAY_S = 86_400
_BINDS = {
    "compute": "compute: messages are hidden behind it",
    "latency": "the round trip",
    "bandwidth": "the rate",
    "channels": "gloo, which has two operations on the way for each channel",
}
_HEAD = 12
_REPEATS = 3
_SIDE, _TIMINGS = 1024, 3
ADVICE, CANDIDATES = "advice.json", "candidates.csv"
SPEC, SNIPPET, TRIAL = "advised.toml", "train.py", "trial.py"


@dataclass(frozen=True)
class Answer:
    """What `advise` found.

    Attributes:
        no_risk: the fastest setting with the mathematics of `ssgd`. advised: the fastest with enough accuracy; the same
            setting if no other is known to be accurate enough. equals: other settings that take as long, best first.
            runner_up: the next setting.
        recipe: how to train with the advised setting. learned: what was measured with this model, of each setting.
        proposal: a design that measures the fastest settings with this model, if it has no evidence of its own.
        compression_s: what the advised setting's compression takes on this host in a step, if nothing was charged.
        faster: a faster setting whose recorded accuracy is too low. unknown: the fastest setting of which no accuracy
            is recorded.
    """

    result: SearchResult
    no_risk: Measured
    advised: Measured
    equals: Sequence[Measured]
    runner_up: Measured | None
    recipe: Recipe
    learned: Sequence[Source]
    faster: Measured | None
    unknown: Measured | None
    sensitivity: list[Shift] | None = None
    proposal: Proposal | None = None
    compression_s: float | None = None
    uplinks: Uplinks | None = None


def answer(result: SearchResult, minutes: float) -> Answer:
    """Choose from what was measured.

    Args:
        minutes: the budget of a design that would measure more, if the accuracy of this model is not known.
    """
    best, learned = result.advisable, result.library.measured()
    advised = best[0]
    alternatives = [measured for measured in best if measured.candidate.cell.label != advised.candidate.cell.label]
    ineligible = [measured for measured in result.simulated if measured.candidate.evidence.tier is Tier.EVIDENCE
                  and not measured.candidate.eligible]  # fmt: skip
    unknown = [measured for measured in result.simulated if measured.candidate.evidence.tier is Tier.UNKNOWN]
    here = _simulated(result, advised)
    faster_s = here.step_time_s * (1 - TIE)
    return Answer(
        result,
        without_risk(result.simulated)[0],
        advised,
        [measured for measured in equals(best) if measured in alternatives],
        alternatives[0] if alternatives else None,
        recipe(advised, learned),
        learned,
        next((measured for measured in ranked(ineligible) if measured.step_time_s < faster_s), None),
        next((measured for measured in ranked(unknown) if measured.step_time_s < faster_s), None),
        sensitivity(result.question, here, advisable(result.simulated)),
        None if learned else proposal(result.question, result.simulated, minutes),
        unpriced_s(advised.candidate.cell),
        shared(result.question, advisable(result.simulated)),
    )


def _simulated(result: SearchResult, advised: Measured) -> Measured:
    key = advised.candidate.cell.key
    return next(measured for measured in result.simulated if measured.candidate.cell.key == key)


def unpriced_s(cell: TrainingCell) -> float | None:
    """Seconds a step that a setting's compression takes on this host; None if it has none, or if its time is known."""
    compressor = cell.algorithm().compressor
    if compressor is None or compressor.ns_per_byte:
        return None
    return sum(ns_per_byte(compressor)) / 1e9 * cell.workload.message_bytes / cell.algorithm().period_steps


def ns_per_byte(compression: Any, side: int = _SIDE, repeats: int = _TIMINGS) -> tuple[float, float]:
    """The median nanoseconds a byte to compress a matrix of random numbers, and to restore it, on one thread.

    Args:
        compression: as in a spec. side: rows and columns of the matrix.
    """
    import torch

    from wanbench.workloads.comm.local import run_replicas
    from wanbench.workloads.compression import registry
    from wanbench.workloads.compression.averaging import Averager

    v = torch.randn(side * side)
    compressor = registry.create(compression)
    assert compressor is not None

    def body(comm: Any) -> list[tuple[float, float]]:
        averager, times_s = Averager(compressor, comm, v, shapes=((side, side),)), []
        for _ in range(repeats + 1):  # the first is not counted
            began = time.perf_counter()
            exchange = averager.begin(v)
            begun = time.perf_counter()
            exchange.wait()
            times_s.append((begun - began, time.perf_counter() - begun))
            averager.done(exchange)
        return times_s[1:]

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        (times,) = run_replicas(1, body)
    finally:
        torch.set_num_threads(threads)
    nbytes = v.numel() * v.element_size()
    compress, restore = (1e9 * statistics.median(column) / nbytes for column in zip(*times, strict=True))
    return compress, restore


def write(answer: Answer, folder: Path) -> list[Path]:
    """Write the files into the run's folder. Return their paths."""
    result, cell = answer.result, answer.advised.candidate.cell
    compared = [answer.advised, *([answer.runner_up] if answer.runner_up else []), answer.no_risk, result.baseline]
    texts = {
        CANDIDATES: _candidates(answer),
        SPEC: emulation_spec(result.question, [measured.candidate.cell for measured in compared], _REPEATS),
        SNIPPET: training(result.question, cell, answer.recipe, str(folder / SNIPPET)),
        TRIAL: trial(cell, answer.advised.reported_s),
        ADVICE: json.dumps(to_json(answer), indent=1, allow_nan=False) + "\n",
    }
    if answer.proposal is not None:
        texts[FILE] = document(answer.proposal.design.plain())
    return write_texts(texts, folder)


def write_texts(texts: Mapping[str, str], folder: Path) -> list[Path]:
    """Write files by name into a run's folder. Return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in texts.items():
        (folder / name).write_text(content, encoding="utf-8")
    return [folder / name for name in texts]


def _candidates(answer: Answer) -> str:
    """A line for each setting and collective: its times, its tier, and why it was not considered further."""
    result = answer.result
    simulated = {measured.candidate.cell.key: measured.step_time_s for measured in result.simulated}
    slower = "slower by the law or by its bytes than those that were simulated"
    lines = [
        {
            "setting": candidate.cell.label,
            "collective": candidate.cell.collective,
            "law_s": candidate.law_s,
            "simulated_s": simulated.get(candidate.cell.key),
            "tier": str(candidate.evidence.tier),
            "more_steps": candidate.evidence.more_steps,
            "left_out": "" if candidate.cell.key in simulated else slower,
        }
        for candidate in result.candidates
    ]
    lines += [
        {**dict.fromkeys(lines[0]), "setting": out.label, "collective": out.collective, "left_out": out.reason}
        for out in result.left_out
    ]
    return objects_as_csv(lines)


def to_json(answer: Answer) -> dict[str, Any]:
    """Everything that the text says, with numbers in seconds and bytes."""
    result = answer.result
    question, cell = result.question, answer.advised.candidate.cell
    return {
        "network": question.network_name,
        "workload": question.reference.workload.to_json(),
        "workers": question.workers,
        "placement": list(question.reference.placement),
        "step_times_s": list(question.reference.each_step_time_s),
        "step_time_measured_here": question.step_time_measured,
        "limits": {**asdict(question.limits), "excluded": sorted(question.limits.excluded)},
        "binds": predict(result.baseline.candidate.cell.law_inputs).bound,
        "baseline": _plain(result.baseline, result),
        "no_risk": _plain(answer.no_risk, result),
        "advised": _plain(answer.advised, result),
        "equals": [measured.name for measured in answer.equals],
        "train": asdict(answer.recipe),
        "tcp": {"congestion": cell.tcp.congestion, "hosts": cell.tcp.host},
        "measured_on_this_model": [_source(source) for source in answer.learned],
        "runner_up": _plain(answer.runner_up, result),
        "faster_but_less_accurate": _plain(answer.faster, result),
        "faster_but_unknown": _plain(answer.unknown, result),
        "hosts": _hosts_plain(answer),
        "sensitivity": None if answer.sensitivity is None else [asdict(shift) for shift in answer.sensitivity],
        "uplinks": None if answer.uplinks is None else asdict(answer.uplinks),
        "compression_s_on_this_host": answer.compression_s,
        "emulated": [_plain(measured, result) for measured in result.emulated.measured],
        "emulation": {key: getattr(result.emulated, key) for key in ("scale", "testbed", "emulator", "why_not")},
        "recordings_without_learning": result.library.without_learning,
        "recordings_trained_otherwise": list(result.library.trained_otherwise),
        "considered": len(result.candidates),
        "simulated": len(result.simulated),
    }


def _hosts_plain(answer: Answer) -> dict[str, Any] | None:
    hosts = answer.result.hosts
    if hosts is None:
        return None
    compared = {"baseline": answer.result.baseline, "no_risk": answer.no_risk, "advised": answer.advised}
    keys = {name: measured.candidate.cell.key for name, measured in compared.items()}
    return {
        "preset": hosts.asked,
        "limits": {"preset": hosts.kernel, **asdict(hosts.path), "buffer_bytes": hosts.path.buffer_bytes},
        "other_preset": hosts.other,
        "step_time_s": {name: hosts.step_s.get(key) for name, key in keys.items()},
        "connections": hosts.connections,
        "step_time_s_on_connections": {name: hosts.shared_s.get(key) for name, key in keys.items()},
    }


def _plain(measured: Measured | None, result: SearchResult) -> dict[str, Any] | None:
    if measured is None:
        return None
    cell, evidence = measured.candidate.cell, measured.candidate.evidence
    return {
        "algorithm": cell.label,
        "kind": cell.kind,
        "params": dict(cell.params),
        "collective": cell.collective,
        "step_time_s": measured.reported_s,
        "simulated_step_time_s": _simulated(result, measured).step_time_s,
        "law_step_time_s": cell.predicted_step_time_s,
        "speedup": speedup(measured, result) if measured.candidate.eligible else None,
        "tier": str(evidence.tier),
        "sources": [_source(source) for source in evidence.sources],
        "message_bytes_per_worker_and_day": _bytes_a_day(measured),
        "worker_bytes": cell.worker_bytes,
    }


def _source(source: Source) -> dict[str, Any]:
    plain = asdict(source)
    difference = plain.pop("difference")
    ends = {f"difference_{key}": difference[key] for key in ("low", "high")}
    finite = {key: end if math.isfinite(end) else None for key, end in ends.items()}
    return {**plain, "difference": difference["mean"], **finite}


def speedup(measured: Measured, result: SearchResult) -> float:
    """Simulated time of `ssgd` on gloo over the time to the target of a setting, by the step time that is reported."""
    return result.baseline.step_time_s / (measured.reported_s * (measured.candidate.evidence.more_steps or 1.0))


def text(answer: Answer, files: Sequence[str], width: int = 110) -> str:
    """The answer as lines of a title and text."""
    return "\n".join(line for head, body in _lines(answer, files) for line in filled(head, body, width))


def filled(head: str, body: str, width: int) -> list[str]:
    """A text in lines of this width, behind its title."""
    lines = textwrap.wrap(body, max(40, width - _HEAD), break_on_hyphens=False)
    return [f"{head if i == 0 else '':{_HEAD}}{line}" for i, line in enumerate(lines)]


def _lines(answer: Answer, files: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield from _asked(answer.result)
    if answer.result.hosts is not None:
        yield "window", _window(answer, answer.result.hosts)
    yield from _chosen(answer)
    if answer.runner_up is not None:
        yield "runner-up", _setting(answer.runner_up, answer.result)
    yield from _not_chosen(answer)
    yield "emulated", _emulated(answer)
    yield "sensitivity", _sensitivity(answer.sensitivity)
    if answer.uplinks is not None:
        yield "uplinks", _uplinks(answer.uplinks)
    if answer.proposal is not None:
        yield "learn", _learn(answer.proposal, next(path for path in files if path.endswith(FILE)))
    elif open_settings := [source for source in answer.learned if source.holds is None]:
        yield "learn", _further(open_settings)
    sent, held = _a_day(answer.advised), size(answer.advised.candidate.cell.worker_bytes)
    costs = f"{sent} of messages a day from each worker, without what the collective adds, and {held} of its memory"
    if answer.runner_up is not None:
        costs += f"; runner-up: {_a_day(answer.runner_up)}, {size(answer.runner_up.candidate.cell.worker_bytes)}"
    yield "costs", costs
    yield "files", ", ".join(files)


def _asked(result: SearchResult) -> Iterator[tuple[str, str]]:
    """The question, and what limits what people run today."""
    question, cell = result.question, result.question.reference
    assert cell.workload.step_time_s is not None
    measured = ", measured on this host" if question.step_time_measured else ""
    what = f"{cell.workload.name}: {size(cell.workload.message_bytes)} a gradient, {_compute(cell)} a step of compute"
    yield "question", f"{question.network_name}, {_placed(cell.placement)}; {what}{measured}"
    bound = predict(result.baseline.candidate.cell.law_inputs).bound
    ddp = f"DDP on gloo takes {_seconds(result.baseline.step_time_s)} a step (simulated)"
    times = result.baseline.step_time_s / cell.workload.step_time_s
    whose = "the slowest worker's" if cell.step_times else "its"
    yield "binds", f"{_BINDS[bound]}; {ddp}, {times:.1f} times {whose} compute"


def _window(answer: Answer, hosts: Hosts) -> str:
    """What buffers do to these step times, and the remedy."""
    path = hosts.path
    said = {hosts.kernel: f"Linux as installed ({hosts.kernel})", "tuned": "large buffers"}
    compared = {"DDP on gloo": answer.result.baseline, "the advised setting": answer.advised}
    elsewhere = [
        f"{name} {_seconds(hosts.step_s[key])}"
        for name, measured in compared.items()
        if (key := measured.candidate.cell.key) in hosts.step_s
    ]
    several = hosts.shared_s.get(answer.advised.candidate.cell.key)
    opened = f", or open {hosts.connections} connections to each peer (WAN_STREAMS of the group wan)"
    others = f"; with {said[hosts.other]}: {', '.join(elsewhere)} a step (simulated)" if elsewhere else ""
    return (
        f"one connection of {said[hosts.kernel]} carries {rate(path.carried_bps / 1e6)} of {rate(path.rate_bps / 1e6)} "
        f"from {path.src} to {path.dst} ({path.rtt_ms:.0f} ms). All other times are of hosts with {said[hosts.asked]}"
        f"{others}. Set the last numbers of the sysctls net.ipv4.tcp_rmem and net.ipv4.tcp_wmem to {path.buffer_bytes}"
        + ("" if several is None else f"{opened}: {_seconds(several)} for the advised setting")
        + " (how-to/tcp)"
    )


def _chosen(answer: Answer) -> Iterator[tuple[str, str]]:
    """What is advised, and what that rests on."""
    result, advised = answer.result, answer.advised
    yield "no risk", f"{_setting(answer.no_risk, result)}: the mathematics of ssgd, so the same accuracy"
    if advised.candidate.cell.label == answer.no_risk.candidate.cell.label:
        yield "advised", "the same: no other setting is known to be faster to this accuracy"
    else:
        yield "advised", f"{_setting(advised, result)}, to {_target(result.question.limits)}"
    if answer.equals:
        names = listed([measured.name for measured in answer.equals], most=3)
        yield (
            "equal",
            f"{names}: as fast, as far as is known; the advised one is the least stale, or sends the least",
        )
    yield "train", answer.recipe.words
    yield "one model", "wrapped.final() makes all workers equal: the mean of their parameters and buffers; save it once"
    for source in advised.candidate.evidence.sources:
        if source.proxy:
            trained = f"{source.setting} on {source.workload}, {source.workers} workers, {source.optimizer}"
            yield "proxy", f"{trained}, {source.seeds} seeds: {_points(source)} of accuracy: not your model"
    if answer.learned:
        least = min(source.seeds for source in answer.learned)
        yield "measured", f"on this model, {least} seeds: points of accuracy from ssgd after equal steps, 95 % interval"
    for source in answer.learned:
        yield "", f"{source.setting}: {_points(source)}: {_decided(source)}"
    if answer.compression_s is not None:
        took = f"on this host's processor it takes about {_seconds(answer.compression_s)} a step"
        yield "assumed", f"compression takes no time, as on a GPU; {took}; ns_per_byte in a spec charges it"
    for line in result.library.without_learning:
        yield "no evidence", f"{line}, so it shows nothing of the others; check model, data and learning rates"
    for line in result.library.trained_otherwise:
        yield "no evidence", f"{line}; a recording counts for this model only as it was trained"


def _not_chosen(answer: Answer) -> Iterator[tuple[str, str]]:
    """Faster settings, and why they are not advised."""
    if answer.faster is not None:
        worst = min(answer.faster.candidate.evidence.sources, key=lambda source: source.difference.mean)
        yield "too costly", f"{_step(answer.faster)}, but {_points(worst)} of accuracy on {worst.workload}"
    if answer.unknown is not None:
        undecided = answer.unknown.candidate.evidence.undecided
        yield "unknown", f"{_step(answer.unknown)}; its accuracy is not known{undecided}"


def _compute(cell: TrainingCell) -> str:
    """The step time of the workers, or the range of them."""
    times_s = cell.each_step_time_s
    return f"{_seconds(min(times_s))} to {_seconds(max(times_s))}" if cell.step_times else _seconds(times_s[0])


def _step(measured: Measured) -> str:
    return f"{measured.name}: {_seconds(measured.reported_s)} a step"


def _a_day(measured: Measured) -> str:
    sent = _bytes_a_day(measured)
    return "an unknown number of bytes" if sent is None else size(sent)


def _bytes_a_day(measured: Measured) -> float | None:
    return None if measured.bytes_per_step is None else measured.bytes_per_step / measured.reported_s * _DAY_S


def _placed(placement: tuple[str, ...]) -> str:
    sites = len(set(placement))
    return f"{len(placement)} workers" + (f" in {sites} sites" if sites < len(placement) else "")


def _target(limits: Limits) -> str:
    if limits.target_loss is not None:
        return f"a loss of {limits.target_loss:g}"
    return f"within {100 * limits.accuracy_drop:g} point{'s' * (limits.accuracy_drop != 0.01)} of its accuracy"


def _setting(measured: Measured, result: SearchResult) -> str:
    how = "emulated" if measured.emulated_s else "simulated"
    more = measured.candidate.evidence.more_steps
    longer = more is not None and abs(more - 1) > 0.005
    steps = f" and {more:.2f}{_interval(measured)} times the steps" if longer else ""
    return f"{_step(measured)} ({how}){steps}, {speedup(measured, result):.1f} times as fast as DDP on gloo"


def _interval(measured: Measured) -> str:
    """The 95 % interval of the number of steps, if there is one source, and if all of its seeds got there."""
    (source, *more_sources) = measured.candidate.evidence.sources
    return (
        "" if more_sources or source.low is None or source.high is None else f" ({source.low:.2f} to {source.high:.2f})"
    )


def _decided(source: Source) -> str:
    """Whether a recording decides if the accuracy is kept, and how many seeds would."""
    if source.holds is None:
        return f"undecided; {source.deciding_seeds or 'over 100'} seeds would decide it"
    return "accurate enough" if source.holds else "not accurate enough"


def _points(source: Source) -> str:
    low, high = source.difference.low, source.difference.high
    interval = f" ({100 * low:+.1f} to {100 * high:+.1f})" if math.isfinite(low) else ""
    return f"{100 * source.difference.mean:+.1f} points{interval}"


def _emulated(answer: Answer) -> str:
    emulated = answer.result.emulated
    if emulated.why_not:
        return f"no: {emulated.why_not}"
    if not emulated.measured:
        return "no (--emulate 0); step times are simulated"
    emulations = {measured.name: measured for measured in (*emulated.measured, emulated.ssgd) if measured is not None}
    simulated_s = {name: _simulated(answer.result, measured).step_time_s for name, measured in emulations.items()}
    compared = [
        f"{name} {_seconds(measured.step_time_s)} ({measured.step_time_s / simulated_s[name] - 1:+.0%} of simulated)"
        for name, measured in emulations.items()
    ]
    scaled = f"with messages and rates x {emulated.scale:g}, at which TCP's first window is too large"
    scale = "at full size" if emulated.scale == 1 else scaled
    return f"{', '.join(compared)}; {emulated.testbed} and {emulated.emulator}, {scale}"


def _uplinks(uplinks: Uplinks) -> str:
    case = f"not in the profile for {', '.join(uplinks.sites)}: above, their paths share no link"
    if uplinks.best is None or uplinks.step_time_s is None:
        return f"{case}; add up_mbps if they do"
    shared_s = f"{uplinks.best}: {_seconds(uplinks.step_time_s)} a step (by the law)"
    return f"{case}; if they share one as fast as the fastest, {shared_s}"


def _learn(proposal: Proposal, file: str) -> str:
    settings = f"{len(proposal.design.settings) - 1} settings and ssgd with this model"
    out = Path(file).parent.parent  # where `advise` looks for its recording
    elsewhere = "" if out == Path("results") else f" --out {shlex.quote(str(out))}"
    took = f"about {clock(60 * proposal.minutes)} here"
    return f"wanbench learn {shlex.quote(file)}{elsewhere}: {settings}, {took}; then ask again"


def _further(undecided: Sequence[Source]) -> str:
    """What to measure next, of settings that the seeds so far do not decide."""
    first = min(undecided, key=lambda source: source.deciding_seeds or math.inf)
    if first.deciding_seeds is None:
        return "over 100 seeds would decide each of them; a design with more steps may need fewer (how-to/learn)"
    return (
        f"seeds = {first.deciding_seeds} in the design would decide {first.setting}; `wanbench learn` then trains only "
        "the new seeds"
    )


def _sensitivity(shifts: list[Shift] | None) -> str:
    if shifts is None:
        return "not known: no formula for the step time describes the advised setting"
    if not shifts:
        return "the advice stays the same from half to twice the round trip, the rate and the step time (by formula)"
    parts = [f"with {shift.axis} x {shift.factor:g}: {shift.name} ({shift.gain:.0%} less time)" for shift in shifts]
    return f"what would change the advice (by formula): {'; '.join(parts)}"


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"
