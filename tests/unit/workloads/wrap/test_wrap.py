"""`wrap`: a user's loop trains exactly as the engine, checkpoints are exact, and misuse is reported in one line."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from wrapped_world import STEPS, Model, engine_run, recorded, wrapped_run

from wanbench import DTS, SSGD, TopK, wrap
from wanbench.workloads.algorithms import registry
from wanbench.workloads.algorithms.base import AlgorithmError
from wanbench.workloads.comm.local import LocalComm, Threads, run_replicas
from wanbench.workloads.comm.memory import MemoryGroup
from wanbench.workloads.compute.optim import AdamWConfig, SGDConfig
from wanbench.workloads.wrap.flat import WrapError
from wanbench.workloads.wrap.wrapped import Wrapped

MOMENTUM = partial(torch.optim.SGD, lr=0.05, momentum=0.9)
ADAMW = partial(torch.optim.AdamW, lr=0.01)

# ---------------------------------------------------------------- equal to the engine


@pytest.mark.parametrize(
    ("make", "optimizer", "config"),
    [
        (SSGD, MOMENTUM, SGDConfig(lr=0.05, momentum=0.9)),
        (partial(DTS, 4, 4), MOMENTUM, SGDConfig(lr=0.05, momentum=0.9)),
        (partial(DTS, 4, 4), partial(torch.optim.SGD, lr=0.05), SGDConfig(lr=0.05)),
        (partial(DTS, 3, 2, compression=TopK(0.2)), MOMENTUM, SGDConfig(lr=0.05, momentum=0.9)),
    ],
    ids=["ssgd", "dts", "no momentum", "topk"],
)
def test_a_wrapped_loop_equals_the_engine_to_the_bit_with_sgd(make, optimizer, config):
    wrapped, engine = wrapped_run(make, optimizer, drain_after={9}), engine_run(make, config, drain_after={9})
    assert torch.equal(wrapped[0], engine[0])
    assert torch.equal(wrapped[1], engine[1])


@pytest.mark.parametrize(
    ("make", "optimizer", "config"),
    [
        (partial(DTS, 4, 4, form="model"), ADAMW, AdamWConfig(lr=0.01)),
        (partial(registry.create, "diloco", {"period": 5}), ADAMW, AdamWConfig(lr=0.01)),
        (partial(DTS, 5, 1), partial(MOMENTUM, nesterov=True), SGDConfig(lr=0.05, momentum=0.9, nesterov=True)),
        (partial(DTS, 4, 4), partial(MOMENTUM, weight_decay=0.01), SGDConfig(lr=0.05, momentum=0.9, weight_decay=0.01)),
    ],
    ids=["model space", "diloco", "nesterov", "weight decay"],
)
def test_a_wrapped_loop_equals_the_engine_up_to_rounding_if_torch_rounds_differently(make, optimizer, config):
    wrapped = wrapped_run(make, optimizer, ranks=3, dtype=torch.float64)
    engine = engine_run(make, config, ranks=3, dtype=torch.float64)
    assert torch.allclose(wrapped[0], engine[0], rtol=0, atol=1e-12)
    assert torch.allclose(wrapped[1], engine[1], rtol=0, atol=1e-12)


def test_the_loops_scheduler_sets_the_learning_rate():
    cosine = SGDConfig(lr=0.05, momentum=0.9, schedule="cosine", total_steps=STEPS)
    schedule = partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=STEPS)
    wrapped = wrapped_run(partial(DTS, 4, 4), MOMENTUM, scheduler=schedule, dtype=torch.float64)
    engine = engine_run(partial(DTS, 4, 4), cosine, dtype=torch.float64)
    assert torch.allclose(wrapped[1], engine[1], rtol=0, atol=1e-12)


def test_a_learning_rate_that_starts_at_zero_is_accepted():
    schedule = partial(torch.optim.lr_scheduler.LambdaLR, lr_lambda=lambda step: step / STEPS)
    _, last = wrapped_run(partial(DTS, 4, 4), MOMENTUM, scheduler=schedule, dtype=torch.float64)
    assert torch.allclose(last[0], last[1], rtol=0, atol=1e-12)


def test_drain_makes_replicas_agree():
    w_at, last = wrapped_run(partial(DTS, 4, 4), MOMENTUM, dtype=torch.float64)
    assert not torch.allclose(w_at[-1, 0], w_at[-1, 1], rtol=0, atol=1e-2)
    assert torch.allclose(last[0], last[1], rtol=0, atol=1e-12)


# ---------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("optimizer", [MOMENTUM, ADAMW], ids=["sgd", "adamw"])
@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("ssgd", {"compression": "qsgd"}),
        ("dts", {"delay": 3, "period": 2, "form": "model", "compression": TopK(0.2)}),
        ("diloco", {"period": 4}),
        ("olco3", {"staleness": 2, "period": 3, "compression": {"kind": "powersgd", "least": 0}}),
        ("sgp", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_run_resumed_from_a_checkpoint_equals_an_uninterrupted_one(kind, params, optimizer):
    make = partial(registry.create, kind, params)
    whole, resumed = wrapped_run(make, optimizer, drain_after={9}), wrapped_run(make, optimizer, restart_after={9})
    assert torch.equal(whole[0], resumed[0])
    assert torch.equal(whole[1], resumed[1])


def one(algorithm, optimizer=MOMENTUM, model=None, ranks=1):
    model = Model(recorded(1)[0]) if model is None else model
    stepper = optimizer(model.parameters())
    return Wrapped(model, stepper, algorithm, LocalComm(MemoryGroup(ranks, Threads(ranks)), 0)), model, stepper


def stepped(algorithm, optimizer=MOMENTUM):
    wrapped, model, stepper = one(algorithm, optimizer)
    model.set_gradients(recorded(1)[1][0, 0])
    stepper.step()
    return wrapped


def test_a_checkpoint_survives_torch_load_with_weights_only(tmp_path):
    wrapped = stepped(DTS(3, 2, compression=TopK(0.2)))
    wrapped.drain()
    torch.save(wrapped.state_dict(), tmp_path / "c.pt")
    again, _, _ = one(DTS(3, 2, compression=TopK(0.2)))
    again.load_state_dict(torch.load(tmp_path / "c.pt"))
    assert again.steps == 1


def test_a_checkpoint_with_averages_in_flight_is_refused():
    with pytest.raises(WrapError, match=r"^state_dict: averages are in flight; call drain\(\) first, on all ranks$"):
        stepped(DTS(3, 2)).state_dict()


def test_a_checkpoint_of_another_algorithm_is_refused():
    wrapped, _, _ = one(DTS(3, 2))
    with pytest.raises(WrapError, match=r"^checkpoint: algorithm is 'dts-d3-p2', but this is 'ssgd'$"):
        one(SSGD())[0].load_state_dict(wrapped.state_dict())


# ---------------------------------------------------------------- other features of a loop


def test_two_ranks_of_ssgd_equal_one_process_on_both_batches():
    random = torch.Generator().manual_seed(3)
    weights = torch.randn(3, 8, generator=random, dtype=torch.float64)
    batches = torch.randn(6, 2, 16, 8, generator=random, dtype=torch.float64)

    def train(optimizer, model, inputs_of):
        for step in range(6):
            optimizer.zero_grad()
            inputs = inputs_of(step)
            torch.nn.functional.cross_entropy(model(inputs), inputs[:, :3].argmax(dim=1)).backward()
            optimizer.step()
        return model.weight.detach()

    def linear():
        model = torch.nn.Linear(8, 3, bias=False, dtype=torch.float64)
        with torch.no_grad():
            model.weight.copy_(weights)
        return model, torch.optim.AdamW(model.parameters(), lr=0.05)

    def body(comm):
        model, optimizer = linear()
        Wrapped(model, optimizer, SSGD(), comm)
        return train(optimizer, model, lambda step: batches[step, comm.rank])

    model, optimizer = linear()
    expected = train(optimizer, model, lambda step: batches[step].reshape(32, 8))
    for w in run_replicas(2, body):
        assert torch.allclose(w, expected, rtol=0, atol=1e-12)


def test_gradients_are_clipped_before_they_are_averaged():
    start, gradients = recorded(2)

    def body(comm):
        model = Model(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        Wrapped(model, optimizer, SSGD(), comm)
        model.set_gradients(100 * gradients[0, comm.rank])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return model.flat()

    clipped = [g / g.norm() for g in gradients[0]]
    expected = start - (clipped[0] + clipped[1]) / 2
    for w in run_replicas(2, body):
        assert torch.allclose(w, expected, atol=1e-5)


@pytest.mark.parametrize("unscaled_first", [True, False])
@pytest.mark.parametrize("fused", [True, False])
def test_an_overflow_on_one_rank_counts_as_a_zero_gradient_and_keeps_the_ranks_in_step(fused, unscaled_first):
    start, gradients = recorded(2)

    def body(comm):
        model = Model(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
        wrapped = Wrapped(model, optimizer, SSGD(), comm)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for step in range(3):
            optimizer.zero_grad()
            overflow = float("inf") if (step, comm.rank) == (1, 0) else 1.0
            loss = sum((p * g.view_as(p)).sum() for p, g in zip(model.parameters(), pieces(step, comm), strict=True))
            scaler.scale(loss * overflow).backward()
            if unscaled_first:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        return model.flat(), wrapped.steps, scaler.get_scale()

    def pieces(step, comm):
        return gradients[step, comm.rank].split([12, 4, 5])

    (w, steps, scale), other = run_replicas(2, body)
    g = gradients[:3].clone()
    g[1, 0] = 0
    assert torch.allclose(w, start - 0.1 * g.mean(dim=1).sum(dim=0), atol=1e-6)
    assert torch.equal(w, other[0])
    assert (steps, other[1]) == (3, 3)
    assert (scale, other[2]) == (4.0, 8.0)  # each rank's scaler checks its own gradients


def test_accumulated_gradients_count_as_one_step():
    wrapped, model, optimizer = one(SSGD(), partial(torch.optim.SGD, lr=1.0))
    start = model.flat()
    for _ in range(3):
        model.a.sum().backward()
    optimizer.step()
    assert wrapped.steps == 1
    assert torch.equal((start - model.flat())[:12], torch.full((12,), 3.0))


def test_a_parameter_without_a_gradient_counts_as_zero_and_a_frozen_one_is_left_alone():
    start, gradients = recorded(2)

    def body(comm):
        model = Model(start)
        model.c.requires_grad_(False)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        Wrapped(model, optimizer, SSGD(), comm)
        if comm.rank:
            model.a.grad = gradients[0, 1][:12].view(4, 3).clone()
        optimizer.step()
        return model.flat()

    expected = start.clone()
    expected[:12] -= gradients[0, 1][:12] / 2
    for w in run_replicas(2, body):
        assert torch.equal(w, expected)


def groups(parameters, **settings):
    first, *others = parameters
    return torch.optim.SGD([{"params": [first], **settings}, {"params": others}], lr=0.05, momentum=0.9)


def test_parameter_groups_with_different_rates_work_if_the_algorithm_needs_no_single_rate():
    different = partial(groups, lr=0.5, weight_decay=0.1)
    make = partial(DTS, 4, 4, form="model")
    _, last = wrapped_run(make, different, dtype=torch.float64)
    assert torch.allclose(last[0], last[1], rtol=0, atol=1e-12)
    with pytest.raises(AlgorithmError) as error:
        one(DTS(4, 4), different)
    assert str(error.value) == (
        "algorithm 'dts': exact compensation needs optimizer 'sgd', not 'sgd with parameter groups that differ in lr "
        'and weight_decay\'; dts with form = "model" works with any'
    )
    _, agreeing = wrapped_run(partial(DTS, 4, 4), groups, dtype=torch.float64)
    assert torch.allclose(agreeing[0], agreeing[1], rtol=0, atol=1e-12)


def test_groups_that_start_to_differ_later_are_reported_in_one_line():
    wrapped, model, optimizer = one(DTS(4, 4), groups)
    optimizer.param_groups[0]["lr"] = 0.5
    model.set_gradients(recorded(1)[1][0, 0])
    with pytest.raises(WrapError, match=r"^parameter groups differ in lr; this algorithm needs equal ones$"):
        optimizer.step()
    assert wrapped.steps == 0


def half(model):
    return model.half()


def mixed(model):
    model.b.data = model.b.data.double()
    return model


REFUSED = [
    (
        MOMENTUM,
        half,
        "parameter 'a' is float16; expected float32 or float64: keep parameters in full precision and use "
        "torch.autocast for the compute",
    ),
    (MOMENTUM, mixed, "parameter 'b' is float64, 'a' is not; expected equal types"),
    (MOMENTUM, lambda model: model.to("meta"), "parameter 'a' is on 'meta'; wrap supports the CPU only"),
    (MOMENTUM, lambda model: model.requires_grad_(False), "the optimizer has no trainable parameters"),
]


@pytest.mark.parametrize(("optimizer", "change", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_an_unsupported_setup_is_reported_in_one_line(optimizer, change, message):
    model = Model(recorded(1)[0])
    with pytest.raises(WrapError) as error:
        one(SSGD(), optimizer, model if change is None else change(model))
    assert str(error.value) == message


def test_a_sparse_gradient_is_refused():
    model = torch.nn.Embedding(4, 2, sparse=True)
    _, _, optimizer = one(SSGD(), model=model)
    model(torch.tensor([1])).sum().backward()
    with pytest.raises(WrapError, match=r"^parameter 'weight' has a sparse gradient; expected a dense one"):
        optimizer.step()


@pytest.mark.parametrize("change", [lambda model: model.a.requires_grad_(False), lambda model: model.double()])
def test_a_model_that_changes_after_wrap_is_refused(change):
    wrapped, model, _ = one(SSGD())
    change(model)
    with pytest.raises(WrapError, match="after wrap"):
        wrapped.drain()


def test_values_loaded_into_the_model_and_the_optimizer_are_used():
    _, model, optimizer = one(SSGD())
    model.set_gradients(recorded(1)[1][0, 0])
    optimizer.step()
    state = {**optimizer.state_dict()}
    model.load_state_dict({name: torch.ones_like(value) for name, value in model.state_dict().items()})
    optimizer.load_state_dict(state)
    model.set_gradients(torch.zeros(21))
    optimizer.step()
    assert torch.allclose(model.flat(), 1 - 0.05 * 0.9 * recorded(1)[1][0, 0], atol=1e-6)


def test_an_optimizer_that_belongs_to_another_model_or_is_wrapped_is_refused():
    other = torch.nn.Linear(2, 2)
    with pytest.raises(WrapError, match=r"^the optimizer has parameters that the model lacks; make it from model"):
        wrap(torch.nn.Linear(2, 2), torch.optim.SGD(other.parameters(), lr=0.1), SSGD())
    _, model, optimizer = one(SSGD())
    with pytest.raises(WrapError, match=r"^this optimizer is already wrapped; call wrap once$"):
        wrap(model, optimizer, SSGD())


def test_a_gradient_of_a_frozen_parameter_is_refused_because_the_optimizer_would_use_it():
    model = Model(recorded(1)[0])
    model.c.requires_grad_(False)
    _, _, optimizer = one(SSGD(), model=model)
    model.set_gradients(recorded(1)[1][0, 0])
    with pytest.raises(WrapError, match=r"^parameter 'c' is frozen, but the optimizer would use its gradient, of this"):
        optimizer.step()


def test_a_momentum_of_another_shape_is_refused():
    _, model, optimizer = one(SSGD())
    optimizer.state[model.b]["momentum_buffer"] = torch.zeros(1)
    with pytest.raises(WrapError, match=r"^parameter 'b' has a momentum_buffer of shape \(1,\); expected \(4,\)$"):
        optimizer.step()


def test_a_step_hook_after_wrap_is_refused_where_it_would_change_one_ranks_gradients_alone():
    def body(make, comm):
        model = Model(recorded(2)[0])
        optimizer = MOMENTUM(model.parameters())
        Wrapped(model, optimizer, make(), comm)
        optimizer.register_step_pre_hook(lambda *_: torch.nn.utils.clip_grad_value_(model.parameters(), 0.1))
        model.set_gradients(recorded(2)[1][0, comm.rank])
        optimizer.step()
        return model.flat()

    first, second = run_replicas(2, partial(body, SSGD))  # all ranks clip the same average
    assert torch.equal(first, second)
    with pytest.raises(WrapError, match=r"^a step pre-hook was registered after wrap"):
        run_replicas(2, partial(body, lambda: DTS(2, 2)))
