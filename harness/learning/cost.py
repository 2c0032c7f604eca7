"""What trajectories cost: the time of a gradient and of an evaluation, measured on this host for a moment."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wanbench.harness.learning.campaign import Rates, spec_of, timed, trials, tuning
from wanbench.harness.learning.design import Design
from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.process.apart import call
from wanbench.harness.run.host import check_host
from wanbench.harness.run.progress import clock
from wanbench.harness.show.grid import aligned

_LEAST_S, _LEAST = 0.3, 5
_SIMULATED_S = 3e-4  # of the processor for a worker's step on the simulated clock, without its gradient


@dataclass(frozen=True)
class Price:
    """Processor seconds of one worker's gradient, and of one evaluation."""

    gradient_s: float
    evaluation_s: float

    def of(self, cell: TrainingCell) -> float:
        """Processor seconds of a trajectory. Synchronising and compressing small vectors is left out."""
        every = cell.train.eval_every
        evaluations = 1 + (-(-cell.steps // every) if every else 0)  # the first before any step
        return cell.workers * cell.steps * (self.gradient_s + _SIMULATED_S) + evaluations * self.evaluation_s


def measured(cell: TrainingCell, least_s: float = _LEAST_S) -> Price:
    """Measure with the data and the model of a cell, on one thread as in a run. Takes a second.

    Args:
        least_s: seconds of gradients, and of evaluations. On a busy host, six results of 0.3 s were up to 49 %
            apart, and six of 1.5 s up to 7 %.

    Raises:
        SpecError: the data set does not exist, or not in its format. HostError: this host cannot run the cell.
    """
    check_host([cell])
    workload = cell.task.plain() | {"step_time": "real"}
    workload.pop("step_cv", None)
    arguments = workload, cell.workers, cell.seed, cell.comm.buckets.bytes, cell.train.plain(), least_s
    model = cell.task.model
    return _price(*arguments) if model is None else call(repr(model), _price, *arguments)


def _price(
    workload: Mapping[str, object],
    workers: int,
    seed: int,
    bucket_bytes: int,
    train: Mapping[str, object],
    least_s: float,
) -> Price:
    import torch

    from wanbench.workloads.comm.clock import MonotonicClock
    from wanbench.workloads.registry import make_task

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        task = make_task(workload, 0, workers, seed, MonotonicClock(), bucket_bytes, train)
        model = task.snapshot(task.w)
        assert model is not None  # designs train
        return Price(_seconds(lambda: task.gradient(0), least_s), 2 * _seconds(lambda: task.accuracy(model), least_s))
    finally:
        torch.set_num_threads(threads)


def _seconds(call: Callable[[], object], least_s: float) -> float:
    """The least mean processor time of `_LEAST` calls, without the first; other programs make them longer."""
    call()
    means_s, began = list[float](), time.thread_time()
    while not means_s or time.thread_time() - began < least_s:
        begun = time.thread_time()
        for _ in range(_LEAST):
            call()
        means_s.append((time.thread_time() - begun) / _LEAST)
    return min(means_s)


def cost_text(design: Design) -> str:
    """What a design trains: settings, conditions, trajectories and processor time, measured for a moment."""
    counted: list[tuple[str, int, int, float]] = []
    spec = spec_of(design)
    price = measured(next(tuning(design, design.base)).cell)
    for condition in (design.base, *design.conditions):
        tuned = [trial.cell for trial in tuning(design, condition)] if condition.lr else []
        settings = condition.settings or [*design.settings]
        # The rates are not known before tuning, and do not change the cost.
        rates = {setting: [Rates(design.tune.lr[0])] for setting in settings}
        final = [trial.cell for trial in trials(spec, design, condition, rates)]
        seconds = sum(map(price.of, tuned)) + design.seeds * sum(map(price.of, final))
        counted.append((condition.name, len(tuned), design.seeds * len(final), seconds))
    times = timed(design)
    if times:
        counted.append(("step times", 0, len(times), sum(map(price.of, times))))
    body = [[name, str(tuned), str(final), clock(seconds)] for name, tuned, final, seconds in counted]
    total = sum(seconds for *_, seconds in counted)
    trajectories = sum(tuned + final for _, tuned, final, _ in counted)
    rates_text = ", ".join(f"{lr:g}" for lr in design.tune.lr)
    outer = f"; outer {', '.join(f'{lr:g}' for lr in design.tune.outer_lr)}" if design.tune.outer_lr else ""
    return (
        f"{design.name}: {len(design.settings)} settings: {', '.join(design.settings)}\n"
        f"learning rates {rates_text}{outer}; tuned with seed {design.tune.seed}, "
        f"{design.seeds} seed{'s' * (design.seeds > 1)} from {design.seed} on\n"
        f"{aligned(['condition', 'tuning', 'trajectories', 'processor time'], body)}"
        f"{trajectories} trajectories, about {clock(total)} on one core: {1e3 * price.gradient_s:.2f} ms a gradient, "
        f"{1e3 * price.evaluation_s:.0f} ms an evaluation, measured now; more if a learning rate fails with a seed"
    )
