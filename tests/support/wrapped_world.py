"""Wrapped training loops on several ranks, as threads of one process, and the engine on the same gradients."""

from __future__ import annotations

import torch

from wanbench.testing import simulate
from wanbench.workloads.comm.local import run_replicas
from wanbench.workloads.wrap.wrapped import Wrapped

STEPS, SIZES = 23, ((4, 3), (4,), (5,))
NUMEL = 21


class Model(torch.nn.Module):
    """A model of three tensors whose gradients are set by hand."""

    def __init__(self, start):
        super().__init__()
        parts = start.split([12, 4, 5])
        self.a, self.b, self.c = (
            torch.nn.Parameter(part.view(size).clone()) for part, size in zip(parts, SIZES, strict=True)
        )

    def flat(self):
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters()])

    def set_gradients(self, g):
        for parameter, part in zip(self.parameters(), g.split([12, 4, 5]), strict=True):
            parameter.grad = part.view_as(parameter).clone()


def recorded(ranks, dtype=torch.float32, steps=STEPS):
    """Return initial parameters, and gradients of shape (steps, ranks, numel)."""
    random = torch.Generator().manual_seed(7)
    start = torch.randn(NUMEL, generator=random, dtype=dtype)
    return start, torch.randn(steps, ranks, NUMEL, generator=random, dtype=dtype)


def wrapped_run(make, make_optimizer, ranks=2, drain_after=(), restart_after=(), scheduler=None, dtype=torch.float32):
    """Return w of each rank after each step and after the last drain; shapes (steps, ranks, numel), (ranks, numel)."""
    start, gradients = recorded(ranks, dtype)

    def body(comm):
        model = Model(start)
        optimizer = make_optimizer(model.parameters())
        wrapped = Wrapped(model, optimizer, make(), comm)
        schedule = scheduler(optimizer) if scheduler else None
        history = []
        for step in range(STEPS):
            optimizer.zero_grad()
            model.set_gradients(gradients[step, comm.rank])
            optimizer.step()
            history.append(model.flat())
            if schedule:
                schedule.step()
            if step in drain_after or step in restart_after:
                wrapped.drain()
            if step in restart_after:
                saved = [part.state_dict() for part in (model, optimizer, wrapped)]
                model = Model(torch.zeros(NUMEL, dtype=dtype))
                optimizer = make_optimizer(model.parameters())
                wrapped = Wrapped(model, optimizer, make(), comm)
                for part, state in zip((model, optimizer, wrapped), saved, strict=True):
                    part.load_state_dict(state)
        wrapped.drain()
        return torch.stack(history), model.flat()

    results = run_replicas(ranks, body)
    return torch.stack([history for history, _ in results], dim=1), torch.stack([last for _, last in results])


def engine_run(make, config, ranks=2, drain_after=(), dtype=torch.float32):
    """Return the same for the order of calls of `workloads.loop.train`, with its optimiser."""
    start, gradients = recorded(ranks, dtype)
    trace = simulate(
        make,
        lambda rank, step, w: gradients[step, rank],
        config,
        start,
        steps=STEPS,
        world_size=ranks,
        drain_after=drain_after,
        shapes=SIZES,
    )
    return trace.w_at, trace.w
