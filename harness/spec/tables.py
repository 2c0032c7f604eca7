"""The tables of an experiment file, each key with its description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, StringConstraints, create_model, model_validator

from wanbench.harness.spec.table import DelayValue, RateValue, SizeValue, Table, quantity
from wanbench.netprofiles import Size
from wanbench.netprofiles.path import EFFECTS
from wanbench.workloads.compute.optim import AdamWConfig, SGDConfig
from wanbench.workloads.data.portion import DEFAULT_BATCH_SIZE
from wanbench.workloads.workload_keys import MAX_PROCESSES

Steps = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]* steps$")]
_CPUS = r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$"
CpuSet = Annotated[str, StringConstraints(pattern=_CPUS)]
Where = dict[str, str | int | float]


def count(steps: str) -> int:
    """The number in "20 steps"."""
    return int(steps.partition(" ")[0])


class WorkloadTable(Table):
    """[workload]: exactly one of name, params, model, command."""

    name: str | None = Field(default=None, description="A built-in workload: `wanbench list workloads`.")
    params: int | None = Field(default=None, description="By numbers: parameters of the model, as 7_000_000_000.")
    tensors: int | None = Field(default=None, description="By numbers: into how many tensors they are divided.")
    model: str | None = Field(
        default=None, description='A model of your own, "pkg.module:make", trained by wanbench\'s loop.'
    )
    command: Annotated[list[str], Field(min_length=1)] | None = Field(
        default=None, description="A program of your own, as a list of arguments; {AXIS} is filled in from the sweep."
    )
    data: str | None = Field(
        default=None, description="The folder of a data set that is not bundled; looked for beside the spec first."
    )
    step_time: str | None = Field(
        default=None,
        description='Mean time of a step of one worker, as "300ms"; "real": what a model that learns takes.',
    )
    step_cv: float | None = Field(
        default=None, description="Standard deviation over mean of the step time, drawn anew for each step and worker."
    )
    payload_scale: float | None = Field(
        default=None, description="Factor above 0, up to 1, on message sizes, bucket sizes and rates."
    )
    step_times: Literal["hook"] | None = Field(
        default=None, description='Of a command: "hook": torch\'s optimizers tell its steps, the program is untouched.'
    )
    warmup: Steps | None = Field(
        default=None, description="Of a command: steps left out at the beginning; 3 steps if not given."
    )
    nproc_per_worker: int | None = Field(
        default=None,
        ge=1,
        le=MAX_PROCESSES,
        description="Of a command: processes in each worker's network; 1 if not given.",
    )
    timeout: DelayValue | None = Field(
        default=None,
        description="Of a command: a repetition that lasts longer is ended, and has failed; 600s if not given.",
    )

    def _implied(self) -> Mapping[str, object]:
        return {"payload_scale": 1.0}


class TcpTable(Table):
    """[network.tcp]: pinned, read back and recorded; never inherited from the host."""

    congestion: str = Field(default="reno", description="TCP's congestion control; set, read back and recorded.")
    slow_start_after_idle: bool = Field(
        default=True, description="Whether TCP forgets its window in a pause, as Linux does by default."
    )


class _Ends(Table):
    profile: str = Field(
        default="uniform",
        description='A catalog name, a .toml or .csv file, or "uniform": N sites of one worker, all pairs alike.',
    )
    rtt: DelayValue | None = Field(default=None, description='Uniform only: round-trip time of every pair, as "80ms".')
    rate: RateValue | None = Field(
        default=None, description='Uniform only: `up` and `down` of every worker\'s site, as "1Gbit".'
    )


if TYPE_CHECKING:
    _Effects = _Ends
else:  # a key for each effect: jitter, loss
    _Effects = create_model(
        "_Effects",
        __base__=_Ends,
        **{
            effect.key: (quantity(effect.unit) | None, Field(default=None, description=effect.about))
            for effect in EFFECTS
        },
    )


class NetworkTable(_Effects):
    """[network]: which sites, how far apart, how fast; uniform networks have a key for each impairment."""

    rtt_scale: float | None = Field(default=None, gt=0, description="Named profiles only: factor on all delays.")
    rate_scale: float | None = Field(default=None, gt=0, description="Named profiles only: factor on all rates.")
    place: Literal["blocked", "round-robin"] | dict[str, int] = Field(
        default="blocked",
        description="Which worker sits where: ranks in blocks by site, in turn, or { SITE = COUNT }.",
    )
    tcp: TcpTable = TcpTable()

    def _implied(self) -> Mapping[str, object]:
        return {effect.key: effect.unit(0) for effect in EFFECTS} | {"rtt_scale": 1.0, "rate_scale": 1.0}


class CommTable(Table):
    """[comm]: how an all-reduce travels."""

    collective: Literal["direct", "gloo", "ring", "halving-doubling", "hierarchical"] = Field(
        default="direct", description="How an all-reduce travels; the last three are simulated only."
    )
    channels: Literal["auto"] | Annotated[int, Field(ge=1, le=64)] = Field(
        default="auto", description="Of gloo, which runs two operations on each; auto: enough for what is in flight."
    )
    buckets: SizeValue = Field(
        default=Size.parse("25MiB"), description="Of ssgd: how large the parts are that leave during the backward pass."
    )


class TrainTable(Table):
    """[train]: only what the optimiser and the data need."""

    optimizer: Literal["sgd", "adamw"] = Field(default="sgd", description="The local optimizer.")
    lr: float | None = Field(
        default=None, description=f"Learning rate; if not given {SGDConfig.lr:g}, with adamw {AdamWConfig.lr:g}."
    )
    momentum: float = Field(default=0.0, description="Of sgd.")
    nesterov: bool = Field(default=False, description="Of sgd with momentum.")
    weight_decay: float | None = Field(
        default=None,
        description="Added to the gradient by sgd; decoupled in adamw. "
        f"If not given {SGDConfig.weight_decay:g}, with adamw {AdamWConfig.weight_decay:g}.",
    )
    beta1: float = Field(default=AdamWConfig.beta1, description="Of adamw.")
    beta2: float = Field(default=AdamWConfig.beta2, description="Of adamw.")
    eps: float = Field(default=AdamWConfig.eps, description="Of adamw.")
    schedule: Literal["constant", "cosine"] = Field(default="constant", description="The course of the learning rate.")
    warmup_steps: int = Field(default=0, ge=0, description="Steps in which the learning rate grows to its value.")
    batch_size: int = Field(default=DEFAULT_BATCH_SIZE, ge=1, description="Samples of one worker in one step.")
    shards: str = Field(
        default="iid",
        description='How data are divided: "iid", or "dirichlet:0.5" for a different mix of classes on each worker.',
    )
    folds: int | None = Field(
        default=None, description="Of digits: cut the images into so many parts; each seed is tested on one, in turn."
    )
    eval_every: int = Field(default=0, ge=0, description="Steps between evaluations; 0: at the end only.")
    target: float | None = Field(
        default=None, gt=0, le=1, description="An accuracy; the time to reach it becomes time_to_target_s."
    )
    until: Steps | None = Field(
        default=None, description='How long to train, at least, as "300 steps"; not shorter than the window.'
    )

    def _implied(self) -> Mapping[str, object]:
        own = AdamWConfig if self.optimizer == AdamWConfig.kind else SGDConfig
        return {"lr": own.lr, "weight_decay": own.weight_decay}


class RunTable(Table):
    """[run]: where and how often."""

    testbed: Literal["auto", "netns", "docker", "virtual"] = Field(
        default="auto", description="What workers run in; auto is netns, never virtual."
    )
    emulator: Literal["auto", "netem", "relay"] = Field(
        default="auto", description="What makes paths slow; auto is netem where the kernel has it, else relay."
    )
    window: Steps = Field(default="20 steps", description="Measured steps, at least; in multiples of the period.")
    repeats: int = Field(default=3, ge=1, description="Repetitions of every cell, with seeds of their own.")
    seed: int = Field(default=1, ge=0, description="Of the first repetition; the next ones count up.")


class ContainersTable(Table):
    """[containers]: what surrounds each worker of the testbed docker."""

    image: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None, description="Of the testbed docker: what workers run; $WANBENCH_IMAGE, or wanbench-worker."
    )
    memory: SizeValue | None = Field(default=None, description='Of each worker, swap included, as "2GiB".')
    cpuset: CpuSet | Annotated[list[CpuSet], Field(min_length=1)] | None = Field(
        default=None, description='Processors, as "0-3", or a list of such by rank, repeated as often as needed.'
    )


class VirtualTable(Table):
    """[virtual]: what the simulated clock's model of the network leaves out."""

    tcp_ramp: bool = Field(default=True, description="Whether simulated TCP has a window that grows.")


class Requirement(Table):
    """[[gate.require]]: a claim about a metric; read by `check`."""

    metric: str = Field(description="A column, such as scalability.")
    where: Where = Field(description="The cells that are meant: { algorithm = LABEL, rtt = ... }.")
    over: Where | None = Field(
        default=None, description="Other cells, to divide by: the claim is then about the ratio."
    )
    min: float | None = Field(default=None, description="At least this much.")
    max: float | None = Field(default=None, description="At most this much.")

    @model_validator(mode="after")
    def _bounded(self) -> Requirement:
        if self.min is None and self.max is None:
            raise ValueError("expected min, max or both; add min = 0.9")
        return self


class GateTable(Table):
    """[gate]: when a change fails a build; read by `check`."""

    tolerance: float = Field(
        default=0.0, ge=0, description="Relative change that is accepted of what a simulation repeats exactly."
    )
    loss_band: float = Field(
        default=0.1, gt=0, description="Relative change of a loss that is accepted, since it depends on rounding."
    )
    max_slowdown: float = Field(default=0.05, gt=0, description="Relative change of a measured step time that counts.")
    alpha: float = Field(default=0.05, gt=0, le=0.5, description="Family-wise error rate of a measured comparison.")
    setup: list[str] = Field(default=[], description="Lines for a shell that a fresh checkout of the base needs.")
    require: list[Requirement] = Field(default=[])
