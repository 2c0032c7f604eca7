"""The tables of an experiment file, each key with its description: strict, frozen, without unknown keys.

A quantity is parsed once, here: "100ms" becomes a `Delay`. The plain data of a table have it as text again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    StringConstraints,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from wanbench.netprofiles import Delay, Rate, Size
from wanbench.netprofiles.path import EFFECTS
from wanbench.netprofiles.units import Quantity
from wanbench.workloads.comm.blocks import MTU
from wanbench.workloads.compute.optim import AdamWConfig, SGDConfig
from wanbench.workloads.data.shards import DEFAULT_BATCH_SIZE
from wanbench.workloads.workload_keys import MAX_PROCESSES


class Table(BaseModel):
    """A table of a spec."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    def plain(self) -> dict[str, Any]:
        """Plain data with the keys that were given."""
        return self.model_dump(by_alias=True, exclude_none=True, exclude_unset=True)

    def identity(self) -> dict[str, Any]:
        """Plain data without default values, so that a new key does not change the identity of older cells."""
        implied = self._implied()
        return {
            key: value
            for key, value in self.model_dump(by_alias=True, exclude_defaults=True).items()
            if key not in implied or getattr(self, key) != implied[key]
        }

    def _implied(self) -> Mapping[str, object]:
        """Values that hold for keys without a default."""
        return {}


def _reader(kind: type[Quantity]) -> BeforeValidator:
    def read(value: object) -> object:
        if isinstance(value, str):
            return kind.parse(value)
        if not kind.scale.bare or isinstance(value, kind):
            return value
        if type(value) not in (int, float):
            raise PydanticKnownError("float_type")
        return kind.parse(str(value))

    return BeforeValidator(read)


def quantity(kind: type[Quantity]) -> Any:
    """The annotation of a key that takes this kind of quantity."""
    return Annotated[InstanceOf[kind], _reader(kind), _AS_TEXT]  # type: ignore[misc, valid-type]


_AS_TEXT = PlainSerializer(str, return_type=str)
DelayValue = Annotated[InstanceOf[Delay], _reader(Delay), _AS_TEXT]
RateValue = Annotated[InstanceOf[Rate], _reader(Rate), _AS_TEXT]
SizeValue = Annotated[InstanceOf[Size], _reader(Size), _AS_TEXT]

Steps = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,8} steps$")]
CpuSet = Annotated[str, StringConstraints(pattern=r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$")]
_MOST_REPEATS = 10_000
_MOST_SEED = (1 << 53) - _MOST_REPEATS  # every reader of JSON has the seeds of all repetitions exactly
_SHORTEST_S = 1.0  # between failures, and to repair; more failures would take long to draw
Where = dict[str, str | int | float]


def count(steps: str) -> int:
    """The number in "20 steps"."""
    return int(steps.partition(" ")[0])


class WorkloadTable(Table):
    """[workload]: exactly one of name, params, model and command."""

    name: str | None = Field(default=None, description="A built-in workload: `wanbench list workloads`.")
    params: int | None = Field(
        default=None, description="Workload by numbers: parameters of the model, such as 7_000_000_000."
    )
    tensors: int | None = Field(
        default=None, description="Workload by numbers: number of tensors that hold the parameters."
    )
    model: str | None = Field(default=None, description='Your own model, "pkg.module:make", which wanbench trains.')
    command: Annotated[list[str], Field(min_length=1)] | None = Field(
        default=None,
        description="Your own program, as a list of arguments. {AXIS} is replaced by the value of that axis.",
    )
    data: str | None = Field(
        default=None,
        description="Folder of a data set that is not bundled; default: that of the workload, such as mnist, below "
        "$WANBENCH_DATA or data. A relative path is tried beside the spec first.",
    )
    step_time: str | list[str] | dict[str, str] | None = Field(
        default=None,
        description='Mean time of a step on one worker, such as "300ms"; "real" runs the model and takes its own time. '
        'For machines that differ: { tokyo = "780ms", default = "300ms" } by site, or a list by rank.',
    )
    step_cv: float | None = Field(
        default=None,
        description="Standard deviation of the step time over its mean; each step of each worker draws a new time.",
    )
    payload_scale: float | Literal["auto"] | None = Field(
        default=None,
        description="Factor on message sizes, bucket sizes and rates, above 0 and at most 1; auto: the largest of 1, "
        "0.5, 0.2, 0.1, 0.05, 0.02 and 0.01 that this host carries; 1 on testbed virtual.",
    )
    step_times: Literal["hook"] | None = Field(
        default=None,
        description='Commands only: "hook" counts the steps of torch\'s optimizers in the unchanged program.',
    )
    warmup: Steps | None = Field(
        default=None, description="Commands only: first steps that are left out; default: 3 steps."
    )
    nproc_per_worker: int | None = Field(
        default=None,
        ge=1,
        le=MAX_PROCESSES,
        description="Commands only: number of processes per worker; default: 1.",
    )
    rendezvous: Literal["network", "local"] | None = Field(
        default=None,
        description="Commands only: whether MASTER_ADDR is rank 0's address on the emulated network (default), or "
        "local to each worker, so that forming a group takes no time.",
    )
    scaling: Literal["weak", "strong"] | None = Field(
        default=None,
        description="Commands only: weak (default) if each worker has its own batch, so that a step of N workers is N "
        "times the work; strong if all share one batch, so that it is the same work.",
    )
    timeout: DelayValue | None = Field(
        default=None,
        description="Commands only: a repetition that takes longer fails; default: 600s.",
    )

    def _implied(self) -> Mapping[str, object]:
        return {"payload_scale": 1.0}


TUNED = "tuned"  # the preset of hosts whose buffers limit no connection


class TcpTable(Table):
    """[network.tcp]: set, read back and recorded; never inherited from the host."""

    preset: Literal["tuned", "stock", "stock-6.1", "stock-6.18"] = Field(
        default="tuned",
        description="What hosts have: buffers that limit no connection (tuned), or those of Linux as it is installed: "
        "6.1 (stock; the kernels before 6.6) or 6.18. The keys below refine it.",
    )
    congestion: str = Field(
        default="reno",
        description="TCP congestion control; if the preset is stock, the default is cubic. It is set, read back and "
        "recorded.",
    )
    slow_start_after_idle: bool = Field(
        default=True, description="Whether TCP resets its congestion window after a pause, as Linux does by default."
    )
    receive_buffer: SizeValue | None = Field(
        default=None,
        description="Largest receive buffer, the third number of net.ipv4.tcp_rmem; default: the preset's.",
    )
    send_buffer: SizeValue | None = Field(
        default=None, description="Largest send buffer, the third number of net.ipv4.tcp_wmem; default: the preset's."
    )

    @model_validator(mode="before")
    @classmethod
    def _with_kernel(cls, data: Any) -> Any:
        """Name the kernel of `stock`, so that it is part of a cell's identity, and its congestion control."""
        if isinstance(data, dict) and str(data.get("preset", "")).startswith("stock"):
            kernel = "stock-6.1" if data["preset"] == "stock" else data["preset"]
            return {"congestion": "cubic", **data, "preset": kernel}
        return data

    @property
    def host(self) -> str:
        """The buffers of the hosts in words: the kernel, and the keys that refine it."""
        stated = {"receive": self.receive_buffer, "send": self.send_buffer}
        return " ".join([self.preset, *(f"{name}={size}" for name, size in stated.items() if size is not None)])


class _Ends(Table):
    profile: str = Field(
        default="uniform",
        description='A catalog name, a .toml or .csv file, or "uniform": one worker per site, all paths equal.',
    )
    rtt: DelayValue | None = Field(
        default=None, description='Uniform only: round-trip time between all sites, such as "80ms".'
    )
    rate: RateValue | None = Field(
        default=None, description='Uniform only: rate of each worker\'s link in both directions, such as "1Gbit".'
    )
    buffer: SizeValue | None = Field(
        default=None,
        description="Uniform only: size of the queue of each of these links; default: a round trip at "
        "its rate, at least 50 ms and 96 kB.",
    )


if TYPE_CHECKING:
    _Effects = _Ends
else:  # one key per effect: jitter, loss, loss_burst
    _Effects = create_model(
        "_Effects",
        __base__=_Ends,
        **{
            effect.key: (quantity(effect.unit) | None, Field(default=None, description=effect.about))
            for effect in EFFECTS
        },
    )


class NetworkTable(_Effects):
    """[network]: sites, delays and rates. Uniform networks have a key for each impairment."""

    rtt_scale: float | None = Field(default=None, gt=0, description="Named profiles only: factor on all delays.")
    rate_scale: float | None = Field(default=None, gt=0, description="Named profiles only: factor on all rates.")
    place: Literal["blocked", "round-robin"] | dict[str, int] = Field(
        default="blocked",
        description="Placement of ranks on sites: in blocks, in turn (round-robin), or { SITE = COUNT }.",
    )
    mtu: int = Field(
        default=MTU,
        ge=576,
        le=9216,
        description="Bytes of the largest IP packet: 9001 for the jumbo frames of AWS. Datagrams have at most 1500.",
    )
    tcp: TcpTable = TcpTable()

    def _implied(self) -> Mapping[str, object]:
        return {effect.key: effect.unit(0) for effect in EFFECTS} | {"rtt_scale": 1.0, "rate_scale": 1.0}


class CommTable(Table):
    """[comm]: how workers communicate."""

    collective: Literal["auto", "direct", "gloo", "ring", "hierarchical"] = Field(
        default="direct",
        description="How an all-reduce travels; auto: the fastest by the step-time law.",
    )
    ring_order: Literal["best", "ranks"] = Field(
        default="best",
        description="Order of the workers in ring: best, the fastest by the step-time law, or ranks, as placed.",
    )
    channels: Literal["auto"] | Annotated[int, Field(ge=1, le=64)] = Field(
        default="auto",
        description="Channels of gloo, which runs two operations on each, or TCP connections per pair of workers of "
        "direct, hierarchical and ring; auto: enough channels for all operations in flight, or one connection.",
    )
    buckets: SizeValue = Field(
        default=Size.parse("25MiB"),
        description="ssgd only: size of the gradient buckets that are sent during the backward pass.",
    )
    deadline: Steps = Field(
        default="10 steps",
        description="If workers are killed: the time, in predicted steps, after which the others go on without a "
        "worker that cannot be reached.",
    )


class TrainTable(Table):
    """[train]: the optimizer and the data."""

    optimizer: Literal["sgd", "adamw"] = Field(default="sgd", description="Optimizer of each worker.")
    lr: float | None = Field(
        default=None, description=f"Learning rate; default: {SGDConfig.lr:g}, or {AdamWConfig.lr:g} with adamw."
    )
    momentum: float = Field(default=0.0, description="Momentum of sgd.")
    nesterov: bool = Field(default=False, description="Whether sgd uses Nesterov momentum.")
    weight_decay: float | None = Field(
        default=None,
        description="Weight decay: added to the gradient by sgd, decoupled in adamw; "
        f"default: {SGDConfig.weight_decay:g}, or {AdamWConfig.weight_decay:g} with adamw.",
    )
    beta1: float = Field(default=AdamWConfig.beta1, description="Decay of adamw's first moment.")
    beta2: float = Field(default=AdamWConfig.beta2, description="Decay of adamw's second moment.")
    eps: float = Field(default=AdamWConfig.eps, description="Constant in the denominator of adamw.")
    schedule: Literal["constant", "cosine"] = Field(default="constant", description="Schedule of the learning rate.")
    warmup_steps: int = Field(
        default=0, ge=0, description="Number of steps in which the learning rate grows to its value."
    )
    batch_size: int = Field(default=DEFAULT_BATCH_SIZE, ge=1, description="Samples per worker and step.")
    shards: str = Field(
        default="iid",
        description='Division of the data: "iid", or "dirichlet:0.5" for a different mix of classes on each worker.',
    )
    folds: int | None = Field(
        default=None,
        description="Digits only: number of parts of the images. Each seed is tested on one part, in turn.",
    )
    eval_every: int = Field(
        default=0, ge=0, description="Number of steps between evaluations, from step 0 on; 0: only at the end."
    )
    target: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Accuracy to reach; the columns time_to_target_s and steps_to_target state when.",
    )
    until: Steps | None = Field(
        default=None, description='Minimum length of training, such as "300 steps"; at least the window.'
    )

    def _implied(self) -> Mapping[str, object]:
        own = AdamWConfig if self.optimizer == AdamWConfig.optimizer else SGDConfig
        return {"lr": own.lr, "weight_decay": own.weight_decay}


class FailuresTable(Table):
    """[failures]: workers that are killed and return at random times, drawn anew for each repetition."""

    mtbf: Literal["none"] | DelayValue = Field(
        default="none", description='Mean time between the failures of a machine, such as "600s"; none: it never fails.'
    )
    mttr: DelayValue = Field(default=Delay.parse("30s"), description="Mean time until a failed machine returns.")
    by: Literal["worker", "site"] = Field(
        default="worker", description="What fails at once: a worker, or all workers of a site."
    )

    @field_validator("mtbf", "mttr")
    @classmethod
    def _long_enough(cls, time: object) -> object:
        if isinstance(time, Delay) and time.seconds < _SHORTEST_S:
            raise ValueError(f"expected at least {_SHORTEST_S:g} s, got {time}")
        return time

    def identity(self) -> dict[str, Any]:
        """Without failures, nothing else matters."""
        return {} if self.mtbf == "none" else super().identity()


class RunTable(Table):
    """[run]: where cells run, and how often."""

    testbed: Literal["auto", "netns", "docker", "virtual"] = Field(
        default="auto", description="Testbed of the workers; auto is netns, never virtual."
    )
    emulator: Literal["auto", "netem", "relay"] = Field(
        default="auto", description="Emulator of the paths; auto is netem if the kernel has it, else relay."
    )
    window: Steps = Field(
        default="20 steps", description="Minimum number of measured steps. The window covers whole periods."
    )
    repeats: int = Field(
        default=3, ge=1, le=_MOST_REPEATS, description="Number of repetitions of every cell. Each has its own seed."
    )
    seed: int = Field(default=1, ge=0, le=_MOST_SEED, description="First seed; later repetitions add 1.")


class ContainersTable(Table):
    """[containers]: the workers' containers on the docker testbed."""

    image: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None, description="Image of the workers; default: $WANBENCH_IMAGE, or wanbench-worker."
    )
    memory: SizeValue | None = Field(
        default=None, description='Memory limit of each worker, including swap, such as "2GiB".'
    )
    cpuset: CpuSet | Annotated[list[CpuSet], Field(min_length=1)] | None = Field(
        default=None,
        description='Processors of each worker, such as "0-3", or a list by rank, repeated as often as needed.',
    )


class VirtualTable(Table):
    """[virtual]: the network model of the simulated clock."""

    tcp_ramp: bool = Field(default=True, description="Whether simulated TCP has a growing window.")


class Requirement(Table):
    """[[gate.require]]: a claim about a metric; read by `check`."""

    metric: str = Field(description="Result column, such as scalability.")
    where: Where = Field(description="Cells that the claim covers: { algorithm = LABEL, rtt = ... }.")
    over: Where | None = Field(default=None, description="Other cells to divide by; the claim is then about the ratio.")
    min: float | None = Field(default=None, allow_inf_nan=False, description="Minimum of the metric or ratio.")
    max: float | None = Field(default=None, allow_inf_nan=False, description="Maximum of the metric or ratio.")

    @model_validator(mode="after")
    def _bounded(self) -> Requirement:
        if self.min is None and self.max is None:
            raise ValueError("expected min, max or both; add min = 0.9")
        return self


class GateTable(Table):
    """[gate]: which changes fail a build; read by `check`."""

    tolerance: float = Field(
        default=0.0, ge=0, lt=1, description="Accepted relative change of values that a simulation repeats exactly."
    )
    loss_band: float = Field(
        default=0.1, gt=0, le=1, description="Accepted relative change of a loss, which depends on rounding."
    )
    max_slowdown: float = Field(
        default=0.05, gt=0, le=1, description="Relative change of a measured step time that counts as a regression."
    )
    alpha: float = Field(default=0.05, gt=0, le=0.5, description="Family-wise error rate of a measured comparison.")
    setup: list[str] = Field(default=[], description="Shell commands that set up a fresh checkout of the base.")
    require: list[Requirement] = Field(default=[])
