"""The interface of an algorithm: four moments of a training step, on flat vectors.

The engine owns the step counter and calls, in this order::

    algorithm.start(replica)
    for step in range(steps):
        replica.step = step
        optimizer.advance(step)
        g = gradient of the local loss              # while it is computed: algorithm.bucket(view) ...
        applied = algorithm.gradient(g)             # synchronous SGD waits here
        optimizer.step(w, m, applied)
        algorithm.stepped()                         # delayed and sparse updates live here
    algorithm.finish()                              # training can continue after it

An evaluation during training disturbs nothing: it is of a copy of `algorithm.evaluated`.
The engine reuses `g` after `optimizer.step`, so an algorithm that needs it longer must copy it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from wanbench.netprofiles import Delay, Size, UnitError
from wanbench.workloads.comm.base import Comm, Vector, nbytes_of
from wanbench.workloads.compression import registry as compressors
from wanbench.workloads.compression.averaging import Averager, no_time
from wanbench.workloads.compression.base import Compressor, CompressorError, Shapes
from wanbench.workloads.compute.optim import Optimizer
from wanbench.workloads.parameters import Parameters, at_least, between, one_of, typename_of
from wanbench.workloads.state import StateError, Stateful

__all__ = [
    "Algorithm", "AlgorithmError", "Compression", "Promises", "Replica", "Setting", "at_least", "between", "one_of",
]  # fmt: skip

AnyUnit = TypeVar("AnyUnit", Delay, Size)
Compression = str | Mapping[str, Any] | Compressor
"""A compressor's name, a table with `kind` and parameters, or (from Python) an instance; "none" sends everything."""


class AlgorithmError(ValueError):
    """An algorithm or one of its parameters is wrong. The message is one line."""


@dataclass
class Replica:
    """One worker's model, as an algorithm sees it.

    Attributes:
        w: parameters, shape (numel,).
        m: momentum buffer, shape (numel,); stays zero without momentum, and if a user's optimiser keeps an unknown one.
        optimizer: the local optimiser; `optimizer.lr` is the learning rate of the current step.
        comm: connects the peers.
        step: index of the current step, counted by the engine from 0.
        shapes: shapes of the parameter tensors in `w`, in order; () if unknown.
        seed: seed of the repetition, equal on all ranks; an algorithm derives its random draws from it.
        site_of: by rank, the number of its site; () if all workers are at one.
        processing: called with the seconds that a processor takes, which pass on a simulated clock only.
    """

    w: Vector
    m: Vector
    optimizer: Optimizer
    comm: Comm
    step: int = 0
    shapes: Shapes = ()
    seed: int = 0
    site_of: Sequence[int] = ()
    processing: Callable[[float], None] = no_time


@dataclass(frozen=True)
class Setting:
    """What an algorithm can check before anything starts.

    Attributes:
        workers: N.
        collective: how an all-reduce travels.
        optimizer: "sgd", "adamw", or in a user's loop the name of any other; only "sgd" is linear in the gradients.
        momentum, nesterov, weight_decay: its settings; 0 where their meaning is unknown.
        shapes: shapes of the parameter tensors; () if unknown, as with a payload_scale below 1.
        rtt_s: round-trip time between the workers in seconds, as in the step-time law.
    """

    workers: int
    collective: str = "direct"
    optimizer: str = "sgd"
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    shapes: Shapes = ()
    rtt_s: float = 0.0


GATHERING = ("direct", "gloo", "ring")
"""Collectives that have an all_gather."""


@dataclass(frozen=True)
class Promises:
    """The properties an algorithm claims. `wanbench.testing.check` tests them, and wanbench relies on them.

    Attributes:
        agrees: after `finish`, all replicas hold equal parameters, to rounding.
        exact: after `finish`, (w, m) equal those of synchronous SGD on the same gradients, to rounding.
        keeps_mean: the mean of `w` over the replicas moves as in synchronous SGD on the same gradients.
        repeats: training does not depend on when messages arrive.
        follows_law: every `period_steps`, the algorithm issues `tensors_per_message` all_reduces of `message_bytes` and
            waits for them `delay_steps` later; it sends nothing else. The step-time law (`harness.plan.law`) holds.
        goes_on: steps continue while a peer cannot be reached. Otherwise a step that needs a message from that peer
            waits until the peer is back or the repetition fails.
    """

    agrees: bool = False
    exact: bool = False
    keeps_mean: bool = False
    repeats: bool = True
    follows_law: bool = False
    goes_on: bool = False


@dataclass
class Algorithm(Parameters, Stateful):
    """No communication: each worker trains alone.

    This is also the base class of all algorithms; its methods do nothing. A subclass is a dataclass whose fields are
    its parameters. Numbers, strings and booleans are checked against their annotation, and
    `field(metadata=at_least(1))` adds a lower bound. Unknown parameters are errors, so a subclass takes no
    `**kwargs`. It creates its state in `start`.

    Example:
        >>> @dataclass
        ... class Mine(Algorithm):
        ...     source = "my paper, Eq. 1"
        ...     def gradient(self, g: Vector) -> Vector:
        ...         self.replica.comm.all_reduce(g).wait()  # g <- mean over the workers
        ...         return g

    Attributes:
        kind, source, symbols: see `Parameters`.
        examples: sets of parameters with which it is tested; the first also where one is enough.
        promises: the properties it claims; override as a property if they depend on parameters.
        state: names of the attributes that a checkpoint must hold besides w and m (see `Stateful`).
        tried: the values that advice tries for parameters, beside its usual ones; () for the default alone.
        least_workers: minimum number of workers.
        without_a_peer: for users: what steps do when a message from an unreachable peer is due.
        when_lost: for users: how training goes on when a worker is lost for good, or returns.
        buckets: True if the engine hands over gradients bucket by bucket during the backward pass.
        datagrams: True if it needs `workloads.comm.base.LossyComm.exchange`.
        server: True if a server runs beside a worker, which needs `workloads.comm.base.BackgroundComm`.
        local_steps: True if the optimiser applies each worker's own gradients, so a compressor has no momentum.
    """

    noun: ClassVar[str] = "algorithm"
    kind: ClassVar[str] = "local"
    error: ClassVar[type[ValueError]] = AlgorithmError
    source: ClassVar[str] = "training alone; the unit of scalability"
    examples: ClassVar[Sequence[Mapping[str, object]]] = ({},)
    tried: ClassVar[Mapping[str, Sequence[object]]] = {}
    least_workers: ClassVar[int] = 1
    without_a_peer: ClassVar[str] = "steps wait"
    when_lost: ClassVar[str] = (
        "the others shrink: they go on from the mean model of those that are in the latest period; averages in flight "
        "are dropped. A worker that returns takes that model"
    )
    datagrams: ClassVar[bool] = False
    server: ClassVar[bool] = False
    local_steps: ClassVar[bool] = False

    replica: Replica = field(init=False, repr=False, compare=False)

    @property
    def promises(self) -> Promises:
        """Only that training does not depend on when messages arrive."""
        return Promises()

    @property
    def buckets(self) -> bool:
        """False, unless a subclass overrides it; see the class."""
        return False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for item in fields(Promises):
            if item.name in cls.__dict__:
                raise AlgorithmError(
                    f"algorithm '{cls.kind}': {item.name} is not an attribute; write "
                    f"promises = Promises({item.name}=...)"
                )

    def _check(self, name: str, value: object, item: Field[Any]) -> None:
        super()._check(name, value, item)
        if typename_of(item) == "Compression":
            try:
                compressors.create(value)
            except CompressorError as error:
                raise AlgorithmError(f"algorithm '{self.kind}': {name}: {error}") from None

    def _parsed(self, name: str, value: object, unit: type[AnyUnit]) -> AnyUnit:
        """Parse a parameter that is text with a unit. Raises: AlgorithmError."""
        try:
            return unit.parse(str(value))
        except UnitError as error:
            raise AlgorithmError(f"algorithm '{self.kind}': {name}: {error}") from None

    def _word(self, name: str, value: object) -> str:
        compressor = compressors.create(value) if value == getattr(self, "compression", None) else None
        return super()._word(name, value) if compressor is None else compressor.label

    @property
    def compressor(self) -> Compressor | None:
        """The compressor that parameter `compression` names; None for "none" or without that parameter."""
        return compressors.create(getattr(self, "compression", compressors.NONE))

    @property
    def in_one_all_reduce(self) -> bool:
        """Whether an average takes a single all_reduce, compressed or not."""
        compressor = self.compressor
        return compressor is None or (compressor.averages and not compressor.needs_shapes)

    @property
    def rounds_mean(self) -> bool:
        """Whether compression rounds the mean."""
        return self.compressor is not None and self.compressor.rounds_mean

    def averager(self, like: Vector, stream: int = 0, *, decay: float = 1.0) -> Averager:
        """Return an averager for vectors like this one, with the algorithm's compressor; one per stream of vectors.

        An empty vector, such as a fragment of a model with fewer parameters than fragments, is not compressed.
        """
        replica = self.replica
        shapes = replica.shapes if like.numel() == replica.w.numel() else ()
        seed = replica.seed + stream
        return Averager(
            self.compressor if like.numel() else None,
            replica.comm,
            like,
            shapes=shapes,
            seed=seed,
            processing=replica.processing,
            decay=decay,
        )

    def check(self, setting: Setting) -> None:
        """Refuse a setting that cannot work, before anything starts; a subclass that adds rules calls this first.

        Raises:
            AlgorithmError: the algorithm or its compressor does not support this optimiser, collective or number of
                workers. The message is one line.
        """
        if setting.workers < self.least_workers:
            least = self.least_workers
            raise AlgorithmError(f"algorithm '{self.kind}' needs at least {least} workers, got {setting.workers}")
        self._check_compressor(setting)

    def _check_compressor(self, setting: Setting) -> None:
        compressor = self.compressor
        if compressor is None:
            return
        with_it = f"algorithm '{self.kind}': compression: '{compressor.kind}'"
        if compressor.gathers and setting.collective not in GATHERING:
            raise AlgorithmError(
                f"{with_it} needs an all_gather, which collective '{setting.collective}' lacks; use one of "
                f"{', '.join(GATHERING)}"
            )
        if compressor.needs_shapes and not any(len(shape) > 1 for shape in setting.shapes):
            raise AlgorithmError(
                f"{with_it} needs the matrices of a model; a workload by numbers has none, "
                "and a payload_scale below 1 cuts them up"
            )
        momentum = getattr(compressor, "momentum", 0.0)
        if momentum and self.local_steps:
            raise AlgorithmError(
                f"algorithm '{self.kind}': compression: momentum = {momentum:g}; expected 0, because local steps use "
                "the optimiser's momentum; set train.momentum instead"
            )

    @property
    def delay_steps(self) -> int:
        """D: local steps between a gradient and the step at whose end its average is applied.

        By default parameter `delay` if it is a whole number of at least 0, otherwise 0.
        """
        return _steps(getattr(self, "delay", None), 0)

    @property
    def period_steps(self) -> int:
        """p: steps from one synchronisation to the next.

        By default parameter `period` if it is a whole number of at least 1, otherwise 1.
        """
        return _steps(getattr(self, "period", None), 1)

    @property
    def in_flight(self) -> int:
        """Maximum number of synchronisations in flight, including the newest: ceil((D + 1) / p).

        `finish` can add one for a partial period.
        """
        return -(-(self.delay_steps + 1) // self.period_steps)

    def tensors_per_message(self, momentum: float) -> int:
        """Number of vectors of the model's size in one synchronisation; each has its own all_reduce."""
        return 1

    def operations(self, world_size: int) -> int:
        """Number of simultaneous `Comm` operations per message: more than one if each peer gets its own."""
        return 1

    def message_bytes(self, numel: int, shapes: Shapes = ()) -> int:
        """Bytes of one message for a model of `numel` float32 elements, summed over its rounds."""
        compressor = self.compressor
        if compressor is None:
            return numel * 4
        return sum(map(nbytes_of, compressor.messages(numel, shapes)))

    def start(self, replica: Replica) -> None:
        """Prepare. Called once before the first step, on every rank, with equal parameters."""
        self.replica = replica

    def bucket(self, view: Vector) -> None:
        """Accept a complete part of the gradient; `view` is a slice of the vector that `gradient` will get."""

    def gradient(self, g: Vector) -> Vector:
        """Return the gradient that the optimiser applies, given the local one: shape (numel,), without weight decay."""
        return g

    def stepped(self) -> None:
        """Do what follows the optimiser's step; delayed and sparse updates happen here."""

    @property
    def evaluated(self) -> Vector:
        """The parameters whose accuracy counts during training, shape (numel,), known without communication.

        They are w as it stands: averages in flight are not in it. After `finish`, they are those of the final accuracy.
        """
        return self.replica.w

    def finish(self) -> None:
        """Wait for everything in flight and apply it, including a partial period."""

    @property
    def own_pace(self) -> bool:
        """Whether each worker makes steps at its own pace: it waits for nobody, or only for a server."""
        return self.promises.goes_on or self.server

    @property
    def lasting(self) -> Sequence[Vector]:
        """The algorithm's own vectors that belong to a model besides w and m.

        They are equal on all replicas with the same number of synchronisations, and outlive the loss of a worker.
        """
        return ()

    def state_dict(self) -> dict[str, Any]:
        """Return the attributes that `state` names; call `finish` first. Raises: AlgorithmError: cannot store one."""
        try:
            return super().state_dict()
        except StateError as error:
            raise AlgorithmError(f"algorithm '{self.kind}': {error}") from None

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`, after `start`, with the w and m of that moment. Raises: AlgorithmError."""
        try:
            super().load_state_dict(state)
        except StateError as error:
            raise AlgorithmError(f"algorithm '{self.kind}': {error}") from None


def _steps(value: object, least: int) -> int:
    """A number of steps; the least one if the value is none, for then it means something else to its author."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= least else least
