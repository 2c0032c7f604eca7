"""What an algorithm is: four moments of a training step, on flat vectors.

The engine owns the step counter and calls, in this order::

    algorithm.start(replica)
    for step in range(steps):
        replica.step = step
        optimizer.advance(step)
        g = gradient of the local loss              # while it is computed: algorithm.bucket(view) ...
        applied = algorithm.gradient(g)             # synchronous SGD waits here
        optimizer.step(w, m, applied)
        algorithm.stepped()                         # delayed and sparse updates live here
    algorithm.finish()                              # also before an evaluation; training may go on after it

`g` belongs to the engine again once `optimizer.step` is through: keep a copy of what is needed longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from wanbench.netprofiles import Delay, Size, UnitError
from wanbench.workloads.comm.base import Comm, Vector
from wanbench.workloads.compression import registry as compressors
from wanbench.workloads.compression.averaging import Averager
from wanbench.workloads.compression.base import Compressor, CompressorError, Shapes
from wanbench.workloads.compute.optim import Optimizer
from wanbench.workloads.parameters import Parameters, at_least, between, one_of, typename_of
from wanbench.workloads.state import StateError, Stateful

__all__ = [
    "Algorithm", "AlgorithmError", "Compression", "Promises", "Replica", "Setting", "at_least", "between", "one_of",
]  # fmt: skip

AnyUnit = TypeVar("AnyUnit", Delay, Size)
Compression = str | Mapping[str, Any] | Compressor
"""A compressor's name, a table with `kind` and parameters, or in Python a compressor; "none" without."""


class AlgorithmError(ValueError):
    """An algorithm or one of its parameters is not what it should be. The message is one line."""


@dataclass
class Replica:
    """One worker's model, as an algorithm sees it.

    Attributes:
        w: parameters, shape (numel,).
        m: momentum buffer, shape (numel,); stays zero without momentum.
        optimizer: the local optimiser; `optimizer.lr` is the rate of the current step.
        comm: the peers.
        step: index of the current step, counted by the engine from 0.
        shapes: of the parameter tensors that `w` consists of, in their order; () where they are not known.
        seed: of the repetition, equal on all ranks; random draws of an algorithm derive from it.
    """

    w: Vector
    m: Vector
    optimizer: Optimizer
    comm: Comm
    step: int = 0
    shapes: Shapes = ()
    seed: int = 0


@dataclass(frozen=True)
class Setting:
    """What surrounds an algorithm, as far as it is known before anything starts.

    Attributes:
        workers: N.
        collective: how an all-reduce travels.
        optimizer: "sgd" or "adamw". momentum, nesterov, weight_decay: of the optimiser.
        shapes: of the parameter tensors; () where they are not known, as with a payload_scale below 1.
        rtt_s: there and back between the workers, as the step-time law takes it.
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
    """What an algorithm claims, for `wanbench.testing.check` to test and for wanbench to rely on.

    Attributes:
        agrees: after `finish`, all replicas hold equal parameters, to rounding.
        exact: after `finish`, (w, m) are, to rounding, what synchronous SGD makes of the same gradients.
        keeps_mean: the mean of `w` over the replicas moves as synchronous SGD moves it on the same gradients.
        repeats: what is learned does not depend on when messages arrive.
        lawful: each `period_steps`, `tensors_per_message` all_reduces of `message_bytes` are issued and waited for
            `delay_steps` later, and nothing else is sent: then the step-time law of `harness.plan.law` speaks of it.
        goes_on: a peer that cannot be reached holds up no step; otherwise steps wait, once what is due from it is not
            there, until it is back or the repetition fails.
    """

    agrees: bool = False
    exact: bool = False
    keeps_mean: bool = False
    repeats: bool = True
    lawful: bool = False
    goes_on: bool = False


@dataclass
class Algorithm(Parameters, Stateful):
    """No communication at all: every worker trains alone. The base class, whose methods do nothing.

    A subclass is a dataclass whose fields are its parameters: numbers, strings and booleans are checked
    against their annotation, and `field(metadata=at_least(1))` adds a lower bound. An unknown parameter is
    an error, so none takes `**kwargs`. State is made in `start`.

    Attributes:
        kind, source, symbols: see `Parameters`.
        promises: what it claims; a property where that depends on parameters.
        state: see `Stateful`: what `start` and the steps have made that is still needed after `finish`, w and m apart.
        least_workers: how many it takes.
        without_a_peer: for people: what steps do once what is due from a peer that cannot be reached is not there.
        buckets: the engine shall hand gradients over bucket by bucket during the backward pass.
        datagrams: it asks for `workloads.comm.exchange.LossyComm.exchange`.
    """

    noun: ClassVar[str] = "algorithm"
    kind: ClassVar[str] = "local"
    error: ClassVar[type[ValueError]] = AlgorithmError
    source: ClassVar[str] = "training alone; the unit of scalability"
    least_workers: ClassVar[int] = 1
    without_a_peer: ClassVar[str] = "steps wait"
    datagrams: ClassVar[bool] = False

    replica: Replica = field(init=False, repr=False, compare=False)

    @property
    def promises(self) -> Promises:
        """That what is learned does not depend on when messages arrive, and no more."""
        return Promises()

    @property
    def buckets(self) -> bool:
        """See the class; not unless a subclass says so."""
        return False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for item in fields(Promises):
            if item.name in cls.__dict__:
                raise AlgorithmError(
                    f"algorithm '{cls.kind}': {item.name} stands alone; expected it among "
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
        """A parameter that is a text with a unit. Raises: AlgorithmError."""
        try:
            return unit.parse(str(value))
        except UnitError as error:
            raise AlgorithmError(f"algorithm '{self.kind}': {name}: {error}") from None

    def _word(self, name: str, value: object) -> str:
        compressor = compressors.create(value) if value == getattr(self, "compression", None) else None
        return super()._word(name, value) if compressor is None else compressor.label

    @property
    def compressor(self) -> Compressor | None:
        """The one that parameter `compression` names; None without such a parameter, or for "none"."""
        return compressors.create(getattr(self, "compression", compressors.NONE))

    @property
    def in_one_all_reduce(self) -> bool:
        """Whether an average takes one all_reduce, of compressed messages or not."""
        compressor = self.compressor
        return compressor is None or (compressor.averages and not compressor.needs_shapes)

    @property
    def rounds_mean(self) -> bool:
        """Whether compression rounds the mean on its way."""
        return self.compressor is not None and self.compressor.rounds_mean

    def averager(self, like: Vector, stream: int = 0) -> Averager:
        """Averages of vectors like this one, through the algorithm's compressor. One for each stream of vectors."""
        replica = self.replica
        shapes = replica.shapes if like.numel() == replica.w.numel() else ()
        return Averager(self.compressor, replica.comm, like, shapes=shapes, seed=replica.seed + stream)

    def check(self, setting: Setting) -> None:
        """Refuse what cannot work together, before anything starts; a subclass that adds rules calls this first.

        Raises:
            AlgorithmError: the algorithm, its compressor, the optimiser, the collective and the number of workers do
                not go together. One line.
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
            known = ", ".join(GATHERING)
            raise AlgorithmError(
                f"{with_it} needs an all_gather, which collective '{setting.collective}' has not; use one of {known}"
            )
        if compressor.needs_shapes and not any(len(shape) > 1 for shape in setting.shapes):
            raise AlgorithmError(
                f"{with_it} needs the matrices of a model; a workload by numbers has none, "
                "and payload_scale below 1 cuts them up"
            )

    def refuse_own_momentum(self) -> None:
        """A compressor's momentum would be lost where local steps are already taken. Raises: AlgorithmError."""
        momentum = getattr(self.compressor, "momentum", 0.0)
        if momentum:
            raise AlgorithmError(
                f"algorithm '{self.kind}': compression: momentum = {momentum:g}; expected 0, because local steps are "
                "taken with the optimiser's momentum; set train.momentum"
            )

    @property
    def delay_steps(self) -> int:
        """D: local steps between a gradient and the step at whose end its average is applied."""
        return 0

    @property
    def period_steps(self) -> int:
        """p: steps from one synchronisation to the next."""
        return 1

    @property
    def in_flight(self) -> int:
        """Synchronisations under way at once, the newest included: ceil((D + 1) / p).

        `finish` may add one for a partial period.
        """
        return -(-(self.delay_steps + 1) // self.period_steps)

    def tensors_per_message(self, momentum: float) -> int:
        """How many vectors of the model's size one synchronisation carries, each by its own all_reduce."""
        del momentum
        return 1

    def operations(self, world_size: int) -> int:
        """How many operations of `Comm` a message takes at once: more than one where it goes to each peer by itself."""
        del world_size
        return 1

    def message_bytes(self, numel: int, shapes: Shapes = ()) -> int:
        """Bytes of one message of a synchronisation of a model of `numel` float32, all of its rounds."""
        compressor = self.compressor
        if compressor is None:
            return numel * 4
        return sum(message.nbytes for message in compressor.messages(numel, shapes))

    def start(self, replica: Replica) -> None:
        """Called once, before the first step, on every rank with equal parameters."""
        self.replica = replica

    def bucket(self, view: Vector) -> None:
        """A part of the gradient is complete: `view` is a slice of the vector `gradient` will get."""

    def gradient(self, g: Vector) -> Vector:
        """Given the local gradient `g`, shape (numel,), without weight decay: what the optimiser applies."""
        return g

    def stepped(self) -> None:
        """The optimiser has stepped."""

    def finish(self) -> None:
        """Wait for everything in flight and apply it, a partial period included."""

    def state_dict(self) -> dict[str, Any]:
        """After `finish`: what `state` names. Raises: AlgorithmError, if it cannot be stored."""
        try:
            return super().state_dict()
        except StateError as error:
            raise AlgorithmError(f"algorithm '{self.kind}': {error}") from None

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """After `start`: go on from a `state_dict`; w and m are those of that time. Raises: AlgorithmError."""
        try:
            super().load_state_dict(state)
        except StateError as error:
            raise AlgorithmError(f"algorithm '{self.kind}': {error}") from None
