"""Bad parameters of every algorithm: `wanbench run` prints one line and exits with 2, before anything starts."""

from __future__ import annotations

import pytest
from algorithm_examples import written
from command_line import as_it_was, refused  # noqa: F401  # all tests use the fixture
from small_spec import edited

from wanbench.workloads.algorithms import registry
from wanbench.workloads.compression import registry as compressors

RATIO = "a number, above 0 to 1"
COUNT = "a whole number, 1 or more"
OR_NONE = "a whole number, 0 or more"

PARAMETERS = [
    ("delayed", "delay = -1", f"delay = -1; expected {COUNT}"),
    ("delayed", "delay = 1.5", f"delay = 1.5; expected {COUNT}"),
    ("sparse", "period = 0", f"period = 0; expected {COUNT}"),
    ("dts", "delay = -1, period = 1", f"delay = -1; expected {OR_NONE}"),
    ("dts", "delay = 1, period = 0", f"period = 0; expected {COUNT}"),
    ("dts", "delay = 1, period = true", f"period = True; expected {COUNT}"),
    ("dts", "delay = 1, period = 2, form = 'both'", "form = 'both'; expected 'gradient' or 'model'"),
    ("dts", "delay = 1, period = 2, tensors = 3", "tensors = 3; expected a whole number, from 1 to 2"),
    ("diloco", "period = 2, momentum = 1.0", "momentum = 1.0; expected a number, from 0 to below 1"),
    ("streaming-diloco", "period = 2, fragments = 4", "period = 2; expected a multiple of fragments = 4"),
    ("streaming-diloco", "period = 6, fragments = 2, delay = 9", "delay = 9; expected less than period = 6"),
    (
        "sparseloco",
        "period = 2, compression = { kind = 'chunk-topk', chunk = 1 }",
        "compression: compressor 'chunk-topk': chunk = 1; expected a whole number, 2 or more",
    ),
    (
        "async-local-sgd",
        "period = 2, max_wait = 'soon'",
        "max_wait: 'soon' is not a quantity; a delay is a number and one of ns, us, ms, s, such as '80ms'",
    ),
    ("cocod", "period = 0", f"period = 0; expected {COUNT}"),
    ("eager-diloco", "period = 2, staleness = -1", f"staleness = -1; expected {OR_NONE}"),
    ("async-local-sgd", "period = 0", f"period = 0; expected {COUNT}"),
    ("halos", "period = 8, merges = 0", f"merges = 0; expected {COUNT}"),
    ("halos", "period = 8, mixing = 1.5", "mixing = 1.5; expected a number, from 0 to 1"),
    ("olco3", "staleness = 1, period = 1, two_way = true", "two_way = True; expected a compression as well"),
    ("sgp", "wait = '0s'", "wait = '0s'; expected more than 0, or 'forever'"),
    ("rps", "block = '0B'", "block = '0B'; expected more than 0"),
    ("rps", "block = '6B'", "block = '6B'; expected a multiple of 4 bytes, the size of a parameter"),
    ("rps", "deadline = '31s'", "deadline = '31s'; expected at most 30s"),
    ("gradient-sharing", "silence = '2s'", "silence = '2s'; expected at most the deadline, 1s"),
    (
        "ssgd",
        "compression = { kind = 'topk', ratio = 0 }",
        f"compression: compressor 'topk': ratio = 0; expected {RATIO}",
    ),
    (
        "ssgd",
        "compression = { kind = 'topk', ratio = 2 }",
        f"compression: compressor 'topk': ratio = 2; expected {RATIO}",
    ),
    (
        "ssgd",
        "compression = { kind = 'dgc', ratio = 0 }",
        f"compression: compressor 'dgc': ratio = 0; expected {RATIO}",
    ),
    (
        "ssgd",
        "compression = { kind = 'randomk', ratio = 2 }",
        f"compression: compressor 'randomk': ratio = 2; expected {RATIO}",
    ),
    (
        "ssgd",
        "compression = { kind = 'chunkwise', ratio = 0 }",
        f"compression: compressor 'chunkwise': ratio = 0; expected {RATIO}",
    ),
    (
        "ssgd",
        "compression = { kind = 'powersgd', rank = 0 }",
        f"compression: compressor 'powersgd': rank = 0; expected {COUNT}",
    ),
    (
        "ssgd",
        "compression = { kind = 'qsgd', levels = 0 }",
        "compression: compressor 'qsgd': levels = 0; expected a whole number, from 1 to 127",
    ),
    (
        "ecdpsgd",
        "compression = 'topk'",
        "compression: 'topk' is biased; expected an unbiased compressor, 'qsgd' or 'terngrad', or 'none'",
    ),
]
UNKNOWN = {
    "sgp": "peers, wait", "osgp": "delay, peers, wait", "dpsgd": "none", "adpsgd": "none",
    "overlap-localsgd": "period, pull, momentum",
}  # fmt: skip


def refusal(tmp_path, *changes):
    """The error that `run` prints for an edited spec. It must leave no files."""
    virtual = ("[algorithms]", '[run]\ntestbed = "virtual"\n\n[algorithms]')
    (tmp_path / "x.toml").write_text(edited(virtual, *changes))
    message = refused("run", "x.toml")
    assert "\n" not in message
    assert [path.name for path in tmp_path.iterdir()] == ["x.toml"]
    return message.removeprefix("wanbench: x.toml: ")


@pytest.mark.parametrize(("kind", "parameters", "line"), PARAMETERS)
def test_a_parameter_out_of_range(tmp_path, kind, parameters, line):
    message = refusal(tmp_path, ("ssgd = {}", f"{kind} = {{ {parameters} }}"))
    assert message == f"algorithms.{kind}: algorithm '{kind}': {line}"


BOUNDED = [
    (kind, name, item.metadata["bound"])
    for kind in registry.kinds()
    for name, item in registry.find(kind).parameters().items()
    if "bound" in item.metadata and not item.metadata["bound"].says_type
]


def test_every_number_has_a_bound():
    numbers = {
        (kind, name)
        for kind in registry.kinds()
        for name, item in registry.find(kind).parameters().items()
        if str(item.type) in {"int", "float"}
    }
    assert numbers == {(kind, name) for kind, name, _ in BOUNDED}


@pytest.mark.parametrize(("kind", "name", "bound"), BOUNDED)
def test_a_number_below_the_bound_of_its_parameter(tmp_path, kind, name, bound):
    low = -1
    assert not bound.holds(low)
    message = refusal(tmp_path, ("ssgd = {}", written(kind, {**registry.find(kind).examples[0], name: low})))
    assert message.startswith(f"algorithms.{kind}: algorithm '{kind}': {name} = {low}; expected a ")
    assert message.endswith(f"number, {bound.words}")


def test_a_kind_that_was_removed(tmp_path):
    message = refusal(tmp_path, ("ssgd = {}", "decoupled-diloco = { period = 4 }"))
    instead = "'halos', or your own algorithm (docs/how-to/own-algorithm.md)"
    assert message == f"algorithms.decoupled-diloco: algorithm 'decoupled-diloco' was removed; use {instead}"


@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_compressor_for_an_algorithm_that_takes_none(tmp_path, kind):
    message = refusal(tmp_path, ("ssgd = {}", f"{kind} = {{ compression = 'topk' }}"))
    assert message == f"algorithms.{kind}: algorithm '{kind}' has no parameter 'compression' (it takes {UNKNOWN[kind]})"


def test_a_compressor_that_does_not_exist(tmp_path):
    message = refusal(tmp_path, ("ssgd = {}", "dts = { delay = 1, period = 1, compression = 'topc' }"))
    known = ", ".join(["none", *compressors.kinds()])
    wrong = f"compression: compressor 'topc' is unknown; did you mean 'topk'? (known: {known})"
    assert message == f"algorithms.dts: algorithm 'dts': {wrong}"


@pytest.mark.parametrize("kind", [kind for kind in registry.kinds() if registry.find(kind).least_workers > 1])
def test_too_few_workers(tmp_path, kind):
    message = refusal(tmp_path, ("ssgd = {}", written(kind)), ("workers = [2]", "workers = [1]"))
    assert message.startswith(f"algorithm={kind}")
    assert message.endswith(f", workers=1, rtt=10ms: algorithm '{kind}' needs at least 2 workers, got 1")


def test_pairs_with_an_odd_number_of_workers(tmp_path):
    message = refusal(tmp_path, ("ssgd = {}", "adpsgd = {}"), ("workers = [2]", "workers = [5]"))
    assert message == "algorithm=adpsgd, workers=5, rtt=10ms: algorithm 'adpsgd' needs an even number of workers, got 5"


def test_more_peers_than_workers(tmp_path):
    message = refusal(tmp_path, ("ssgd = {}", "sgp = { peers = 4 }"))
    expected = "algorithm 'sgp': peers = 4; expected at most 1 with 2 workers"
    assert message == f"algorithm=sgp-p4, workers=2, rtt=10ms: {expected}"
