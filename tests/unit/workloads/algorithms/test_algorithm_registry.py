"""Algorithms are found by name, and every mistake in a spec is reported in one line."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field

import pytest

from wanbench.workloads.algorithms import registry
from wanbench.workloads.algorithms.base import Algorithm, AlgorithmError, at_least
from wanbench.workloads.algorithms.delayed import Delayed
from wanbench.workloads.algorithms.dts import DTS
from wanbench.workloads.compression import registry as compressors
from wanbench.workloads.parameters import describe


@dataclass
class Mine(Algorithm):
    kind = "mine"

    period: int = field(metadata=at_least(1))
    power: float = 0.5
    mode: str = "fast"


@dataclass
class Unnamed(Algorithm):
    share: float = 0.5


MINE = f"{__name__}:Mine"


KNOWN = ", ".join(registry.kinds())


def test_the_kinds_of_the_dts_paper_and_training_alone_are_listed_first():
    assert registry.kinds()[:5] == ["local", "ssgd", "delayed", "sparse", "dts"]


@pytest.mark.parametrize(
    ("kind", "params", "label"),
    [
        ("local", {}, "local"),
        ("ssgd", {}, "ssgd"),
        ("delayed", {"delay": 4}, "delayed-d4"),
        ("sparse", {"period": 4}, "sparse-p4"),
        ("dts", {"period": 4, "delay": 20}, "dts-d20-p4"),
        (MINE, {"period": 2}, "mine-p2"),
        (MINE, {"period": 2, "power": 2, "mode": "slow"}, "mine-p2-power2-mslow"),
        (f"{__name__}:Unnamed", {}, "unnamed"),
        (f"{__name__}:Unnamed", {"share": 0.25}, "unnamed-s0.25"),
        ("dts", {"delay": 4, "period": 1, "compression": "topk"}, "dts-d4-p1-topk"),
        ("ssgd", {"compression": {"kind": "qsgd", "levels": 3}}, "ssgd-qsgd-l3"),
        ("dts", {"delay": 4, "period": 4, "form": "model", "tensors": 1}, "dts-d4-p4-fmodel-t1"),
    ],
)
def test_a_label_shows_the_kind_and_every_parameter_that_differs_from_its_default(kind, params, label):
    assert registry.create(kind, params).label == label


def test_an_algorithm_gets_its_parameters():
    algorithm = registry.create("dts", {"delay": 20, "period": 4})
    assert isinstance(algorithm, DTS)
    assert algorithm.params() == {
        "delay": 20,
        "period": 4,
        "form": "gradient",
        "tensors": 2,
        "compression": "none",
    }
    assert (algorithm.delay_steps, algorithm.period_steps) == (20, 4)


def test_delayed_is_dts_with_period_one_and_sparse_is_dts_without_delay():
    delayed, sparse = registry.create("delayed", {"delay": 7}), registry.create("sparse", {"period": 5})
    assert (delayed.delay_steps, delayed.period_steps) == (7, 1)
    assert (sparse.delay_steps, sparse.period_steps) == (0, 5)


@pytest.mark.parametrize(
    ("delay", "period", "in_flight"), [(0, 1, 1), (0, 4, 1), (3, 4, 1), (4, 4, 2), (20, 4, 6), (20, 1, 21)]
)
def test_in_flight_includes_the_newest_message(delay, period, in_flight):
    assert DTS(delay=delay, period=period).in_flight == in_flight


@dataclass
class InOtherUnits(Algorithm):
    delay: object = 0
    period: object = 1


@pytest.mark.parametrize("value", ["5ms", None, 2.5, 4.0, True, -1, lambda: 3])
def test_a_users_delay_or_period_that_is_no_number_of_steps_says_nothing_of_them(value):
    algorithm = InOtherUnits(delay=value, period=value)
    assert (algorithm.delay_steps, algorithm.period_steps, algorithm.in_flight) == (0, 1, 1)


def test_a_users_delay_and_period_of_whole_steps_are_taken():
    assert (InOtherUnits(delay=5, period=2).delay_steps, InOtherUnits(delay=5, period=2).period_steps) == (5, 2)
    assert (InOtherUnits(delay=0, period=0).delay_steps, InOtherUnits(delay=0, period=0).period_steps) == (0, 1)


def test_two_tensors_are_sent_only_with_both_momentum_and_a_period():
    assert DTS(delay=4, period=4).tensors_per_message(0.9) == 2
    assert DTS(delay=4, period=4).tensors_per_message(0.0) == 1
    assert Delayed(delay=4).tensors_per_message(0.9) == 1


def test_each_value_of_a_list_becomes_one_algorithm():
    assert registry.alternatives("delayed", {"delay": [4, 20]}) == [{"delay": 4}, {"delay": 20}]
    assert registry.alternatives("dts", {"delay": [4, 20], "period": 4}) == [
        {"delay": 4, "period": 4},
        {"delay": 20, "period": 4},
    ]
    assert len(registry.alternatives("dts", {"delay": [1, 2, 3], "period": [4, 5]})) == 6
    assert registry.alternatives("ssgd", {}) == [{}]


def test_a_users_algorithm_is_found_by_module_and_class():
    algorithm = registry.create(MINE, {"period": 3, "power": 2})
    assert isinstance(algorithm, Mine)
    assert algorithm.params() == {"period": 3, "power": 2, "mode": "fast"}


def test_parameters_are_listed_with_their_types():
    def types(kind):
        return {name: parameter["type"] for name, parameter in describe(registry.find(kind))["parameters"].items()}

    assert types("dts") == {
        "delay": "int",
        "period": "int",
        "form": "str",
        "tensors": "int",
        "compression": "Compression",
    }
    assert types(MINE) == {"period": "int", "power": "float", "mode": "str"}


@pytest.mark.parametrize(
    ("kind", "params", "message"),
    [
        (
            "dst",
            {},
            f"algorithm 'dst' is unknown; did you mean 'dts'? (known: {KNOWN}; your own: 'module:Class')",
        ),
        (
            "horovod",
            {},
            f"algorithm 'horovod' is unknown (known: {KNOWN}; your own: 'module:Class')",
        ),
        (
            "dts",
            {"dealy": 4, "period": 4},
            "algorithm 'dts' has no parameter 'dealy'; did you mean 'delay'? "
            "(it takes delay, period, form, tensors, compression)",
        ),
        ("ssgd", {"delay": 4}, "algorithm 'ssgd' has no parameter 'delay' (it takes compression)"),
        ("dts", {"delay": 4}, "algorithm 'dts' needs parameter 'period' (int)"),
        (
            "dts",
            {"delay": -1, "period": 4},
            "algorithm 'dts': delay = -1; expected a whole number, 0 or more",
        ),
        (
            "dts",
            {"delay": 4, "period": 0},
            "algorithm 'dts': period = 0; expected a whole number, 1 or more",
        ),
        ("delayed", {"delay": 0}, "algorithm 'delayed': delay = 0; expected a whole number, 1 or more"),
        ("sparse", {"period": "4"}, "algorithm 'sparse': period = '4'; expected a whole number, 1 or more"),
        ("sparse", {"period": 4.0}, "algorithm 'sparse': period = 4.0; expected a whole number, 1 or more"),
        ("sparse", {"period": True}, "algorithm 'sparse': period = True; expected a whole number, 1 or more"),
        (MINE, {"period": 1, "power": "x"}, "algorithm 'mine': power = 'x'; expected a number"),
        (MINE, {"period": 1, "mode": 3}, "algorithm 'mine': mode = 3; expected a string"),
        (
            "no_such_pkg.sync:Mine",
            {},
            "algorithm 'no_such_pkg.sync:Mine': cannot import 'no_such_pkg.sync' "
            "(No module named 'no_such_pkg'); is its folder on PYTHONPATH?",
        ),
        (
            f"{__name__}:Mime",
            {},
            f"algorithm '{__name__}:Mime': module '{__name__}' has no 'Mime'; did you mean 'Mine'?",
        ),
        (
            f"{__name__}:MINE",
            {},
            f"algorithm '{__name__}:MINE': 'MINE' is not a subclass of wanbench.workloads.algorithms.base.Algorithm",
        ),
    ],
)
def test_a_mistake_is_reported_in_one_line(kind, params, message):
    with pytest.raises(AlgorithmError) as error:
        registry.create(kind, params)
    assert str(error.value) == message


def test_an_empty_list_is_refused():
    with pytest.raises(AlgorithmError) as error:
        registry.alternatives("delayed", {"delay": []})
    assert str(error.value) == "algorithm 'delayed': delay = []; expected a value or a list with at least one"


def test_a_value_of_a_list_is_refused_as_it_would_be_alone():
    valid, wrong = registry.alternatives("delayed", {"delay": [4, -4]})
    assert registry.create("delayed", valid).delay_steps == 4
    with pytest.raises(AlgorithmError) as error:
        registry.create("delayed", wrong)
    assert str(error.value) == "algorithm 'delayed': delay = -4; expected a whole number, 1 or more"


@pytest.mark.parametrize("found", [module.find(kind) for module in (registry, compressors) for kind in module.kinds()])
def test_a_docstring_begins_with_one_short_sentence_about_its_purpose(found):
    first, blank, *rest = inspect.getdoc(found).splitlines()
    assert re.fullmatch(r"[A-Z-].{,68}\.", first)
    assert (blank, bool(rest), bool(found.source)) == ("", True, True)


def test_a_further_parameter_changes_no_label():
    @dataclass
    class Later(DTS):
        kind = "dts"
        phase: int = 0

    assert Later(delay=4, period=2).label == DTS(delay=4, period=2).label == "dts-d4-p2"
    assert Later(delay=4, period=2, phase=1).label == "dts-d4-p2-phase1"
