"""`wrap` with any optimizer equals plain torch on every rank, with gradients or models averaged by hand."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import nn

from wanbench import DPSGD, DTS, SGP, SSGD, DiLoCo, LocalSGD, StreamingDiLoCo
from wanbench.workloads.algorithms.base import Algorithm, AlgorithmError
from wanbench.workloads.comm.local import run_replicas
from wanbench.workloads.wrap.flat import WrapError
from wanbench.workloads.wrap.wrapped import Wrapped

RANKS, STEPS, PERIOD = 2, 9, 3


class Sign(torch.optim.Optimizer):
    """A user's own: the sign of a running mean, each tensor scaled to its own norm (as LAMB does)."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            for p in group["params"]:
                mean = self.state[p].setdefault("exp_avg", torch.zeros(p.numel(), dtype=p.dtype))
                mean.lerp_(p.grad.flatten(), 0.1)
                p.add_(mean.sign().view_as(p) * p.norm(), alpha=-group["lr"])
        return loss


class OwnSGD(torch.optim.SGD):
    """Another step under the name of SGD: half the gradient."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"] / 2)


class NamedSGD(torch.optim.SGD):
    """SGD's own step, under another name."""


OPTIMIZERS = {
    "sgd": partial(torch.optim.SGD, lr=0.05, momentum=0.9),
    "dampened": partial(torch.optim.SGD, lr=0.05, momentum=0.9, dampening=0.5, maximize=True),
    "adam": partial(torch.optim.Adam, lr=0.01),
    "adamw": partial(torch.optim.AdamW, lr=0.01, maximize=True),
    "rmsprop": partial(torch.optim.RMSprop, lr=0.01, momentum=0.9),
    "adagrad": partial(torch.optim.Adagrad, lr=0.1),
    "nadam": partial(torch.optim.NAdam, lr=0.01),
    "adafactor": partial(torch.optim.Adafactor, lr=0.01),
    "muon": partial(torch.optim.Muon, lr=0.01),
    "own": partial(Sign, lr=0.01),
    "own sgd": partial(OwnSGD, lr=0.05),
}


class Model(nn.Module):
    """Two matrices, because Muon takes nothing else."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        draw = partial(torch.randn, generator=torch.Generator().manual_seed(0), dtype=dtype)
        self.a, self.b = nn.Parameter(draw(4, 3)), nn.Parameter(draw(2, 5))

    def flat(self):
        return torch.cat([p.detach().reshape(-1) for p in self.parameters()])


def set_gradients(model, step, rank):
    draw = torch.Generator().manual_seed(1 + RANKS * step + rank)
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=draw, dtype=p.dtype)


def trained(make_optimizer, make, *, drained=(), restarted=(), dtype=torch.float64):
    """Return each rank's parameters at the end, shape (ranks, numel)."""

    def body(comm):
        model = Model(dtype)
        optimizer = make_optimizer(model.parameters())
        training = Wrapped(model, optimizer, make(), comm)
        for step in range(STEPS):
            set_gradients(model, step, comm.rank)
            optimizer.step()
            if step in (*drained, *restarted):
                training.drain()
            if step in restarted:
                saved = copy.deepcopy([part.state_dict() for part in (model, optimizer, training)])
                model = Model(dtype)
                optimizer = make_optimizer(model.parameters())
                training = Wrapped(model, optimizer, make(), comm)
                for part, state in zip((model, optimizer, training), saved, strict=True):
                    part.load_state_dict(state)
        training.drain()
        return model.flat()

    return torch.stack(run_replicas(RANKS, body))


def plain(make_optimizer):
    models = [Model() for _ in range(RANKS)]
    return models, [make_optimizer(model.parameters()) for model in models]


def averaged_gradients(make_optimizer):
    models, optimizers = plain(make_optimizer)
    for step in range(STEPS):
        for rank, model in enumerate(models):
            set_gradients(model, step, rank)
        for same in zip(*(model.parameters() for model in models), strict=True):
            mean = sum(p.grad for p in same) / RANKS
            for p in same:
                p.grad = mean.clone()
        for optimizer in optimizers:
            optimizer.step()
    return torch.stack([model.flat() for model in models])


@torch.no_grad()
def averaged_models(make_optimizer, outer_lr=1.0, momentum=0.0):
    """Local SGD; with an outer rate and momentum DiLoCo."""
    models, optimizers = plain(make_optimizer)
    theta, b = models[0].flat(), torch.zeros_like(models[0].flat())
    for step in range(STEPS):
        for rank, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            set_gradients(model, step, rank)
            optimizer.step()
        if (step + 1) % PERIOD == 0:
            delta = theta - sum(model.flat() for model in models) / RANKS
            b = momentum * b + delta
            theta = theta - outer_lr * (delta + momentum * b)
            for model in models:
                nn.utils.vector_to_parameters(theta.clone(), model.parameters())
    return torch.stack([model.flat() for model in models])


ORACLES = {
    "ssgd": (SSGD, averaged_gradients),
    "localsgd": (partial(LocalSGD, PERIOD), averaged_models),
    "dts without a delay": (partial(DTS, 0, PERIOD, form="model"), averaged_models),
    "diloco": (partial(DiLoCo, PERIOD), partial(averaged_models, outer_lr=0.7, momentum=0.9)),
}


@pytest.mark.parametrize("method", ORACLES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_equals_plain_optimizers_whose_gradients_or_models_are_averaged(name, method):
    make, oracle = ORACLES[method]
    ours, expected = trained(OPTIMIZERS[name], make), oracle(OPTIMIZERS[name])
    assert (expected[0] - Model().flat()).abs().max() > 1e-2  # it moved
    assert torch.allclose(ours, expected, rtol=0, atol=1e-12)


METHODS = [
    SSGD,
    partial(SSGD, compression="topk"),
    partial(DTS, 2, 2, form="model", compression="qsgd"),
    partial(DiLoCo, 4),
    partial(StreamingDiLoCo, 4, 2, delay=1),
    SGP,
    DPSGD,
]


@pytest.mark.parametrize("make", METHODS, ids=lambda make: make().label)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_resumed_from_a_checkpoint_is_equal_to_the_bit(name, make):
    run = partial(trained, OPTIMIZERS[name], make, dtype=torch.float32)
    assert torch.equal(run(drained={4}), run(restarted={4}))


def refusal(make_optimizer, make=SSGD):
    with pytest.raises((WrapError, AlgorithmError)) as error:
        trained(make_optimizer, make)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("dampened", "sgd with dampening with maximize"),
        ("adam", "adam"),
        ("rmsprop", "rmsprop"),
        ("muon", "muon"),
        ("own", "test_optimizers.Sign"),
        ("own sgd", "test_optimizers.OwnSGD"),
    ],
)
def test_exact_compensation_names_the_optimizer_whose_step_is_not_linear(name, known):
    assert refusal(OPTIMIZERS[name], partial(DTS, 2, 2)).startswith(
        f"algorithm 'dts': exact compensation needs optimizer 'sgd', not '{known}'; dts with form"
    )


def test_a_subclass_with_the_step_of_sgd_is_sgd():
    ours = trained(partial(NamedSGD, lr=0.05, momentum=0.9), partial(DTS, 2, 2))
    assert torch.equal(ours, trained(OPTIMIZERS["sgd"], partial(DTS, 2, 2)))


@pytest.mark.parametrize(
    ("setting", "value"), [("dampening", 0.5), ("maximize", True), ("momentum", 0.0)], ids=["dampening", "max", "none"]
)
def test_a_setting_that_changes_the_formula_later_is_refused(setting, value):
    def body(comm):
        model = Model()
        optimizer = OPTIMIZERS["sgd"](model.parameters())
        Wrapped(model, optimizer, DTS(1, 1), comm)
        optimizer.param_groups[0][setting] = value
        set_gradients(model, 0, comm.rank)
        optimizer.step()

    with pytest.raises(WrapError, match=r"^momentum, dampening or maximize was switched on or off after wrap; set it"):
        run_replicas(RANKS, body)


class Needs(Sign):
    """A user's own that computes gradients itself."""

    def step(self, closure):
        return super().step(closure)


class Unfinished(torch.optim.Optimizer):
    def __init__(self, params):
        self.param_groups, self.state = [{"params": [*params]}], {}

    def step(self, closure=None):
        pass


@pytest.mark.parametrize(
    ("make_optimizer", "message"),
    [
        (torch.optim.LBFGS, "optimizer LBFGS: its step needs a closure, and computes gradients more than once"),
        (partial(Needs, lr=0.1), "optimizer Needs: its step needs a closure, and computes gradients more than once"),
        (Unfinished, "optimizer Unfinished: its class does not call Optimizer.__init__, so it has no step hooks"),
    ],
)
def test_an_optimizer_that_cannot_be_followed_is_refused_by_name(make_optimizer, message):
    assert refusal(make_optimizer) == message


@dataclass
class Looks(Algorithm):
    """Keeps what an algorithm sees of the momentum."""

    def stepped(self):
        self.seen = self.replica.m.clone(), self.replica.optimizer.momentum


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_algorithm_sees_a_known_momentum_and_zero_for_any_other(name):
    known = {"sgd": "momentum_buffer", "dampened": "momentum_buffer", "adam": "exp_avg", "adamw": "exp_avg"}.get(name)

    def body(comm):
        model, algorithm = Model(), Looks()
        optimizer = OPTIMIZERS[name](model.parameters())
        Wrapped(model, optimizer, algorithm, comm)
        set_gradients(model, 0, 0)
        optimizer.step()
        momenta = [optimizer.state[p][known] if known else torch.zeros_like(p) for p in model.parameters()]
        return algorithm.seen, torch.cat([momentum.detach().reshape(-1) for momentum in momenta])

    ((m, momentum), expected), *_ = run_replicas(1, body)
    assert torch.equal(m, expected)
    assert momentum == (0.9 if known else 0.0)
    assert bool(m.any()) == (known is not None)


def test_groups_may_differ_in_all_settings_if_a_method_needs_no_single_one():
    def grouped(params):
        a, b = params
        return torch.optim.AdamW([{"params": [a], "betas": (0.5, 0.9), "lr": 0.1}, {"params": [b]}], lr=0.01)

    make, oracle = ORACLES["localsgd"]
    assert torch.allclose(trained(grouped, make), oracle(grouped), rtol=0, atol=1e-12)


@dataclass
class NeedsRate(Algorithm):
    def stepped(self):
        self.replica.optimizer.lr  # noqa: B018


def test_an_algorithm_that_needs_a_rate_says_so_if_the_optimizer_has_none():
    class Rateless(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

        def step(self, closure=None):
            pass

    assert refusal(Rateless, NeedsRate) == "the optimizer has no lr, which this algorithm needs"


# ---------------------------------------------------------------- closures


@pytest.mark.parametrize("keyword", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_closure_computes_the_gradients_of_its_step(name, keyword):
    def body(comm, closed):
        model = Model()
        optimizer = OPTIMIZERS[name](model.parameters())
        Wrapped(model, optimizer, SSGD(), comm)
        for step in range(STEPS):

            def closure(step=step):
                optimizer.zero_grad()
                targets = torch.Generator().manual_seed(1 + RANKS * step + comm.rank)
                loss = sum((p - torch.randn(p.shape, generator=targets)).square().sum() for p in model.parameters())
                loss.backward()
                return loss

            if not closed:
                closure()
                optimizer.step()
            elif name != "own sgd":
                loss = optimizer.step(closure=closure) if keyword else optimizer.step(closure)
                assert loss.requires_grad
            else:
                optimizer.step(closure)  # its step calls none, and returns nothing
        return model.flat()

    closed, opened = (run_replicas(RANKS, partial(body, closed=closed)) for closed in (True, False))
    assert torch.equal(closed[0], opened[0])
    assert torch.equal(closed[0], closed[1])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_gradient_scaler_works_with_any_optimizer(name):
    def body(comm):
        model = Model()
        optimizer = OPTIMIZERS[name](model.parameters())
        Wrapped(model, optimizer, SSGD(), comm)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for step in range(STEPS):
            set_gradients(model, step, comm.rank)
            local = [p.grad.clone() for p in model.parameters()]
            optimizer.zero_grad()
            scaler.scale(sum((p * g).sum() for p, g in zip(model.parameters(), local, strict=True))).backward()
            scaler.step(optimizer)
            scaler.update()
        return model.flat()

    ours = torch.stack(run_replicas(RANKS, body))
    assert torch.allclose(ours, averaged_gradients(OPTIMIZERS[name]), rtol=0, atol=1e-12)


def test_an_optimizer_that_calls_its_closure_twice_is_refused():
    class Twice(Sign):
        def step(self, closure=None):
            closure()
            return super().step(closure)

    model = Model()
    optimizer = Twice(model.parameters(), lr=0.1)

    def closure():
        set_gradients(model, 0, 0)
        return torch.zeros(())

    def body(comm):
        Wrapped(model, optimizer, SSGD(), comm)
        optimizer.step(closure)

    with pytest.raises(WrapError, match=r"^the optimizer computes gradients more than once in a step; wrap averages"):
        run_replicas(1, body)


# ---------------------------------------------------------------- wrappers


def test_the_optimizer_inside_a_wrapper_of_accelerate_or_lightning_is_followed():
    """Their packages are in the lane of recipes; here is what their wrappers are."""

    class Outer(torch.optim.Optimizer):
        def __init__(self, inner):
            self.optimizer = inner

        def step(self, closure=None):
            self.optimizer.step(closure)

    def body(comm, module):
        model = Model()
        outer = type("Outer", (Outer,), {"__module__": module})(OPTIMIZERS["adam"](model.parameters()))
        Wrapped(model, outer, SSGD(), comm)
        for step in range(STEPS):
            set_gradients(model, step, comm.rank)
            outer.step()
        return model.flat()

    for module in ("accelerate.optimizer", "lightning.pytorch.core.optimizer"):
        ours = torch.stack(run_replicas(RANKS, partial(body, module=module)))
        assert torch.allclose(ours, averaged_gradients(OPTIMIZERS["adam"]), rtol=0, atol=1e-12)
    with pytest.raises(WrapError, match=r"^optimizer Outer: its class does not call Optimizer\.__init__"):
        run_replicas(RANKS, partial(body, module="lookahead"))  # its step can be more than that of the inner one
