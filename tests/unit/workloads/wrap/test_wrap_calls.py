"""A wrong call of `wrap` is answered with the right one, in one line. Algorithms and compressors are found by name."""

from __future__ import annotations

import pytest
import torch
import torch.distributed

from wanbench import DTS, SSGD, TopK, wrap
from wanbench.workloads.algorithms import registry
from wanbench.workloads.algorithms.base import Algorithm, AlgorithmError
from wanbench.workloads.comm.base import CommError
from wanbench.workloads.wrap.flat import WrapError

MODEL = torch.nn.Linear(2, 2)
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.1)
EXAMPLE = 'call wrap(model, optimizer, "dts", delay=4, period=4)'

CALLS = {
    "no optimizer, a name": (
        lambda: wrap(MODEL, "dts"),
        "wrap(model, 'dts'): the optimizer is missing; call wrap(model, optimizer, 'dts')",
    ),
    "no optimizer, an instance": (
        lambda: wrap(MODEL, DTS(4, 2)),
        "wrap(model, DTS(delay=4, period=2)): the optimizer is missing; call wrap(model, optimizer, "
        "DTS(delay=4, period=2))",
    ),
    "swapped": (
        lambda: wrap(OPTIMIZER, MODEL, "dts", delay=4, period=4),
        "wrap: model and optimizer are swapped; call wrap(model, optimizer, ...)",
    ),
    "a class of model": (
        lambda: wrap(torch.nn.Linear, OPTIMIZER, SSGD()),
        f"wrap: model: expected a torch.nn.Module, got the class Linear; {EXAMPLE}",
    ),
    "no such optimizer": (
        lambda: wrap(MODEL, 0.1, SSGD()),
        f"wrap: optimizer: expected a torch.optim.Optimizer, got an object of type float; {EXAMPLE}",
    ),
    "a class of algorithm": (
        lambda: wrap(MODEL, OPTIMIZER, DTS),
        "wrap: DTS is a class, not an instance; call wrap(model, optimizer, DTS(delay=..., period=...))",
    ),
    "a class with parameters": (
        lambda: wrap(MODEL, OPTIMIZER, DTS, delay=4, period=2),
        "wrap: DTS is a class, not an instance; call wrap(model, optimizer, DTS(delay=4, period=2))",
    ),
    "parameters beside an instance": (
        lambda: wrap(MODEL, OPTIMIZER, DTS(delay=4, period=2), period=4),
        "wrap: period=4 beside an instance; call wrap(model, optimizer, DTS(delay=4, period=4))",
    ),
    "parameters without an algorithm": (
        lambda: wrap(MODEL, OPTIMIZER, delay=4),
        f"wrap: delay=4 without an algorithm; {EXAMPLE}",
    ),
    "no algorithm at all": (
        lambda: wrap(MODEL, OPTIMIZER, 4),
        f"wrap: algorithm: expected a name or an instance, got an object of type int; {EXAMPLE}",
    ),
}


@pytest.mark.parametrize(("call", "message"), CALLS.values(), ids=CALLS)
def test_a_wrong_call_is_answered_with_the_right_one(call, message):
    with pytest.raises(TypeError) as error:
        call()
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("name", "params", "mistake"),
    [
        ("dst", {"delay": 4, "period": 4}, r"^algorithm 'dst' .*did you mean 'dts'\?"),
        ("dts", {"dealy": 4, "period": 4}, r"^algorithm 'dts' .*'dealy'; did you mean 'delay'\?"),
        ("dts", {"delay": 4}, r"^algorithm 'dts' .*'period'"),
    ],
)
def test_a_wrong_name_or_parameter_is_answered_with_a_similar_one(name, params, mistake):
    with pytest.raises(AlgorithmError, match=mistake):
        wrap(MODEL, OPTIMIZER, name, **params)


def test_an_algorithm_is_found_by_name():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        assert wrap(MODEL, OPTIMIZER, "dts", delay=4, period=2).algorithm == DTS(delay=4, period=2)
    finally:
        torch.distributed.destroy_process_group()


def test_without_a_process_group_the_message_explains_how_to_create_one():
    model = torch.nn.Linear(2, 2)
    with pytest.raises(CommError) as error:
        wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), SSGD())
    assert str(error.value) == (
        'no process group: call torch.distributed.init_process_group("gloo") first, and start the program with '
        "torchrun or wanbench (one process alone: torchrun --nproc-per-node 1)"
    )


def test_a_model_in_distributed_data_parallel_is_refused():
    inner = torch.nn.Linear(2, 2)
    ddp = type("DistributedDataParallel", (torch.nn.Module,), {})()
    ddp.module = inner
    with pytest.raises(WrapError, match=r"^the model is in a DistributedDataParallel, which averages gradients"):
        wrap(ddp, torch.optim.SGD(ddp.parameters(), lr=0.1), SSGD())


def test_the_environment_selects_the_algorithm():
    environment = {"WANBENCH_ALGORITHM": "dts", "WANBENCH_PARAMS": '{"delay": 4, "period": 2, "compression": "topk"}'}
    assert registry.from_environment(environment) == DTS(4, 2, compression="topk")
    assert registry.from_environment({"WANBENCH_ALGORITHM": "ssgd"}) == SSGD()
    assert type(registry.from_environment({"WANBENCH_ALGORITHM": "local"})) is Algorithm


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, 'no algorithm: name one, as in wrap(model, optimizer, "ssgd"), set WANBENCH_ALGORITHM=ssgd, or run under'),
        ({"WANBENCH_ALGORITHM": "sgd"}, "WANBENCH_ALGORITHM=sgd: algorithm 'sgd' is unknown; did you mean"),
        ({"WANBENCH_ALGORITHM": "dts", "WANBENCH_PARAMS": "4"}, "WANBENCH_PARAMS=4: expected a JSON object, such as {"),
    ],
)
def test_an_environment_without_an_algorithm_is_reported_in_one_line(environment, message):
    with pytest.raises(AlgorithmError) as error:
        registry.from_environment(environment)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_compressor_is_found_by_name():
    assert DTS(4, 2, compression=TopK(0.1)).label == "dts-d4-p2-topk-r0.1"
    table = {"kind": "topk", "ratio": 0.1}
    assert DTS(4, 2, compression=TopK(0.1)).compressor == DTS(4, 2, compression=table).compressor
