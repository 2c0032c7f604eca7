"""A wrong call of `wrap` is answered with the right one, in one line. Algorithms are found by name."""

from __future__ import annotations

import pytest
import torch
import torch.distributed

from wanbench import DTS, SSGD, wrap
from wanbench.workloads.algorithms.base import AlgorithmError

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
