"""`attach`: an algorithm in a training loop with DistributedDataParallel, in place of its average."""

from typing import Any

import torch
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from wanbench.workloads.algorithms.base import Algorithm
from wanbench.workloads.algorithms.ssgd import SSGD
from wanbench.workloads.wrap.flat import WrapError
from wanbench.workloads.wrap.wrapped import Wrapped, check_call, of_the_program


def attach(
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    algorithm: Algorithm | str | None = None,
    **params: Any,
) -> Wrapped:
    """Make a loop with DistributedDataParallel follow an algorithm: as `wrap` on the module inside it.

    A communication hook lets DDP return each rank's own gradients, and all messages use its process group. The
    algorithm begins its exchange in `optimizer.step()`, not in the backward pass: what it sends must be what the step
    applies, after clipping and unscaling, and further backward passes can still add to it. Only `ssgd` without
    compression is left to DDP itself, which averages each bucket during the backward pass: gradients, clipping and
    speed are those of plain DDP. With `no_sync()`, gradients accumulate on their rank, and the step takes their sum.

    Example:
        >>> training = attach(DistributedDataParallel(module), optimizer, "delayed", delay=4)

    Args:
        model: with `forward_sync_buffers=False` if the module has buffers.
        optimizer, algorithm, params: as for `wrap`.

    Raises:
        TypeError, AlgorithmError, CommError: as for `wrap`.
        WrapError: as for `wrap`, or a setting of DDP would change the algorithm. The message names it.
    """
    check_call("attach", model, optimizer, algorithm, params)
    if not isinstance(model, DistributedDataParallel):
        raise WrapError(f"the model is a {type(model).__name__}, not in a DistributedDataParallel; call wanbench.wrap")
    arguments = of_the_program(algorithm, params, model.process_group)
    chosen = arguments["algorithm"]
    averaged = isinstance(chosen, SSGD) and chosen.compressor is None
    _check(model, averaged)
    training = Wrapped(model.module, optimizer, **arguments, averaged=averaged)
    if not averaged:
        model.register_comm_hook(None, _own)
        model.register_forward_pre_hook(_refuse_join)
    return training


def _check(model: DistributedDataParallel, averaged: bool) -> None:
    """Raises: WrapError: names a setting of DDP that would change the algorithm; fewer do if DDP itself averages."""
    trained = {name for name, parameter in model.module.named_parameters() if parameter.requires_grad}
    left_out = trained & model.parameters_to_ignore
    reasons = {
        "mixed_precision gives parameters other memory; use torch.autocast": model.mixed_precision is not None,
        "it has a communication hook, and takes no other": "comm_hook" in model._get_ddp_logging_data(),  # type: ignore[no-untyped-call]
    }
    if not averaged:
        reasons |= {
            "broadcast_buffers=True sets buffers to those of rank 0 in each forward pass; use "
            "forward_sync_buffers=False (before torch 2.13 broadcast_buffers=False)": model.broadcast_buffers
            and bool(model.modules_buffers),
            "find_unused_parameters=True waits for all ranks in each backward pass; use static_graph=True, or "
            "give each parameter a gradient": model.find_unused_parameters and not model.static_graph,
            f"parameter {min(left_out, default='')!r} is left out of it, by delay_all_reduce_named_params or "
            "_ddp_params_and_buffers_to_ignore": bool(left_out),
        }
    for reason, is_so in reasons.items():
        if is_so:
            raise WrapError(f"DistributedDataParallel: {reason}")


def _own(_state: None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Return the bucket of this rank as its average."""
    own: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    own.set_result(bucket.buffer())
    return own


def _refuse_join(model: torch.nn.Module, inputs: Any) -> None:
    if model._join_config.enable:  # type: ignore[union-attr]
        raise WrapError("DistributedDataParallel: join() is not supported; all ranks must make equally many steps")
