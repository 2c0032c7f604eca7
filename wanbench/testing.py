"""Checks for your own synchronisation algorithm: `check(Mine, period=4)`.

Replicas run in threads, in float64, on recorded random gradients, so their result can be compared with that of
synchronous SGD on the same gradients. The checks do not cover speed, stability or accuracy: in a real training the
gradients depend on the parameters, so measure those with `wanbench run`.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from wanbench.workloads.algorithms.base import Algorithm, AlgorithmError, Replica, Setting
from wanbench.workloads.comm.local import LocalComm, Lost, run_replicas
from wanbench.workloads.compute.optim import AdamWConfig, SGDConfig
from wanbench.workloads.compute.optim import make as make_optimizer

Gradient = Callable[[int, int, torch.Tensor], torch.Tensor]

TOLERANCE = 1e-9
"""Relative to the largest parameter; float64 rounding over some hundred steps is far smaller."""

_SHAPES = ((2, 3),)
_CONFIGS = (
    SGDConfig(lr=0.05),
    SGDConfig(lr=0.02, momentum=0.9, weight_decay=0.01),
    SGDConfig(
        lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.01, schedule="cosine", warmup_steps=5, total_steps=200
    ),
)


class CheckError(AssertionError):
    """An algorithm breaks one of its promises. The message is one line."""


@dataclass(frozen=True)
class Trace:
    """The result of `simulate`.

    Attributes:
        w_at: parameters after each step, before any drain that follows it; shape (steps, world_size, numel).
        w, m: parameters and momentum buffers after the last drain; shape (world_size, numel).
        most_outstanding: maximum number of operations in flight on any rank.
        left_outstanding: maximum number of operations in flight after a drain.
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
        make: returns a new algorithm; called once per replica.
        gradient: (rank, step, w) -> the gradient, shape (numel,); it must not change `w`.
        config: the optimiser's settings. start: initial parameters, shape (numel,), of any floating dtype.
        steps: number of steps; a drain follows the last. world_size: number of replicas.
        drain_after: further steps, counted from 0, after which `finish` is called, as by a loop that drains.
        restart_after: those of `drain_after` at which a new algorithm continues from a checkpoint of the old one.
        shapes: shapes of the parameter tensors in `start`, for compressors that need them.
        lost: which blocks of datagrams are lost; by default none.

    Raises:
        CommError: a replica waited for a message that never arrived.
    """
    train = partial(_trained, make, gradient, config, start, steps, {*drain_after, steps - 1}, restart_after, shapes)
    traces = run_replicas(world_size, train, lost=lost)
    return Trace(
        w_at=torch.stack([trace.w_at for trace in traces], dim=1),
        w=torch.stack([trace.w for trace in traces]),
        m=torch.stack([trace.m for trace in traces]),
        most_outstanding=max(trace.most_outstanding for trace in traces),
        left_outstanding=max(trace.left_outstanding for trace in traces),
    )


def _trained(
    make: Callable[[], Algorithm],
    gradient: Gradient,
    config: SGDConfig | AdamWConfig,
    start: torch.Tensor,
    steps: int,
    drain_after: Collection[int],
    restart_after: Collection[int],
    shapes: tuple[tuple[int, ...], ...],
    comm: LocalComm,
) -> Trace:
    """Train one replica, with the arguments of `simulate`."""
    w, g = start.clone(), torch.empty_like(start)
    replica = Replica(w=w, m=torch.zeros_like(w), optimizer=make_optimizer(config), comm=comm, shapes=shapes)
    algorithm = make()
    algorithm.start(replica)
    w_at, left_outstanding = torch.empty(steps, w.numel(), dtype=w.dtype), 0
    for step in range(steps):
        replica.step = step
        replica.optimizer.advance(step)
        g.copy_(gradient(comm.rank, step, w))
        if algorithm.buckets:
            for view in reversed(g.tensor_split(2)):
                algorithm.bucket(view)
        replica.optimizer.step(w, replica.m, algorithm.gradient(g))
        g.fill_(torch.nan)  # as an engine that reuses its buffer: the algorithm must not need it any longer
        algorithm.stepped()
        w_at[step] = w
        if step in drain_after:
            algorithm.finish()
            left_outstanding = max(left_outstanding, comm.outstanding)
        if step in restart_after:
            algorithm = _restarted(algorithm, make(), start)
    assert isinstance(replica.m, torch.Tensor)
    return Trace(w_at, w, replica.m, comm.max_outstanding, left_outstanding)


def _restarted(old: Algorithm, new: Algorithm, begin: torch.Tensor) -> Algorithm:
    """Return `new`, resumed as a program would: started on the initial parameters, then given the checkpoint."""
    replica, state = old.replica, old.state_dict()
    assert isinstance(replica.w, torch.Tensor)
    w = replica.w.clone()
    replica.w.copy_(begin)
    new.start(replica)
    replica.w.copy_(w)
    new.load_state_dict(state)
    return new


def synchronous(gradients: torch.Tensor, config: SGDConfig, start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Train with `torch.optim.SGD` on the averages of recorded gradients: the reference for `check`.

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
    """Run every check that applies to an algorithm, and return the properties that held.

    Every algorithm: refuses unknown parameters; has nothing in flight after `finish`, and can train on afterwards; has
    at most `in_flight` synchronisations in flight; uses gradients and messages only while it owns them; and continues
    from its `state_dict` with results equal to the bit, unless it promises `repeats=False`. The promises `agrees`,
    `exact` and `keeps_mean` are checked if made.

    Example:
        >>> wanbench.testing.check(Mine, period=4)

    Args:
        algorithm: the class, a subclass of `wanbench.Algorithm`.
        params: its parameters.

    Raises:
        CheckError: a property does not hold.
        AlgorithmError: `params` are not valid, or the algorithm refuses every setting that is tried.
        CommError: a replica waited for a message that never arrived.
    """
    make = _maker(algorithm, params)
    held: list[str] = []
    refusal: AlgorithmError | None = None
    for config in _CONFIGS:
        sizes = []
        for world_size in (1, 3, 4):
            try:
                make().check(_setting(config, world_size))
            except AlgorithmError as error:
                refusal = error
            else:
                sizes.append(world_size)
        for world_size in sizes[:2]:  # with four if the algorithm refuses three
            held = _check_run(make, config, world_size)
    if refusal is not None and not held:
        raise refusal
    return ["unknown parameters are refused", *held]


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


@dataclass
class _Claims:
    """The claims of one algorithm that have held so far."""

    setting: str
    held: list[str] = field(default_factory=list)

    def require(self, holds: bool, claim: str, observed: str) -> None:
        """Raises: CheckError."""
        if not holds:
            raise CheckError(f"{self.setting}: expected that {claim}, but {observed}")
        self.held.append(claim)

    def close(self, a: torch.Tensor, b: torch.Tensor, scale: float, claim: str) -> None:
        """Raises: CheckError, if they differ by more than `TOLERANCE` of `scale`."""
        error = float((a - b).abs().max()) / scale
        self.require(error <= TOLERANCE, claim, f"the relative error is {error:.1e}")


def _check_run(make: Callable[[], Algorithm], config: SGDConfig, world_size: int) -> list[str]:
    sample = make()
    # One step more than whole periods, so the last block is partial.
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
        claim = "a run that continues from a checkpoint is equal to the bit"
        claims.require(same, claim, "it is not; if timing changes the result, declare Promises(repeats=False)")
    return claims.held


def _check_messages(claims: _Claims, sample: Algorithm, trace: Trace, config: SGDConfig, world_size: int) -> None:
    finite = bool(trace.w_at.isfinite().all() and trace.w.isfinite().all())
    claim = "gradients and messages are used only while the algorithm owns them"
    claims.require(finite, claim, "w is not finite: one was read before its wait, or kept without a copy")
    unfinished = trace.left_outstanding
    claims.require(unfinished == 0, "nothing is in flight after finish", f"{unfinished} operations are")
    if not sample.buckets:
        # One more than in_flight: the partial block that finish issues.
        at_once = sample.tensors_per_message(config.momentum) * sample.operations(world_size)
        bound = (sample.in_flight + 1) * at_once
        most = trace.most_outstanding
        claim = "at most in_flight synchronisations are in flight"
        claims.require(most <= bound, claim, f"{most} operations are, more than {bound}")


def _check_result(claims: _Claims, sample: Algorithm, trace: Trace, w: torch.Tensor, m: torch.Tensor) -> None:
    """Check the trace against `w` after each step, and the last `m`, of synchronous SGD."""
    scale = float(w.abs().max())
    if sample.promises.agrees:
        claims.close(trace.w, trace.w[:1], scale, "replicas agree after finish")
    if sample.promises.exact:
        claims.close(trace.w, w[-1], scale, "w after finish equals that of synchronous SGD")
        claims.close(trace.m, m, scale, "m after finish equals that of synchronous SGD")
    if sample.promises.keeps_mean:
        claims.close(trace.w_at.mean(dim=1), w, scale, "the mean of the replicas moves as in synchronous SGD")
