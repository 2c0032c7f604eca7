"""`wrap`: an algorithm in a user's own PyTorch training loop, installed by optimizer hooks."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING
from functools import partial
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from wanbench.workloads.algorithms.base import Algorithm, Replica, Setting
from wanbench.workloads.algorithms.registry import create, from_environment
from wanbench.workloads.comm.base import Comm, Vector
from wanbench.workloads.comm.gloo import copy_from_rank_0, formed
from wanbench.workloads.compute.optim import SGD, SGDConfig
from wanbench.workloads.parameters import default_of
from wanbench.workloads.wrap.flat import AGAIN, FlatParameters, WrapError, local, momentum_of

SEED = "WANBENCH_SEED"
_AVERAGING = {
    "DistributedDataParallel": "call wanbench.attach in place of wrap",
    "FullyShardedDataParallel": "shard the module inside it with fully_shard, and pass mesh=...",
}
_WRAPPING = ("accelerate", "lightning", "lightning_fabric", "pytorch_lightning")
"""Packages whose optimizers forward each step to the one in their attribute `optimizer`."""


def wrap(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    algorithm: Algorithm | str | None = None,
    *,
    mesh: DeviceMesh | None = None,
    **params: Any,
) -> Wrapped:
    """Make `optimizer.step()` follow an algorithm, in your own training loop.

    Call it once on every rank, after `torch.distributed.init_process_group("gloo")`. Parameters and buffers of the
    model are set to those of rank 0. The loop stays as it is: each `optimizer.step()` is one step of the algorithm, so
    all ranks must make equally many. Call `drain()` before an evaluation or a checkpoint, and `final()` at the end.

    Example:
        >>> training = wrap(model, optimizer, "dts", delay=4, period=4)

    Args:
        model: the bare module; for one inside DistributedDataParallel, call `attach`.
        optimizer: any that computes gradients once a step, over parameters of the model. A wrapper of accelerate or
            Lightning is looked into. Methods that correct gradients exactly need torch.optim.SGD.
        algorithm: a name, or an instance such as `DTS(delay=4, period=4)`. None takes the one that the environment
            names: WANBENCH_ALGORITHM, and WANBENCH_PARAMS with its parameters as JSON, as a sweep sets them. A single
            worker then trains without an algorithm.
        mesh: the ranks with which this one averages, as a dimension of a DeviceMesh; None are all. A model that
            `fully_shard` has sharded needs it: `mesh["site"]`, if it was sharded over `mesh["shard"]`.
        params: parameters of an algorithm given by name, as in a spec. `wanbench show algorithm NAME` lists them.

    Raises:
        TypeError: the call is wrong; the message shows the right one.
        WrapError: wrap cannot work with this model or optimizer.
        AlgorithmError: no such algorithm or parameter, or it does not support this optimizer or number of workers.
        CommError: there is no process group, or its backend is not gloo.
    """
    check_call("wrap", model, optimizer, algorithm, params)
    group = None if mesh is None else mesh.get_group()
    _check_whole(model, group)
    return Wrapped(model, optimizer, **of_the_program(algorithm, params, group))


def of_the_program(
    algorithm: Algorithm | str | None, params: Mapping[str, object], group: Any = None
) -> dict[str, Any]:
    """Return the arguments of `Wrapped` that follow from a call, the process group and the environment."""
    chosen = create(algorithm, params) if isinstance(algorithm, str) else algorithm
    comm = formed(group)
    if chosen is None:
        named = from_environment(os.environ)
        chosen = named if comm.world_size > 1 else Algorithm()
    make_equal = partial(copy_from_rank_0, group=group)
    return {"algorithm": chosen, "comm": comm, "seed": _seed(os.environ), "make_equal": make_equal}


class Wrapped:
    """An algorithm at work in a training loop, as returned by `wrap`.

    Attributes:
        algorithm: the algorithm that runs.
        steps: number of steps that the optimizer has made.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        algorithm: Algorithm,
        comm: Comm,
        *,
        seed: int = 0,
        make_equal: Callable[[list[torch.Tensor]], None] = lambda tensors: None,
        averaged: bool = False,
    ) -> None:
        """Install the hooks.

        Args:
            model, optimizer: as for `wrap`. algorithm: an instance. comm: connects the peers.
            seed: must be equal on all ranks.
            make_equal: sets tensors of the model to the values of rank 0, on all ranks.
            averaged: the gradients are already the averages that the algorithm would make, and steps need no more.
        """
        optimizer = _inside(optimizer)
        followed = Followed(optimizer)
        self._model, self._parameters = model, dict(model.named_parameters())
        self._flat = FlatParameters(optimizer, {id(parameter): name for name, parameter in self._parameters.items()})
        self.algorithm, self.steps = algorithm, 0
        algorithm.check(_setting(followed, comm, self._flat))
        self._make_equal = make_equal
        make_equal(self._tensors())
        self._comm, self._drained, self._ended = comm, True, False
        # Then replicas differ between steps, and a change of the program's would stay on this rank alone.
        self._defers = comm.world_size > 1 and (algorithm.delay_steps > 0 or algorithm.period_steps > 1)
        self._replica = Replica(
            w=self._flat.w, m=self._flat.m, optimizer=followed, comm=comm, shapes=self._flat.shapes, seed=seed
        )
        with torch.no_grad():
            algorithm.start(self._replica)
            self._flat.write()
        self._install(optimizer, averaged)

    def _install(self, optimizer: torch.optim.Optimizer, averaged: bool) -> None:
        if averaged:
            optimizer.register_step_pre_hook(self._refuse_ended)
            optimizer.register_step_post_hook(self._count)
            return
        optimizer.register_step_pre_hook(self._before_step)
        optimizer.register_step_post_hook(self._after_step)
        # torch.amp.GradScaler then never skips a step: the step itself handles an overflow.
        optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]

    @torch.no_grad()
    def drain(self) -> None:
        """Wait for all averages in flight and apply them. Training may continue afterwards.

        All ranks must call this after the same step.

        Raises:
            CommError: a peer is gone.
        """
        self._follow()
        self.algorithm.finish()
        self._flat.write()
        self._drained = True

    @torch.no_grad()
    def final(self) -> None:
        """End the training with the model to keep, equal to the bit on all ranks: `drain`, then average over the ranks.

        Parameters and floating-point buffers become their means, in place; other buffers become those of rank 0. If the
        ranks never communicated, all have the model of rank 0. All ranks must call this after the same step, and
        training cannot continue afterwards.

        Raises:
            CommError: a peer is gone.
        """
        self.drain()
        tensors = self._tensors()
        if type(self.algorithm) is not Algorithm:
            floats = [tensor for tensor in tensors if tensor.is_floating_point()]
            mean = torch.cat([tensor.reshape(-1).to(self._flat.w) for tensor in floats])
            self._comm.all_reduce(mean).wait()
            for tensor, part in zip(floats, torch.split(mean, [tensor.numel() for tensor in floats]), strict=True):
                tensor.copy_(part.view_as(tensor))
        self._make_equal(tensors)
        self._ended = True

    def _tensors(self) -> list[torch.Tensor]:
        return [local(tensor) for tensor in (*self._model.parameters(), *self._model.buffers())]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this rank's algorithm, to store beside those of the model and the optimizer.

        Call `drain` first. The state holds numbers, text, lists, dicts and tensors only, so `torch.load` reads it with
        `weights_only=True`.

        Raises:
            WrapError: steps were made since the last `drain`.
            AlgorithmError: your own algorithm keeps something that cannot be stored.
        """
        self._refuse_in_flight("state_dict")
        return {**self._identity(), "steps": self.steps, "state": self.algorithm.state_dict()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint of this rank. Load the states of model and optimizer first.

        Args:
            state: as returned by `state_dict` on this rank.

        Raises:
            WrapError: the checkpoint is of another algorithm, rank or number of workers, or steps were made since the
                last `drain`.
            AlgorithmError: the checkpoint lacks something.
        """
        self._refuse_in_flight("load_state_dict")
        for name, here in self._identity().items():
            if state.get(name) != here:
                raise WrapError(f"checkpoint: {name} is {state.get(name)!r}, but this is {here!r}")
        self._flat.follow()
        self.algorithm.load_state_dict(state["state"])
        self.steps, self._drained = state["steps"], True

    def _refuse_in_flight(self, what: str) -> None:
        self._refuse_ended()
        if not self._drained:
            raise WrapError(f"{what}: averages are in flight; call drain() first, on all ranks")

    def _refuse_ended(self, *_: Any) -> None:
        if self._ended:
            raise WrapError("final() has ended this training; wrap a new optimizer to go on from its model")

    def _identity(self) -> dict[str, Any]:
        comm = self._comm
        return {"algorithm": self.algorithm.label, "rank": comm.rank, "world_size": comm.world_size}

    @torch.no_grad()
    def _before_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = _with_gradients(args, kwargs)
        self._check_replaced(optimizer)
        self._follow()
        g = self._flat.collect()
        _unscale(optimizer, g)
        self._drained = False
        self._replica.step = self.steps
        self._replica.optimizer.advance(self.steps)
        applied = self.algorithm.gradient(g)
        if applied is not g:
            g.copy_(applied)  # type: ignore[arg-type]
        self._flat.write(g)
        return args, kwargs

    def _follow(self) -> None:
        """Take what the program has changed since the last step. Raises: WrapError: it may not change now."""
        self._refuse_ended()
        self._flat.follow()
        if self._defers and not self._drained:
            self._flat.check_same()

    def _check_replaced(self, optimizer: torch.optim.Optimizer) -> None:
        """Raises: WrapError: names a parameter that is no longer the optimizer's, or another hook changes gradients."""
        if self._defers and list(_hooks(optimizer))[-1] != self._before_step:
            raise WrapError(
                "a step pre-hook was registered after wrap, and would change the gradients of this rank alone; "
                "register it before wrap"
            )
        now, trained = dict(self._model.named_parameters()), _parameters(optimizer)
        before, present = set(map(id, self._parameters.values())), set(map(id, now.values()))
        new = [name for name, parameter in now.items() if parameter.requires_grad and id(parameter) not in before]
        lost = [name for name, parameter in self._parameters.items() if id(parameter) in trained - present]
        for name in new + lost:
            raise WrapError(
                f"parameter {name!r} of the model was replaced, added or removed after wrap, unlike in the optimizer; "
                f"change values in place (load_state_dict without assign=True), or {AGAIN}"
            )

    def _count(self, *_: Any) -> None:
        self.steps += 1

    @torch.no_grad()
    def _after_step(self, *_: Any) -> None:
        self._flat.follow()
        self.algorithm.stepped()
        self._flat.write()
        self._count()
        if self._defers:
            self._flat.remember()


def _seed(environment: Mapping[str, str]) -> int:
    text = environment.get(SEED, "0")
    if not text.isdecimal():
        raise WrapError(f"{SEED}={text}: expected a whole number, 0 or more")
    return int(text)


def _inside(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Return the optimizer whose hooks fire at each step: the one in a wrapper of accelerate or Lightning."""
    while type(optimizer).__module__.partition(".")[0] in _WRAPPING:
        optimizer = optimizer.optimizer  # type: ignore[attr-defined]
    return optimizer


def _with_gradients(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Call the closure of a step, which computes the gradients, and put in its place one that returns its loss."""
    optimizer, *rest = args
    closure = rest[0] if rest else kwargs.get("closure")
    if closure is None:
        return args, kwargs
    with torch.enable_grad():
        losses = [closure()]

    def computed() -> Any:
        if not losses:
            raise WrapError("the optimizer computes gradients more than once in a step; wrap averages them once a step")
        return losses.pop()

    return ((optimizer, computed, *rest[1:]), kwargs) if rest else (args, {**kwargs, "closure": computed})


def _check(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    if any(isinstance(getattr(hook, "__self__", None), Wrapped) for hook in _hooks(optimizer)):
        raise WrapError("this optimizer is already wrapped; call wrap once")
    if _parameters(optimizer) - set(map(id, model.parameters())):
        raise WrapError("the optimizer has parameters that the model lacks; make it from model.parameters()")


def _check_whole(model: torch.nn.Module, group: dist.ProcessGroup | None) -> None:
    """Raises: WrapError: names a module that averages, or a parameter of which the group holds different shards."""
    for module in model.modules():
        if (kind := type(module).__name__) in _AVERAGING:
            raise WrapError(f"the model is in a {kind}, which averages gradients itself; {_AVERAGING[kind]}")
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "device_mesh"):
            peers = {*dist.get_process_group_ranks(group)} & {*parameter.device_mesh.mesh.flatten().tolist()}
            if peers != {dist.get_rank()}:
                raise WrapError(
                    f"parameter {name!r} is sharded over ranks {sorted(peers)}, which would be averaged; pass "
                    'mesh=mesh["site"], the dimension along which ranks hold the same shard'
                )


def _parameters(optimizer: torch.optim.Optimizer) -> set[int]:
    """The ids of an optimizer's parameters."""
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def _hooks(optimizer: torch.optim.Optimizer) -> Iterable[object]:
    return getattr(optimizer, "_optimizer_step_pre_hooks", {}).values()


def _setting(followed: Followed, comm: Comm, flat: FlatParameters) -> Setting:
    unequal, first = followed.unequal, followed.groups[0]
    differ = f" with parameter groups that differ in {' and '.join(unequal)}" if unequal else ""
    return Setting(
        workers=comm.world_size,
        collective="gloo",
        optimizer=followed.kind + differ,  # algorithms that need SGD's linearity refuse this
        momentum=0.0 if "momentum" in unequal else first.momentum,
        nesterov=False if "nesterov" in unequal else first.nesterov,
        weight_decay=0.0 if "weight_decay" in unequal else first.weight_decay,
        shapes=flat.shapes,
    )


def _unscale(optimizer: torch.optim.Optimizer, g: torch.Tensor) -> None:
    """Do what `torch.amp.GradScaler` leaves to the step: an overflow counts as a zero gradient on this rank."""
    found_inf, scale = getattr(optimizer, "found_inf", None), getattr(optimizer, "grad_scale", None)
    if scale is not None:
        g.mul_(float(scale.double().reciprocal()))
        optimizer.grad_scale = None  # type: ignore[attr-defined]
    if found_inf is not None:
        if float(found_inf):
            g.zero_()
        optimizer.found_inf = None  # type: ignore[attr-defined]


_EXAMPLE = 'call wrap(model, optimizer, "dts", delay=4, period=4)'


def check_call(name: str, model: object, optimizer: object, algorithm: object, params: Mapping[str, object]) -> None:
    """Check the arguments of `wrap`, or of `attach`. Raises: TypeError, WrapError."""
    problem = _of_the_loop(model, optimizer) or _of_the_algorithm(algorithm, params)
    if problem:
        raise TypeError(problem.replace("wrap", name))
    _check(cast(torch.nn.Module, model), _inside(cast(torch.optim.Optimizer, optimizer)))


def _of_the_loop(model: object, optimizer: object) -> str | None:
    if isinstance(model, torch.optim.Optimizer) and isinstance(optimizer, torch.nn.Module):
        return "wrap: model and optimizer are swapped; call wrap(model, optimizer, ...)"
    if not isinstance(model, torch.nn.Module):
        return f"wrap: model: expected a torch.nn.Module, got {_described(model)}; {_EXAMPLE}"
    if isinstance(optimizer, str | Algorithm):
        given = _instance(optimizer, {}) if isinstance(optimizer, Algorithm) else repr(optimizer)
        return f"wrap(model, {given}): the optimizer is missing; call wrap(model, optimizer, {given})"
    if not isinstance(optimizer, torch.optim.Optimizer):
        return f"wrap: optimizer: expected a torch.optim.Optimizer, got {_described(optimizer)}; {_EXAMPLE}"
    return None


def _of_the_algorithm(algorithm: object, params: Mapping[str, object]) -> str | None:
    if isinstance(algorithm, Algorithm):
        if not params:
            return None
        right = _instance(algorithm, params)
        return f"wrap: {_written(params)} beside an instance; call wrap(model, optimizer, {right})"
    if isinstance(algorithm, type) and issubclass(algorithm, Algorithm):
        required = [f"{name}=..." for name, item in algorithm.parameters().items() if default_of(item) is MISSING]
        made = f"{algorithm.__name__}({_written(params) or ', '.join(required)})"
        return f"wrap: {algorithm.__name__} is a class, not an instance; call wrap(model, optimizer, {made})"
    if algorithm is None and params:
        return f"wrap: {_written(params)} without an algorithm; {_EXAMPLE}"
    if not isinstance(algorithm, str | None):
        return f"wrap: algorithm: expected a name or an instance, got {_described(algorithm)}; {_EXAMPLE}"
    return None


def _instance(algorithm: Algorithm, params: Mapping[str, object]) -> str:
    """How to write an instance, without defaults, with `params` in place of its own."""
    items = algorithm.parameters()
    kept = {name: value for name, value in algorithm.params().items() if value != default_of(items[name])}
    return f"{type(algorithm).__name__}({_written({**kept, **params})})"


def _written(params: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in params.items())


def _described(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"an object of type {type(value).__name__}"


class _Settings(NamedTuple):
    """The settings of a parameter group that algorithms can use; all but `lr` only where their meaning is known."""

    lr: float | None
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    dampening: float = 0.0
    maximize: bool = False


class Followed:
    """An `Optimizer` over one of torch's or of the user, whose settings schedulers can change at any time.

    For `torch.optim.SGD` it also has the methods of `workloads.compute.optim.SGD`. Torch takes the step itself.

    Attributes:
        groups: the current settings of each parameter group; weight decay is coupled with SGD, decoupled with AdamW.

    Raises:
        WrapError: its step needs a closure, or its class is unfinished.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        name = type(optimizer).__name__
        _, *arguments = inspect.signature(type(optimizer).step).parameters.values()
        if any(item.default is item.empty and item.kind is item.POSITIONAL_OR_KEYWORD for item in arguments):
            raise WrapError(f"optimizer {name}: its step needs a closure, and computes gradients more than once")
        if not hasattr(optimizer, "_optimizer_step_pre_hooks"):
            raise WrapError(f"optimizer {name}: its class does not call Optimizer.__init__, so it has no step hooks")
        self._optimizer, self._momentum = optimizer, momentum_of(optimizer)
        self.groups = self._groups()
        self._sgd: SGD | None = None

    @property
    def kind(self) -> str:
        """The optimizer in a `Setting`: "sgd" only if its step is linear in the gradients."""
        cls, first = type(self._optimizer), self.groups[0]
        if self._momentum != "momentum_buffer":
            return cls.__name__.lower() if cls.__module__.startswith("torch.") else f"{cls.__module__}.{cls.__name__}"
        return "sgd" + "".join(f" with {name}" for name in ("dampening", "maximize") if getattr(first, name))

    @property
    def unequal(self) -> list[str]:
        """The settings that currently differ between parameter groups."""
        return [name for name, *values in zip(_Settings._fields, *self.groups, strict=True) if len(set(values)) > 1]

    @property
    def lr(self) -> float:
        """The learning rate of the current step."""
        lr = self._shared("lr").lr
        if lr is None:
            raise WrapError("the optimizer has no lr, which this algorithm needs")
        return lr

    @property
    def momentum(self) -> float:
        """beta, or Adam's beta1; with 0 the momentum buffer is never used, or unknown."""
        return self._shared("momentum").momentum

    def advance(self, step: int) -> None:
        """Begin a new step. Raises: WrapError: momentum, dampening or maximize was switched on or off."""
        before, self.groups, self._sgd = self.groups, self._groups(), None
        if [_switches(group) for group in before] != [_switches(group) for group in self.groups]:
            raise WrapError("momentum, dampening or maximize was switched on or off after wrap; set it before wrap")

    def step(self, w: Vector, m: Vector, g: Vector) -> None:
        """Take one step of SGD on vectors of the algorithm."""
        self._linear().step(w, m, g)

    def lasting(self, w: Vector) -> Sequence[Vector]:
        """None: the user's optimiser keeps its own."""
        return ()

    def respond(self, w: float, m: float, g: float = 0.0) -> tuple[float, float]:
        return self._linear().respond(w, m, g)

    def _linear(self) -> SGD:
        if self._sgd is None:
            if self.kind != "sgd":
                raise WrapError(f"this algorithm repeats the optimizer's step, which needs 'sgd', not '{self.kind}'")
            shared = self._shared(*_Settings._fields)
            self._sgd = SGD(
                SGDConfig("sgd", 1.0, shared.weight_decay, momentum=shared.momentum, nesterov=shared.nesterov)
            )
            self._sgd.lr = self.lr  # a spec cannot set 0, but schedulers begin with it
        return self._sgd

    def _shared(self, *names: str) -> _Settings:
        """Return the settings, of which all groups must share these. Raises: WrapError."""
        differing = [name for name in self.unequal if name in names]
        if differing:
            raise WrapError(f"parameter groups differ in {', '.join(differing)}; this algorithm needs equal ones")
        return self.groups[0]

    def _groups(self) -> list[_Settings]:
        return [_settings(group, self._momentum) for group in self._optimizer.param_groups]


def _switches(group: _Settings) -> tuple[bool, bool, bool]:
    return group.momentum > 0, group.dampening > 0, group.maximize


def _settings(group: dict[str, Any], momentum: str | None) -> _Settings:
    lr = None if group.get("lr") is None else float(group["lr"])
    if momentum is None:
        return _Settings(lr)
    if momentum == "exp_avg":
        return _Settings(lr, float(group["betas"][0]), weight_decay=float(group["weight_decay"]))
    return _Settings(
        lr,
        float(group["momentum"]),
        bool(group["nesterov"]),
        float(group["weight_decay"]),
        float(group["dampening"]),
        bool(group["maximize"]),
    )
