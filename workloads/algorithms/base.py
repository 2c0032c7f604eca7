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
from typing import Any, ClassVar

from workloads.comm.base import Comm, Vector
from workloads.optim import SGD


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
    """

    w: Vector
    m: Vector
    optimizer: SGD
    comm: Comm
    step: int = 0


@dataclass
class Algorithm:
    """Base class: no communication at all. Every method's default does nothing.

    A subclass is a dataclass whose fields are its parameters: numbers, strings and booleans are checked
    against their annotation, and `field(metadata=at_least(1))` adds a lower bound. An unknown parameter is
    an error, so none takes `**kwargs`. State is made in `start`.

    Attributes:
        kind: the name in a spec; a subclass that sets none goes by its class name in lower case.
        buckets: True if the engine shall hand gradients over bucket by bucket during the backward pass.
        agrees: after `finish`, all replicas hold equal parameters, to rounding.
        exact: after `finish`, (w, m) are, to rounding, what synchronous SGD makes of the same gradients.
        keeps_mean: the mean of `w` over the replicas moves as synchronous SGD moves it on the same gradients.
    """

    kind: ClassVar[str] = "local"
    buckets: ClassVar[bool] = False
    agrees: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    keeps_mean: ClassVar[bool] = False

    replica: Replica = field(init=False, repr=False, compare=False)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" not in cls.__dict__:
            cls.kind = cls.__name__.lower()

    def __post_init__(self) -> None:
        """Check the parameters; a subclass that adds rules calls this first.

        Raises:
            AlgorithmError: a parameter has the wrong type or lies below its bound.
        """
        for name, item in self.parameters().items():
            _check(self.kind, name, getattr(self, name), item.type, item.metadata.get("at_least"))

    @classmethod
    def parameters(cls) -> dict[str, Field[Any]]:
        """The dataclass fields that are parameters, by name."""
        return {item.name: item for item in fields(cls) if item.init}

    def params(self) -> dict[str, object]:
        """The values of the parameters, by name."""
        return {name: getattr(self, name) for name in self.parameters()}

    @property
    def label(self) -> str:
        """A short name with every parameter: `dts-d20-p4`. Full parameter names where initials clash."""
        params = self.params()
        short = len({name[0] for name in params}) == len(params)
        return "-".join([self.kind, *(f"{name[0] if short else name}{params[name]}" for name in params)])

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


def at_least(bound: float) -> Mapping[str, float]:
    """Metadata of a parameter that may not lie below `bound`: `delay: int = field(metadata=at_least(0))`."""
    return {"at_least": bound}


_TYPES: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "bool": (bool,),
}
_WORDS: Mapping[str, str] = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
}


def _check(kind: str, name: str, value: object, annotation: object, bound: float | None) -> None:
    typename = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    if typename not in _TYPES:
        return
    right_type = isinstance(value, _TYPES[typename]) and (typename == "bool" or not isinstance(value, bool))
    above = bound is None or (isinstance(value, int | float) and value >= bound)
    if not (right_type and above):
        expected = _WORDS[typename] + ("" if bound is None else f", {bound} or more")
        raise AlgorithmError(f"algorithm '{kind}': {name} = {value!r}; expected {expected}")
