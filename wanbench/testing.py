"""Oracles for a synchronisation algorithm: `check(Mine, period=4)`.

Replicas run in threads, in float64, on recorded random gradients, so that what synchronous SGD makes of the
very same gradients is known. This says nothing about speed, and nothing about how training behaves where
gradients depend on the parameters: stability and accuracy have to be measured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import torch

from wanbench.workloads.algorithms.base import Algorithm, AlgorithmError, Replica, Setting
from wanbench.workloads.comm.local import LocalComm, Lost, run_replicas
from wanbench.workloads.compute.optim import AdamWConfig, SGDConfig
from wanbench.workloads.compute.optim import make as make_optimizer

Gradient = Callable[[int, int, torch.Tensor], torch.Tensor]

TOLERANCE = 1e-9
"""Relative to the largest parameter: float64 rounding over some hundred steps stays far below."""


_SHAPES = ((2, 3),)


class CheckError(AssertionError):
    """An algorithm does not do what it claims. The message is one line."""


@dataclass(frozen=True)
class Trace:
    """What a simulated training run did.

    Attributes:
        w_at: parameters after each step, before any drain that follows it; shape (steps, world_size, numel).
        w, m: parameters and momentum buffers after the last drain; shape (world_size, numel).
        most_outstanding: communications issued and not waited for, at most, on any rank.
        left_outstanding: the same after a drain, at most.
    """

    w_at: torch.Tensor
    w: torch.Tensor
    m: torch.Tensor
    most_outstanding: int
    left_outstanding: int


def simulate(
    make: Callable[[], Algorithm],
    gradient: Gradient,
    config: SGDConfig | AdamWConfig,
    start: torch.Tensor,
    *,
    steps: int,
    world_size: int,
    drain_after: Collection[int] = (),
    restart_after: Collection[int] = (),
    shapes: tuple[tuple[int, ...], ...] = (),
    lost: Lost | None = None,
) -> Trace:
    """Train replicas in threads, without a network, as the engine would.

    Args:
        make: a new algorithm for each replica.
        gradient: (rank, step, w) -> the gradient, shape (numel,); it must not change `w`.
        config: the optimiser's settings.
        start: initial parameters, shape (numel,), of any floating dtype.
        steps: how many to take; a drain follows the last.
        world_size: number of replicas.
        drain_after: further steps, counted from 0, after which `finish` is called, as before an evaluation.
        restart_after: those after which, drained, a new algorithm takes over from a checkpoint of the old one.
        shapes: of the parameter tensors in `start`, for compressors that ask for them.
        lost: which blocks of datagrams do not arrive; by default all do.

    Raises:
        CommError: a replica waited for a message that never came.
    """

    training = _Training(make, gradient, config, start, steps, {*drain_after, steps - 1}, restart_after, shapes)
    traces = run_replicas(world_size, training.on, lost=lost)
    return Trace(
        w_at=torch.stack([trace.w_at for trace in traces], dim=1),
        w=torch.stack([trace.w for trace in traces]),
        m=torch.stack([trace.m for trace in traces]),
        most_outstanding=max(trace.most_outstanding for trace in traces),
        left_outstanding=max(trace.left_outstanding for trace in traces),
    )


@dataclass(frozen=True)
class _Training:
    """What every replica does; see `simulate`."""

    make: Callable[[], Algorithm]
    gradient: Gradient
    config: SGDConfig | AdamWConfig
    start: torch.Tensor
    steps: int
    drain_after: Collection[int]
    restart_after: Collection[int]
    shapes: tuple[tuple[int, ...], ...]

    def on(self, comm: LocalComm) -> Trace:
        """One replica's part."""
        w, g = self.start.clone(), torch.empty_like(self.start)
        optimizer = make_optimizer(self.config)
        replica = Replica(w=w, m=torch.zeros_like(w), optimizer=optimizer, comm=comm, shapes=self.shapes)
        algorithm = self.make()
        algorithm.start(replica)
        w_at, left = torch.empty(self.steps, w.numel(), dtype=w.dtype), 0
        for step in range(self.steps):
            replica.step = step
            replica.optimizer.advance(step)
            g.copy_(self.gradient(comm.rank, step, w))
            if algorithm.buckets:
                for view in reversed(g.tensor_split(2)):
                    algorithm.bucket(view)
            replica.optimizer.step(w, replica.m, algorithm.gradient(g))
            g.fill_(torch.nan)  # as an engine that reuses its buffer: nobody may still need it
            algorithm.stepped()
            w_at[step] = w
            if step in self.drain_after:
                algorithm.finish()
                left = max(left, comm.outstanding)
            if step in self.restart_after:
                algorithm = _restarted(algorithm, self.make(), self.start)
        assert isinstance(replica.m, torch.Tensor)
        return Trace(w_at, w, replica.m, comm.max_outstanding, left)


def _restarted(old: Algorithm, new: Algorithm, begin: torch.Tensor) -> Algorithm:
    """`new` as a program would resume it: started on the initial parameters, then given those of the checkpoint."""
    replica, state = old.replica, old.state_dict()
    assert isinstance(replica.w, torch.Tensor)
    w = replica.w.clone()
    replica.w.copy_(begin)
    new.start(replica)
    replica.w.copy_(w)
    new.load_state_dict(state)
    return new


def synchronous(gradients: torch.Tensor, config: SGDConfig, start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What `torch.optim.SGD` makes of the averages of recorded gradients: the oracle.

    Args:
        gradients: shape (steps, world_size, numel).
        config: the optimiser's settings.
        start: initial parameters, shape (numel,).

    Returns:
        Parameters after each step, shape (steps, numel), and the last momentum buffer, shape (numel,).
    """
    w = start.clone().requires_grad_()
    optimizer = torch.optim.SGD(
        [w], config.lr, config.momentum, weight_decay=config.weight_decay, nesterov=config.nesterov
    )
    history = []
    for step, averaged in enumerate(gradients.mean(dim=1)):
        optimizer.param_groups[0]["lr"] = config.lr_at(step)
        w.grad = averaged.clone()
        optimizer.step()
        history.append(w.detach().clone())
    buffer = optimizer.state[w].get("momentum_buffer")
    return torch.stack(history), torch.zeros_like(start) if buffer is None else buffer


def check(algorithm: type[Algorithm], **params: Any) -> list[str]:
    """Run every oracle that applies to an algorithm; the properties that held.

    All: unknown parameters are refused; nothing is in flight after `finish`, and training goes on after it;
    no more is in flight than `in_flight` says; no gradient or message is used while it belongs to somebody
    else; a run that goes on from its `state_dict` is equal to the bit, unless `repeats` is False. What it promises by
    `agrees`, `exact` and `keeps_mean`: that too.

    Raises:
        CheckError: a property does not hold.
        AlgorithmError: `params` are not valid, or `check` refuses every setting that is tried.
        CommError: a replica waited for a message that never came.
    """
    make = _maker(algorithm, params)
    first = "unknown parameters are refused"
    held: list[str] = []
    refusal: AlgorithmError | None = None
    for config in _configs():
        sizes = []
        for world_size in (1, 3, 4):
            try:
                make().check(_setting(config, world_size))
            except AlgorithmError as error:
                refusal = error
            else:
                sizes.append(world_size)
        for world_size in sizes[:2]:  # four where three are too many, or odd
            held = _check_run(make, config, world_size)
    if refusal is not None and not held:
        raise refusal
    return [first, *held]


def _setting(config: SGDConfig, world_size: int) -> Setting:
    return Setting(
        workers=world_size,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
        shapes=_SHAPES,
    )


def _maker(algorithm: type[Algorithm], params: dict[str, Any]) -> Callable[[], Algorithm]:
    construct: Callable[..., Algorithm] = algorithm
    try:
        construct(**params, no_such_parameter=0)
    except TypeError:
        return lambda: algorithm(**params)
    raise CheckError(f"{algorithm.__name__}: an unknown parameter is accepted; expected TypeError, so no **kwargs")


def _configs() -> list[SGDConfig]:
    return [
        SGDConfig(lr=0.05),
        SGDConfig(lr=0.02, momentum=0.9, weight_decay=0.01),
        SGDConfig(
            lr=0.02,
            momentum=0.9,
            nesterov=True,
            weight_decay=0.01,
            schedule="cosine",
            warmup_steps=5,
            total_steps=200,
        ),
    ]


@dataclass
class _Claims:
    """Those of one algorithm that a run has borne out."""

    setting: str
    held: list[str] = field(default_factory=list)

    def require(self, holds: bool, claim: str, found: str) -> None:
        """Raises: CheckError."""
        if not holds:
            raise CheckError(f"{self.setting}: claimed that {claim}, but {found}")
        self.held.append(claim)

    def close(self, a: torch.Tensor, b: torch.Tensor, scale: float, claim: str) -> None:
        """Raises: CheckError, if they differ by more than `TOLERANCE` of `scale`."""
        error = float((a - b).abs().max()) / scale
        self.require(error <= TOLERANCE, claim, f"the relative error is {error:.1e}")


def _check_run(make: Callable[[], Algorithm], config: SGDConfig, world_size: int) -> list[str]:
    sample = make()
    # One step more than whole periods, so that the last block is a partial one.
    period, delay = sample.period_steps, sample.delay_steps
    steps = 3 * period * (1 + delay // period) + 1
    random = torch.Generator().manual_seed(1)
    start = torch.randn(6, generator=random, dtype=torch.float64)
    gradients = torch.randn(steps, world_size, 6, generator=random, dtype=torch.float64)

    def run(restart_after: Collection[int] = ()) -> Trace:
        return simulate(
            make,
            lambda rank, step, w: gradients[step, rank],
            config,
            start,
            steps=steps,
            world_size=world_size,
            drain_after={steps // 2},
            restart_after=restart_after,
            shapes=_SHAPES,
        )

    trace = run()
    claims = _Claims(f"{sample.label} (workers {world_size}, momentum {config.momentum:g})")
    _check_messages(claims, sample, trace, config, world_size)
    _check_result(claims, sample, trace, *synchronous(gradients, config, start))
    if sample.promises.repeats:
        resumed = run(restart_after={steps // 2})
        same = torch.equal(resumed.w_at, trace.w_at) and torch.equal(resumed.m, trace.m)
        claim = "a run that goes on from a checkpoint is equal to the bit"
        claims.require(
            same, claim, "it is not; if it depends on when messages arrive, say so by Promises(repeats=False)"
        )
    return claims.held


def _check_messages(claims: _Claims, sample: Algorithm, trace: Trace, config: SGDConfig, world_size: int) -> None:
    finite = bool(trace.w_at.isfinite().all() and trace.w.isfinite().all())
    claim = "gradients and messages are used only while they are the algorithm's own"
    claims.require(finite, claim, "w is not finite: one was read before its wait or kept without a copy")
    left = trace.left_outstanding
    claims.require(left == 0, "nothing is in flight after finish", f"{left} operations are")
    if not sample.buckets:
        # One more than in_flight: the partial block that finish issues.
        at_once = sample.tensors_per_message(config.momentum) * sample.operations(world_size)
        bound = (sample.in_flight + 1) * at_once
        most = trace.most_outstanding
        claims.require(most <= bound, "in_flight bounds what is in flight", f"{most} operations were, not {bound}")


def _check_result(claims: _Claims, sample: Algorithm, trace: Trace, w: torch.Tensor, m: torch.Tensor) -> None:
    """`w` after each step and the last `m` are those of synchronous SGD."""
    scale = float(w.abs().max())
    if sample.promises.agrees:
        claims.close(trace.w, trace.w[:1], scale, "replicas agree after finish")
    if sample.promises.exact:
        claims.close(trace.w, w[-1], scale, "w after finish is that of synchronous SGD")
        claims.close(trace.m, m, scale, "m after finish is that of synchronous SGD")
    if sample.promises.keeps_mean:
        claims.close(trace.w_at.mean(dim=1), w, scale, "the mean of the replicas moves as with synchronous SGD")
