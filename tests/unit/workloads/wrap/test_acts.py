"""`wrap` never trains alone unnoticed: what programs do to a model and its optimizer is followed, or refused at once.

The oracle is plain torch: a model and an optimizer for each rank, which undergo the same acts, and whose gradients (or
models) this file averages by hand.
"""

from __future__ import annotations

import random
from functools import partial

import pytest
import torch
from torch import nn

from wanbench import DTS, SSGD
from wanbench.workloads.algorithms.localsgd import LocalSGD
from wanbench.workloads.comm.local import run_replicas
from wanbench.workloads.wrap.flat import WrapError
from wanbench.workloads.wrap.wrapped import Wrapped

RANKS, STEPS = 2, 5


class Model(nn.Module):
    """A matrix that is equal to its shape transposed, two vectors of one shape, and a convolution."""

    def __init__(self, seed=0):
        super().__init__()
        draw = partial(torch.randn, generator=torch.Generator().manual_seed(seed))
        self.square, self.b, self.c, self.conv = (
            nn.Parameter(draw(shape)) for shape in ((3, 3), (4,), (4,), (2, 3, 2, 2))
        )

    def loss(self, step, rank):
        """The gradient of p is p less a target, whatever the layout of p: no kernel rounds differently."""
        draw = torch.Generator().manual_seed(1 + RANKS * step + rank)
        return sum(
            ((p - torch.randn(p.shape, generator=draw)) ** 2).sum() / 2 for p in self.parameters() if p.requires_grad
        )


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)


def optimizer_of(model, kind):
    return sgd(model) if kind == "sgd" else torch.optim.AdamW(model.parameters(), lr=0.01)


# ---------------------------------------------------------------- acts that are followed


def there_and_back(model, optimizer):
    model.double().float()


def through_half(model, optimizer):
    model.bfloat16().float()


def channels_last(model, optimizer):
    model.to(memory_format=torch.channels_last)


def new_memory(model, optimizer):
    model.b.data = model.b.data * 0.5


def transposed(model, optimizer):
    model.square.data = model.square.data.t()  # the same memory, read in another order


def exchanged(model, optimizer):
    model.b.data, model.c.data = model.c.data, model.b.data


def loaded(model, optimizer):
    model.load_state_dict({name: value * 0.9 for name, value in model.state_dict().items()})


def optimizer_loaded(model, optimizer):
    optimizer.load_state_dict(optimizer.state_dict())


def state_cleared(model, optimizer):
    optimizer.state.clear()


def buffers(optimizer):
    keys = ("momentum_buffer", "exp_avg")
    return [(state, key) for state in optimizer.state.values() for key in keys if state.get(key) is not None]


def state_replaced(model, optimizer):
    for state, key in buffers(optimizer):
        state[key] = 0.5 * state[key]


def state_given_other_memory(model, optimizer):
    for state, key in buffers(optimizer):
        state[key].data = 0.5 * state[key].data


def states_exchanged(model, optimizer):
    b, c = optimizer.state.get(model.b), optimizer.state.get(model.c)
    for key in ("momentum_buffer", "exp_avg"):
        if b and key in b:
            b[key], c[key] = c[key], b[key]


def zeroed(model, optimizer):
    optimizer.zero_grad(set_to_none=False)


def none(model, optimizer):
    optimizer.zero_grad()


def frozen_for_a_while(model, optimizer):
    model.requires_grad_(False).requires_grad_(True)


def rate(model, optimizer):
    optimizer.param_groups[0]["lr"] *= 0.5


def clipped(model, optimizer):
    nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], 1.0)


def grads(model):
    return [p for p in model.parameters() if p.grad is not None]


def grad_given_other_memory(model, optimizer):
    for p in grads(model):
        p.grad.data = p.grad.data.clamp(-1, 1)


def grad_replaced(model, optimizer):
    for p in grads(model):
        p.grad = p.grad * 2


def grad_missing(model, optimizer):
    model.c.grad = None


def grads_exchanged(model, optimizer):
    model.b.grad, model.c.grad = model.c.grad, model.b.grad


def grad_shared(model, optimizer):
    model.b.grad = model.c.grad


def grad_transposed(model, optimizer):
    if model.square.grad is not None:
        model.square.grad.data = model.square.grad.data.t()


def grad_of_other_type(model, optimizer):
    for p in grads(model):
        p.grad.data = p.grad.data.double()


BETWEEN_STEPS = [
    there_and_back,
    through_half,
    channels_last,
    new_memory,
    transposed,
    exchanged,
    loaded,
    optimizer_loaded,
    state_cleared,
    state_replaced,
    state_given_other_memory,
    states_exchanged,
    zeroed,
    none,
    frozen_for_a_while,
    rate,
]
BEFORE_A_STEP = [
    there_and_back,
    channels_last,
    clipped,
    grad_given_other_memory,
    grad_replaced,
    grad_missing,
    grads_exchanged,
    grad_shared,
    grad_transposed,
    grad_of_other_type,
    transposed,
    exchanged,
    optimizer_loaded,
]

# ---------------------------------------------------------------- acts that are refused, with what the message names


def doubled(model, optimizer):
    r"""'square' was converted after wrap, from float32, \(3, 3\) on cpu to float64, \(3, 3\) on cpu; do that before"""
    model.double()


def halved(model, optimizer):
    """'square' was converted after wrap"""
    model.bfloat16()


def frozen(model, optimizer):
    """'c' was frozen or removed from the optimizer after wrap; do that before wrap, or drain first and wrap a new"""
    model.c.requires_grad_(False)


def removed(model, optimizer):
    """'conv' was frozen or removed from the optimizer after wrap"""
    optimizer.param_groups[0]["params"].pop()


def group_added(model, optimizer):
    """parameter 'without a name' was unfrozen or added to the optimizer after wrap"""
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})


def replaced(model, optimizer):
    """'c' of the model was replaced, added or removed after wrap"""
    model.c = nn.Parameter(torch.zeros(4))


def layer_added(model, optimizer):
    """'layer.weight' of the model was replaced, added or removed after wrap"""
    model.layer = nn.Linear(2, 2)


def assigned(model, optimizer):
    r"""change values in place \(load_state_dict without assign=True\)"""
    model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()}, assign=True)


def tied(model, optimizer):
    """'c' of the model was replaced, added or removed after wrap"""
    model.c = model.b


def reshaped(model, optimizer):
    r"""'b' was converted after wrap, from float32, \(4,\) on cpu to float32, \(2, 2\) on cpu"""
    model.b.grad = None
    model.b.data = model.b.data.view(2, 2)


REFUSED = [doubled, halved, frozen, removed, group_added, replaced, layer_added, assigned, tied, reshaped]

# ---------------------------------------------------------------- sequences


def sequence(seed):
    """Draw steps, and an act to be refused at the end, or None.

    A step is whether it begins with `drain`, and the acts before and after its backward pass.
    """
    draw = random.Random(seed)
    counts = (0, 1, 1, 2)
    steps = [
        (draw.random() < 0.8, *(draw.sample(acts, draw.choice(counts)) for acts in (BETWEEN_STEPS, BEFORE_A_STEP)))
        for _ in range(STEPS)
    ]
    return steps, draw.choice(REFUSED) if draw.random() < 0.3 else None


def apply(acts, model, optimizer):
    for act in sorted(acts, key=lambda act: act is grad_of_other_type):  # torch lets nobody assign such a gradient
        act(model, optimizer)


def values(model, optimizer):
    """What the next step begins with: parameters and momentum."""
    momenta = [state[key] for state, key in buffers(optimizer)]
    return [tensor.detach().clone() for tensor in (*model.parameters(), *momenta)]


def refuses(optimizer, message):
    with pytest.raises(WrapError, match=message):
        optimizer.step()


def run_wrapped(seed, kind, make, defers):
    """Return each rank's parameters, or None after a refusal that was due."""
    steps, refused = sequence(seed)

    def body(comm):
        model = Model()
        optimizer = optimizer_of(model, kind)
        wrapped = Wrapped(model, optimizer, make(), comm)
        for step, (drains, before, after) in enumerate(steps):
            if drains:
                wrapped.drain()
            begin = values(model, optimizer)
            apply(before, model, optimizer)
            model.loss(step, comm.rank).backward()
            apply(after, model, optimizer)
            now = values(model, optimizer)
            changed = len(begin) != len(now) or not all(map(torch.equal, begin, now))
            if defers and changed and step and not drains:
                refuses(optimizer, r"since the last step, while averages are in flight; call drain\(\) first")
                return None
            optimizer.step()
        wrapped.drain()
        if refused is not None:
            refused(model, optimizer)
            refuses(optimizer, refused.__doc__)
            return None
        return [p.detach().clone() for p in model.parameters()]

    return run_replicas(RANKS, body)


def mean_of(tensors):
    return sum(tensors[1:], tensors[0].clone()).mul_(1 / len(tensors))


def run_plainly(seed, kind, period):
    """The same on models and optimizers of plain torch. A period of 0 averages gradients, another one models."""
    models = [Model() for _ in range(RANKS)]
    optimizers = [optimizer_of(model, kind) for model in models]
    since = 0
    for step, (drains, before, after) in enumerate(sequence(seed)[0]):
        if drains and period:
            average(models)
            since = 0
        for rank, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            apply(before, model, optimizer)
            model.loss(step, rank).backward()
            apply(after, model, optimizer)
            for p in model.parameters():
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad.to(p.dtype).clone()
        if not period:
            for same in zip(*(model.parameters() for model in models), strict=True):
                mean = mean_of([p.grad for p in same])
                for p in same:
                    p.grad = mean.clone()
        for optimizer in optimizers:
            optimizer.step()
        since += 1
        if since == period:
            average(models)
            since = 0
    average(models)
    return [p.detach() for p in models[0].parameters()]


@torch.no_grad()
def average(models):
    for same in zip(*(model.parameters() for model in models), strict=True):
        mean = mean_of(same)
        for p in same:
            p.copy_(mean)


ALGORITHMS = [(SSGD, 0), (partial(LocalSGD, 2), 2), (partial(DTS, 2, 2, form="model"), None), (SSGD, 0)]


@pytest.mark.filterwarnings("ignore:grad and param do not obey the gradient layout")
@pytest.mark.parametrize("seed", [*range(40), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(40, 100))])
def test_after_any_acts_replicas_are_equal_or_the_step_says_what_was_replaced(seed):
    make, period = ALGORITHMS[seed % len(ALGORITHMS)]
    kind = ("sgd", "adamw")[seed // len(ALGORITHMS) % 2]
    first, second = run_wrapped(seed, kind, make, defers=period != 0)
    if first is None or second is None:
        assert first is second
        return
    expected = run_plainly(seed, kind, period) if period is not None else first
    for ours, theirs, plain in zip(first, second, expected, strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=2e-6)
        assert torch.allclose(ours, plain, rtol=0, atol=2e-6)


def test_the_sequences_end_in_both_ways():
    """With averages in flight, and without, and both with and without an error."""
    ends = {
        (seed % len(ALGORITHMS), run_wrapped(seed, "sgd", make, defers=period != 0)[0] is None)
        for seed in range(32)
        for make, period in [ALGORITHMS[seed % len(ALGORITHMS)]]
    }
    assert {(0, False), (0, True), (1, False), (1, True), (2, False), (2, True)} <= ends
