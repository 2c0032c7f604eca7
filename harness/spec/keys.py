"""Every key of a spec in words: what `wanbench list keys` says, and the reference in docs/ with it."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from wanbench.harness.spec.experiment import Spec

MEANINGS: Mapping[str, str] = {
    "schema": "The version of this format: 1.",
    "name": "The experiment's name; results go to results/NAME.",
    "description": "One sentence on what it asks.",
    "workload.name": "A built-in workload: `wanbench list workloads`.",
    "workload.params": "By numbers: parameters of the model, as 7_000_000_000.",
    "workload.tensors": "By numbers: into how many tensors they are divided.",
    "workload.model": 'A model of your own, "pkg.module:make", trained by wanbench\'s loop.',
    "workload.command": "A program of your own, as a list of arguments; {AXIS} is filled in from the sweep.",
    "workload.data": "The folder of a data set that is not bundled; looked for beside the spec first.",
    "workload.step_time": 'Mean time of a step of one worker, as "300ms"; "real": what a model that learns takes.',
    "workload.step_cv": "Standard deviation over mean of the step time, drawn anew for each step and worker.",
    "workload.payload_scale": "Factor above 0, up to 1, on message sizes, bucket sizes and rates.",
    "workload.step_times": 'Of a command: "hook": torch\'s optimizers tell its steps, the program is untouched.',
    "workload.warmup": "Of a command: steps left out at the beginning; 3 steps if not given.",
    "workload.nproc_per_worker": "Of a command: processes in each worker's network; 1 if not given.",
    "workload.timeout": "Of a command: a repetition that lasts longer is ended, and has failed; 600s if not given.",
    "network.profile": 'A catalog name, a .toml or .csv file, or "uniform": N sites of one worker, all pairs alike.',
    "network.rtt": 'Uniform only: round-trip time of every pair, as "80ms".',
    "network.rate": 'Uniform only: `up` and `down` of every worker\'s site, as "1Gbit".',
    "network.jitter": 'Uniform only: standard deviation of the one-way delay, as "2ms"; order is kept.',
    "network.loss": 'Uniform only: share of packets lost on every path, as "0.1%".',
    "network.rtt_scale": "Named profiles only: factor on all delays.",
    "network.rate_scale": "Named profiles only: factor on all rates.",
    "network.place": "Which worker sits where: ranks in blocks by site, in turn, or { SITE = COUNT }.",
    "network.tcp.congestion": "TCP's congestion control; set, read back and recorded.",
    "network.tcp.slow_start_after_idle": "Whether TCP forgets its window in a pause, as Linux does by default.",
    "comm.collective": "How an all-reduce travels; the last three are simulated only.",
    "comm.channels": "Of gloo, which runs two operations on each; auto: enough for what is in flight.",
    "comm.buckets": "Of ssgd: how large the parts are that leave during the backward pass.",
    "algorithms": "One table an algorithm: its parameters, and `kind` where the key is a name of your own.",
    "sweep": "Axes and their values, all crossed; [[sweep.include]] and [[sweep.exclude]] add and drop points.",
    "timeline.at": 'When, as "5s" or "40 steps" from the beginning of training.',
    "timeline.for": "How long; without it, to the end.",
    "timeline.where": 'A path "a -> b", a pair "a <-> b", a site, or a worker; everywhere if not given.',
    "timeline.every": "Again after so long.",
    "timeline.times": "So often.",
    "timeline.rtt": "Round-trip time, or a factor on it.",
    "timeline.one_way": "One-way delay, or a factor on it.",
    "timeline.jitter": "Jitter, or a factor on it.",
    "timeline.rate": "Rate, or a factor on it.",
    "timeline.loss": "Loss per packet.",
    "timeline.cut": "Nothing passes.",
    "timeline.traffic": "Rate that others take.",
    "timeline.trace": "A CSV file of values over time.",
    "timeline.slow": 'Factor on emulated compute, from the next step on; of at = "9 steps" a worker counts its own.',
    "timeline.kill": "Of a command: a worker's processes are killed, and started again when `for` is over.",
    "train.optimizer": "The local optimizer.",
    "train.lr": "Learning rate; with adamw 0.001 if not given.",
    "train.momentum": "Of sgd.",
    "train.nesterov": "Of sgd with momentum.",
    "train.weight_decay": "Added to the gradient by sgd; decoupled in adamw, and 0.01 there if not given.",
    "train.beta1": "Of adamw.",
    "train.beta2": "Of adamw.",
    "train.eps": "Of adamw.",
    "train.schedule": "The course of the learning rate.",
    "train.warmup_steps": "Steps in which the learning rate grows to its value.",
    "train.batch_size": "Samples of one worker in one step.",
    "train.shards": 'How data are divided: "iid", or "dirichlet:0.5" for a different mix of classes on each worker.',
    "train.folds": "Of digits: cut the images into so many parts; each seed is tested on one, in turn.",
    "train.eval_every": "Steps between evaluations; 0: at the end only.",
    "train.target": "An accuracy; the time to reach it becomes time_to_target_s.",
    "train.until": 'How long to train, at least, as "300 steps"; not shorter than the window.',
    "run.testbed": "What workers run in; auto is netns, never virtual.",
    "run.emulator": "What makes paths slow; auto is netem where the kernel has it, else relay.",
    "run.window": "Measured steps, at least; in multiples of the period.",
    "run.repeats": "Repetitions of every cell, with seeds of their own.",
    "run.seed": "Of the first repetition; the next ones count up.",
    "containers.image": "Of the testbed docker: what workers run; $WANBENCH_IMAGE, or wanbench-worker.",
    "containers.memory": 'Of each worker, swap included, as "2GiB".',
    "containers.cpuset": 'Processors, as "0-3", or a list of such by rank, repeated as often as needed.',
    "virtual.tcp_ramp": "Whether simulated TCP has a window that grows.",
    "gate.tolerance": "Relative change that is accepted of what a simulation repeats exactly.",
    "gate.loss_band": "Relative change of a loss that is accepted, since it depends on rounding.",
    "gate.max_slowdown": "Relative change of a measured step time that counts.",
    "gate.alpha": "Family-wise error rate of a measured comparison.",
    "gate.setup": "Lines for a shell that a fresh checkout of the base needs.",
    "gate.require.metric": "A column, such as scalability.",
    "gate.require.where": "The cells that are meant: { algorithm = LABEL, rtt = ... }.",
    "gate.require.over": "Other cells, to divide by: the claim is then about the ratio.",
    "gate.require.min": "At least this much.",
    "gate.require.max": "At most this much.",
}


@dataclass(frozen=True)
class Key:
    """One key: where it stands, what it takes, what holds without it ("" where nothing does), what it means."""

    name: str
    takes: str
    default: str
    meaning: str


def described() -> Iterator[Key]:
    """All keys in the order of the spec's tables. Raises: KeyError, for a key that nobody described."""
    return _keys(Spec, "")


def _keys(table: type[BaseModel], prefix: str) -> Iterator[Key]:
    for name, field in table.model_fields.items():
        dotted = f"{prefix}{field.alias or name}"
        below = next((t for t in _members(field.annotation) if isinstance(t, type) and issubclass(t, BaseModel)), None)
        if below is not None:
            yield from _keys(below, f"{dotted}.")
            continue
        default = field.default
        text = "required" if default is PydanticUndefined else _toml(default)
        yield Key(dotted, takes(field.annotation), text, MEANINGS[dotted])


def _members(annotation: Any) -> list[Any]:
    """The types that a union, a list or an annotated type is made of."""
    parts = [part for part in get_args(annotation) if part is not type(None)]
    return [annotation, *(inner for part in parts for inner in _members(part))]


def takes(annotation: Any) -> str:
    """A type in words, as a reader of TOML would say it."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return takes(parts[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(takes(part) for part in parts if part is not type(None)))
    if origin is Literal:
        return " or ".join(_toml(part) for part in parts)
    if origin is list:
        return f"list of {takes(parts[0])}s"
    if origin is dict:
        return "table"
    return {str: "string", int: "whole number", float: "number", bool: "true or false"}[annotation]


def _toml(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
