"""`wrap`: an algorithm in a PyTorch training loop of one's own, installed by optimizer hooks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from wanbench.workloads.algorithms.base import Algorithm, Replica, Setting
from wanbench.workloads.algorithms.registry import from_environment
from wanbench.workloads.comm.base import Comm
from wanbench.workloads.comm.world import copy_from_rank_0, world
from wanbench.workloads.wrap.flat import FlatParameters, WrapError
from wanbench.workloads.wrap.optimizer import Followed

SEED = "WANBENCH_SEED"


def wrap(model: torch.nn.Module, optimizer: torch.optim.Optimizer, algorithm: Algorithm | None = None) -> Wrapped:
    """Let `optimizer.step()` follow an algorithm: `wrap(model, optimizer, DTS(delay=4, period=4))`.

    Called once, on every rank, after `torch.distributed.init_process_group("gloo")`. Parameters and buffers of the
    model become those of rank 0. The loop stays as it is: each `optimizer.step()` is a step of the algorithm, so all
    ranks make equally many. Before an evaluation, before a checkpoint and at the end, `drain()`.

    Args:
        model: not wrapped in anything that averages gradients by itself.
        optimizer: torch.optim.SGD or torch.optim.AdamW over parameters of the model.
        algorithm: None takes what the environment names: WANBENCH_ALGORITHM, a kind, and WANBENCH_PARAMS, its
            parameters as JSON; a spec with `workload.command` sets both. A lone worker then trains without one.

    Raises:
        WrapError: model or optimizer are not what they should be.
        AlgorithmError: the environment names no algorithm, or it does not go with optimizer or number of workers.
        CommError: there is no process group, or not of gloo.
    """
    _check(model, optimizer)
    comm = world()
    if algorithm is None:
        named = from_environment(os.environ)
        algorithm = named if comm.world_size > 1 else Algorithm()
    return Wrapped(model, optimizer, algorithm, comm, seed=_seed(os.environ), make_equal=copy_from_rank_0)


class Wrapped:
    """An algorithm at work in a training loop; made by `wrap`.

    Attributes:
        algorithm: which.
        steps: how many the optimizer has made.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        algorithm: Algorithm,
        comm: Comm,
        *,
        seed: int = 0,
        make_equal: Callable[[list[torch.Tensor]], None] | None = None,
    ) -> None:
        """Install the hooks.

        Args:
            model, optimizer, algorithm: as of `wrap`.
            comm: the peers.
            seed: equal on all ranks.
            make_equal: gives the model's parameters and buffers the same values on all ranks.
        """
        followed = Followed(optimizer)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        self._flat = FlatParameters(optimizer, names)
        self.algorithm, self.steps = algorithm, 0
        algorithm.check(_setting(followed, comm, self._flat))
        if make_equal is not None:
            make_equal([*model.parameters(), *model.buffers()])
        self._comm, self._drained = comm, True
        self._replica = Replica(
            w=self._flat.w, m=self._flat.m, optimizer=followed, comm=comm, shapes=self._flat.shapes, seed=seed
        )
        with torch.no_grad():
            algorithm.start(self._replica)
        optimizer.register_step_pre_hook(self._before_step)
        optimizer.register_step_post_hook(self._after_step)
        # torch.amp.GradScaler then leaves it to the step what to do with an overflow, and never skips one.
        optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]

    @torch.no_grad()
    def drain(self) -> None:
        """Wait for everything in flight and apply it; all ranks do this after the same step. Training may go on.

        Raises:
            CommError: a peer is gone.
        """
        self._flat.follow()
        self.algorithm.finish()
        self._drained = True

    def state_dict(self) -> dict[str, Any]:
        """What this rank's algorithm knows, after `drain`; it goes beside the model's and the optimizer's.

        Numbers, text, lists, tables and tensors, so that `torch.load` reads it with `weights_only`.

        Raises:
            WrapError: steps were made since the last `drain`.
            AlgorithmError: an algorithm of one's own keeps what cannot be stored.
        """
        self._refuse_in_flight("state_dict")
        return {**self._identity(), "steps": self.steps, "state": self.algorithm.state_dict()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint of this rank, after `load_state_dict` of model and optimizer.

        Raises:
            WrapError: it is that of another algorithm, rank or number of workers, or steps were made since `drain`.
            AlgorithmError: as of `state_dict`.
        """
        self._refuse_in_flight("load_state_dict")
        for name, here in self._identity().items():
            if state.get(name) != here:
                raise WrapError(f"checkpoint: {name} is {state.get(name)!r}, expected {here!r}")
        self._flat.follow()
        self.algorithm.load_state_dict(state["state"])
        self.steps, self._drained = state["steps"], True

    def _refuse_in_flight(self, what: str) -> None:
        if not self._drained:
            raise WrapError(f"{what}: averages are in flight; call drain() first, on all ranks")

    def _identity(self) -> dict[str, Any]:
        comm = self._comm
        return {"algorithm": self.algorithm.label, "rank": comm.rank, "world_size": comm.world_size}

    @torch.no_grad()
    def _before_step(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if any(closure is not None for closure in (*args[1:], kwargs.get("closure"))):
            raise WrapError("optimizer.step(closure): expected a step without one, after loss.backward()")
        self._flat.follow()
        g = self._flat.collect()
        _unscale(optimizer, g)
        self._drained = False
        self._replica.step = self.steps
        self._replica.optimizer.advance(self.steps)
        applied = self.algorithm.gradient(g)
        if applied is not g:
            g.copy_(applied)  # type: ignore[arg-type]

    @torch.no_grad()
    def _after_step(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        del optimizer, args, kwargs
        self._flat.follow()
        self.algorithm.stepped()
        self.steps += 1


def _seed(environment: Mapping[str, str]) -> int:
    text = environment.get(SEED, "0")
    if not text.isdecimal():
        raise WrapError(f"{SEED}={text}; expected a whole number, 0 or more")
    return int(text)


def _check(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for module in model.modules():
        name = type(module).__name__
        if name in ("DistributedDataParallel", "FullyShardedDataParallel"):
            raise WrapError(f"the model is in a {name}, which averages by itself; give wrap the model inside")
    if any(isinstance(getattr(hook, "__self__", None), Wrapped) for hook in _hooks(optimizer)):
        raise WrapError("this optimizer is wrapped already")
    own = {id(parameter) for parameter in model.parameters()}
    for group in optimizer.param_groups:
        if any(id(parameter) not in own for parameter in group["params"]):
            raise WrapError("the optimizer has parameters that are not the model's; make it from model.parameters()")


def _hooks(optimizer: torch.optim.Optimizer) -> Iterable[object]:
    return optimizer._optimizer_step_pre_hooks.values()


def _setting(followed: Followed, comm: Comm, flat: FlatParameters) -> Setting:
    unequal = followed.unequal
    kind = "sgd" if followed.is_sgd else "adamw"
    if unequal:  # no algorithm that needs SGD's linearity can do with these
        kind += f" with parameter groups that differ in {' and '.join(unequal)}"
    return Setting(
        workers=comm.world_size,
        collective="gloo",
        optimizer=kind,
        momentum=0.0 if "momentum" in unequal else followed.momentum,
        nesterov=False if "nesterov" in unequal else followed.nesterov,
        weight_decay=0.0 if "weight_decay" in unequal else followed.weight_decay,
        shapes=flat.shapes,
    )


def _unscale(optimizer: torch.optim.Optimizer, g: torch.Tensor) -> None:
    """What `torch.amp.GradScaler` asks for: an overflow counts as a zero gradient, so that the ranks stay in step."""
    found_inf, scale = getattr(optimizer, "found_inf", None), getattr(optimizer, "grad_scale", None)
    if scale is not None:
        g.mul_(float(scale.double().reciprocal()))
        optimizer.grad_scale = None  # type: ignore[attr-defined]
    if found_inf is not None:
        if float(found_inf):
            g.zero_()
        optimizer.found_inf = None  # type: ignore[attr-defined]
