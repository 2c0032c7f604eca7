"""`attach`: loops with DistributedDataParallel on two real ranks train as wanbench's own loop does, or as plain DDP.

The gradients of wanbench's loop are computed here, without DDP, from the same data.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext
from functools import partial

import pytest
import torch
import torch.distributed as dist
from real_ranks import on_processes
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from wanbench import DTS, SSGD, Delayed, DiLoCo, attach, wrap
from wanbench.testing import simulate
from wanbench.workloads.algorithms.base import AlgorithmError
from wanbench.workloads.compute.optim import AdamWConfig, SGDConfig
from wanbench.workloads.wrap.flat import WrapError

RANKS, STEPS, DRAINED = 2, 11, 6
MOMENTUM = partial(torch.optim.SGD, lr=0.05, momentum=0.9)
ADAMW = partial(torch.optim.AdamW, lr=0.01)
SGD_CONFIG, ADAMW_CONFIG = SGDConfig(lr=0.05, momentum=0.9), AdamWConfig(lr=0.01)
SMALL = {"bucket_cap_mb": 0.0005}  # 500 bytes: several buckets, which DDP makes anew after the first step


def module_of(dtype=torch.float64):
    torch.manual_seed(0)
    layers = [nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)]
    return nn.Sequential(*layers).to(dtype)


def batch(step, rank, part, dtype=torch.float64):
    draw = torch.Generator().manual_seed(1000 * step + 10 * rank + part)
    return torch.randn(12, 6, generator=draw, dtype=dtype)


def loss_of(model, inputs):
    return nn.functional.cross_entropy(model(inputs), inputs[:, :3].argmax(dim=1))


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


# ---------------------------------------------------------------- loops


def loop(
    make, make_optimizer, *, dtype=torch.float64, parts=1, sync="last", clip=None, to_none=True, restart=False, **ddp
):
    """Train with attach, or with plain DDP if `make` is None; return the parameters after each step and at the end."""

    def begin():
        model = DistributedDataParallel(module_of(dtype), **ddp)
        optimizer = make_optimizer(model.parameters())
        return model, optimizer, None if make is None else attach(model, optimizer, make())

    model, optimizer, training = begin()
    history = []
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=to_none)
        for part in range(parts):
            silent = part < parts - 1 if sync == "last" else sync == "never"
            with model.no_sync() if silent else nullcontext():
                loss_of(model, batch(step, dist.get_rank(), part, dtype)).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        history.append(flat(model))
        if step == DRAINED and training is not None:
            training.drain()
            if restart:
                saved = copy.deepcopy([part.state_dict() for part in (model, optimizer, training)])
                model, optimizer, training = begin()
                for part, state in zip((model, optimizer, training), saved, strict=True):
                    part.load_state_dict(state)
    if training is not None:
        assert training.steps == STEPS
        training.drain()
    return torch.stack(history), flat(model)


def expected(make, config, *, parts=1, clip=None):
    """The same in wanbench's own loop: parameters of each rank after each step, and at the end."""
    base = module_of()

    def gradient(rank, step, w):
        model = copy.deepcopy(base)  # ranks are threads
        nn.utils.vector_to_parameters(w.clone(), model.parameters())
        for part in range(parts):
            loss_of(model, batch(step, rank, part)).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        return torch.cat([p.grad.reshape(-1) for p in model.parameters()])

    shapes = tuple(tuple(p.shape) for p in base.parameters())
    trace = simulate(
        make, gradient, config, flat(base), steps=STEPS, world_size=RANKS, drain_after={DRAINED}, shapes=shapes
    )
    return trace.w_at, trace.w


DELAYED = partial(Delayed, 4)
LIKE_OURS = {
    "delayed": (DELAYED, MOMENTUM, SGD_CONFIG, {}, {}),
    "one bucket": (DELAYED, MOMENTUM, SGD_CONFIG, {"bucket_cap_mb": 25}, {}),
    "dts": (partial(DTS, 4, 2), MOMENTUM, SGD_CONFIG, {}, {}),
    "dts in model space": (partial(DTS, 3, 2, form="model"), ADAMW, ADAMW_CONFIG, {}, {}),
    "diloco": (partial(DiLoCo, 4), ADAMW, ADAMW_CONFIG, {}, {}),
    "ssgd": (SSGD, MOMENTUM, SGD_CONFIG, {}, {}),
    "compressed ssgd": (partial(SSGD, compression="topk"), MOMENTUM, SGD_CONFIG, {}, {}),
    "views of buckets": (DELAYED, MOMENTUM, SGD_CONFIG, {"gradient_as_bucket_view": True}, {}),
    "views, zeroed": (DELAYED, MOMENTUM, SGD_CONFIG, {"gradient_as_bucket_view": True, "to_none": False}, {}),
    "static graph": (DELAYED, MOMENTUM, SGD_CONFIG, {"static_graph": True}, {}),
    "no_sync": (DELAYED, MOMENTUM, SGD_CONFIG, {"parts": 3}, {"parts": 3}),
    "never synced": (DELAYED, MOMENTUM, SGD_CONFIG, {"parts": 2, "sync": "never"}, {"parts": 2}),
    "always synced": (DELAYED, MOMENTUM, SGD_CONFIG, {"parts": 2, "sync": "always"}, {"parts": 2}),
    "no_sync, ssgd": (SSGD, MOMENTUM, SGD_CONFIG, {"parts": 3}, {"parts": 3}),
    "clipped": (DELAYED, MOMENTUM, SGD_CONFIG, {"clip": 0.1}, {"clip": 0.1}),
}


def loops_like_ours():
    results = {}
    for name, (make, make_optimizer, _, options, _) in LIKE_OURS.items():
        results[name] = loop(make, make_optimizer, **{**SMALL, **options})
    return results


@pytest.fixture(scope="module")
def like_ours(tmp_path_factory):
    return on_processes(RANKS, tmp_path_factory.mktemp("loops"), loops_like_ours)


@pytest.mark.parametrize("name", LIKE_OURS)
def test_training_equals_wanbenchs_own_loop(like_ours, name):
    make, _, config, _, options = LIKE_OURS[name]
    w_at, last = expected(make, config, **options)
    assert (last[0] - flat(module_of())).abs().max() > 1e-2
    for rank in range(RANKS):
        ours_at, ours = like_ours[rank][name]
        assert torch.allclose(ours_at, w_at[:, rank], rtol=0, atol=1e-12)
        assert torch.allclose(ours, last[rank], rtol=0, atol=1e-12)


LIKE_DDP = {"one": {}, "no_sync": {"parts": 2}, "clipped": {"clip": 0.1}, "views": {"gradient_as_bucket_view": True}}


def overflowing(attached):
    """Return parameters and scale after an overflow on rank 0 in the second of four steps."""
    model = DistributedDataParallel(module_of(torch.float32), **SMALL)
    optimizer = MOMENTUM(model.parameters())
    if attached:
        attach(model, optimizer, SSGD())
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(4):
        optimizer.zero_grad()
        factor = float("inf") if (step, dist.get_rank()) == (1, 0) else 1.0
        scaler.scale(loss_of(model, batch(step, dist.get_rank(), 0, torch.float32)) * factor).backward()
        scaler.step(optimizer)
        scaler.update()
    return flat(model), scaler.get_scale()


def loops_like_ddp():
    results = {
        name: [loop(make, MOMENTUM, dtype=torch.float32, **{**SMALL, **options})[0] for make in (SSGD, None)]
        for name, options in LIKE_DDP.items()
    }
    return results, [overflowing(attached) for attached in (True, False)]


def test_ssgd_equals_plain_ddp_to_the_bit(tmp_path):
    for results, (ours, plain) in on_processes(RANKS, tmp_path, loops_like_ddp):
        assert all(torch.equal(*pair) for pair in results.values())
        assert torch.equal(ours[0], plain[0])
        assert ours[1] == plain[1] == 4.0


RESTARTED = {
    "delayed": (DELAYED, MOMENTUM),
    "dts with topk": (partial(DTS, 3, 2, compression="topk"), MOMENTUM),
    "diloco": (partial(DiLoCo, 4), partial(torch.optim.Adam, lr=0.01)),
    "ssgd": (SSGD, MOMENTUM),
}


def restarted_loops():
    run = partial(loop, dtype=torch.float32, **SMALL)
    return {name: [run(*pair, restart=restart)[1] for restart in (True, False)] for name, pair in RESTARTED.items()}


def test_a_resumed_run_equals_a_whole_one_to_the_bit(tmp_path):
    for results in on_processes(RANKS, tmp_path, restarted_loops):
        for name, (resumed, whole) in results.items():
            assert torch.equal(resumed, whole), name


def finals():
    """Return models before and after `final`: with buffers on both ranks, and on each rank in a group of its own."""
    results = {}
    group = [dist.new_group([rank]) for rank in range(RANKS)][dist.get_rank()]
    for name, make, process_group in (("topk", partial(Delayed, 4, "topk"), None), ("alone", DELAYED, group)):
        module = nn.Sequential(module_of(torch.float32), nn.BatchNorm1d(3))
        model = DistributedDataParallel(module, forward_sync_buffers=False, process_group=process_group)
        optimizer = MOMENTUM(model.parameters())
        training = attach(model, optimizer, make())
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, batch(step, dist.get_rank(), 0, torch.float32)).backward()
            optimizer.step()
        training.drain()
        before = copy.deepcopy(module.state_dict())
        training.final()
        results[name] = before, module.state_dict()
    return results


def test_final_leaves_one_model_and_messages_stay_in_the_group_of_ddp(tmp_path):
    first, second = on_processes(RANKS, tmp_path, finals)
    for name, value in first["topk"][1].items():
        assert torch.equal(value, second["topk"][1][name])
        mean = (first["topk"][0][name] + second["topk"][0][name]) / 2
        assert torch.allclose(value.double(), mean.double(), atol=1e-6)
    assert not torch.equal(first["topk"][0]["0.0.weight"], second["topk"][0]["0.0.weight"])
    for before, after in (first["alone"], second["alone"]):
        assert all(torch.equal(before[name], after[name]) for name in before)
    assert not torch.equal(first["alone"][1]["0.0.weight"], second["alone"][1]["0.0.weight"])


# ---------------------------------------------------------------- refusals


@pytest.fixture
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def ignoring():
    module = module_of()
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, ["4.bias"])
    return DistributedDataParallel(module)


def delaying():
    module = module_of()
    first = next(module.parameters())
    named = [("4.bias", module[4].bias)]
    return DistributedDataParallel(module, delay_all_reduce_named_params=named, param_to_hook_all_reduce=first)


def hooked():
    model = DistributedDataParallel(module_of())
    model.register_comm_hook(None, lambda state, bucket: torch.futures.Future())
    return model


def hooked_inside():
    model = DistributedDataParallel(module_of())
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    return model


def lowered():
    from torch.nn.parallel.distributed import _MixedPrecision

    return DistributedDataParallel(module_of(torch.float32), mixed_precision=_MixedPrecision(torch.bfloat16))


def with_buffers(**options):
    return DistributedDataParallel(nn.Sequential(module_of(), nn.BatchNorm1d(3)).double(), **options)


LEFT_OUT = (
    "DistributedDataParallel: parameter '4.bias' is left out of it, by delay_all_reduce_named_params or "
    "_ddp_params_and_buffers_to_ignore"
)
HOOKED = "DistributedDataParallel: it has a communication hook, and takes no other"
REFUSED = {
    "buffers": (
        with_buffers,
        "DistributedDataParallel: broadcast_buffers=True sets buffers to those of rank 0 in each forward pass; use "
        "forward_sync_buffers=False (before torch 2.13 broadcast_buffers=False)",
    ),
    "unused": (
        lambda: DistributedDataParallel(module_of(), find_unused_parameters=True),
        "DistributedDataParallel: find_unused_parameters=True waits for all ranks in each backward pass; use "
        "static_graph=True, or give each parameter a gradient",
    ),
    "ignored": (ignoring, LEFT_OUT),
    "delayed": (delaying, LEFT_OUT),
    "mixed precision": (
        lowered,
        "DistributedDataParallel: mixed_precision gives parameters other memory; use torch.autocast",
    ),
    "hook": (hooked, HOOKED),
    "built-in hook": (hooked_inside, HOOKED),
    "bare": (module_of, "the model is a Sequential, not in a DistributedDataParallel; call wanbench.wrap"),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_what_would_change_the_algorithm_is_refused_by_name(group, make, message):
    model = make()
    with pytest.raises(WrapError) as error:
        attach(model, MOMENTUM(model.parameters()), DELAYED())
    assert str(error.value) == message


@pytest.mark.parametrize("make", [with_buffers, ignoring, partial(with_buffers, find_unused_parameters=True)])
def test_ssgd_is_ddps_own_average_and_allows_its_settings(group, make):
    model = make()
    attach(model, MOMENTUM(model.parameters()), SSGD())


@pytest.mark.filterwarnings("ignore:You passed find_unused_parameters=true")
@pytest.mark.parametrize(
    "options", [{"static_graph": True, "find_unused_parameters": True}, {"forward_sync_buffers": False}]
)
def test_settings_that_change_nothing_are_accepted(group, options):
    model = with_buffers(**{"forward_sync_buffers": False, **options})
    attach(model, MOMENTUM(model.parameters()), DELAYED())


def test_attaching_twice_is_refused(group):
    model = DistributedDataParallel(module_of())
    optimizer = MOMENTUM(model.parameters())
    attach(model, optimizer, DELAYED())
    with pytest.raises(WrapError, match=r"^this optimizer is already wrapped; call wrap once$"):
        attach(model, optimizer, DELAYED())
    with pytest.raises(WrapError, match=r"^DistributedDataParallel: it has a communication hook"):
        attach(model, MOMENTUM(model.parameters()), DELAYED())


def test_join_is_refused_at_the_first_forward_pass(group):
    model = DistributedDataParallel(module_of())
    attach(model, MOMENTUM(model.parameters()), DELAYED())
    with pytest.raises(WrapError, match=r"join\(\) is not supported; all ranks must make equally many steps"):  # noqa: SIM117
        with model.join():
            model(batch(0, 0, 0))


def test_exact_compensation_needs_sgd_here_too(group):
    model = DistributedDataParallel(module_of())
    with pytest.raises(AlgorithmError, match=r"^algorithm 'delayed': exact compensation needs optimizer 'sgd', not 'a"):
        attach(model, ADAMW(model.parameters()), "delayed", delay=4)


def test_wrap_sends_a_model_in_ddp_to_attach(group):
    model = DistributedDataParallel(module_of())
    with pytest.raises(WrapError) as error:
        wrap(model, MOMENTUM(model.parameters()), SSGD())
    assert str(error.value) == (
        "the model is in a DistributedDataParallel, which averages gradients itself; "
        "call wanbench.attach in place of wrap"
    )


def test_a_wrong_call_is_answered_with_the_right_one():
    with pytest.raises(TypeError) as error:
        attach(module_of(), "dts")
    assert str(error.value) == ("attach(model, 'dts'): the optimizer is missing; call attach(model, optimizer, 'dts')")
