"""Every name that a spec can use is listed with one line, and can be shown with its details."""

from __future__ import annotations

import pytest
from command_line import as_it_was, data, refused, wanbench  # noqa: F401  # the fixture is used by all

from wanbench.harness.spec.experiment import Spec
from wanbench.harness.spec.library import builtin_names, read
from wanbench.netprofiles import catalog_names
from wanbench.workloads.algorithms import registry
from wanbench.workloads.registry import BUILTINS


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("algorithms", registry.kinds()),
        ("workloads", list(BUILTINS)),
        ("profiles", ["uniform", *catalog_names()]),
        ("experiments", builtin_names()),
    ],
)
def test_list_has_a_line_for_every_name_that_a_spec_can_use(kind, names):
    listed = data("list", kind)
    assert list(listed) == names
    assert all(listed.values())
    lines = wanbench("list", kind).stdout.splitlines()
    assert [line.split()[0] for line in lines] == names


def test_list_shows_parameters_of_algorithms():
    assert " (delay, period, [form], [tensors], [compression]) [" in data("list", "algorithms")["dts"]


def test_list_gives_every_algorithm_and_compressor_one_line_with_its_source():
    for what in ("algorithms", "compressors"):
        for kind, line in data("list", what).items():
            assert "\n" not in line, kind
            assert line.endswith("]"), kind
            assert " [" in line, kind
    assert data("list", "algorithms")["sgp"].endswith(
        "[Assran, Loizou, Ballas and Rabbat, Stochastic Gradient Push, ICML 2019]"
    )
    assert " ([ns_per_byte], [ratio]) [" in data("list", "compressors")["topk"]


def test_show_gives_equation_parameters_defaults_source_and_the_papers_symbols():
    text = wanbench("show", "algorithm", "dts").stdout
    for line in (
        "parameter    type         default   in the paper",
        "delay        int          required  t (D = t - 1 in Eq. 3)",
        "form         str          gradient",
        "source          Zhu, Lu, Lin and Han, Distributed Training Across the World, NeurIPS 2019 workshop",
        "    sum over k in s..e of  A_{e+D} ... A_{k+1} b_k (gbar_k - g_k)    =    A_{e+D} ... A_{e+1} (xbar - x_own)",
    ):
        assert line in text.splitlines(), line
    shown = data("show", "compressor", "qsgd")
    assert shown["parameters"]["levels"] == {"type": "int", "required": False, "default": 7, "symbol": None}
    assert (shown["travels_by"], shown["unbiased"]) == ("all_gather", True)


def test_show_prints_docstrings_as_plain_text():
    lines = wanbench("show", "algorithm", "dts").stdout.splitlines()
    assert any(line.startswith("Derivation. One optimiser step takes") for line in lines)
    assert any(line.endswith("gradients of shape (numel,):") for line in lines)


@pytest.mark.parametrize(
    ("kind", "behaviour"),
    [
        ("dts", "steps wait"),
        ("sgp", "steps wait; with `wait` they continue, after waiting that long for each share that is due"),
        ("rps", "steps continue without that peer's blocks, after the deadline of each exchange"),
    ],
)
def test_show_explains_what_an_algorithm_does_without_a_peer(kind, behaviour):
    assert f"without a peer  {behaviour}" in wanbench("show", "algorithm", kind).stdout.splitlines()
    assert data("show", "algorithm", kind)["without_a_peer"] == behaviour


def test_training_alone_has_no_behaviour_without_a_peer():
    assert "without_a_peer" not in data("show", "algorithm", "local")


def test_show_refuses_an_unknown_compressor():
    assert (
        refused("show", "compressor", "topp")
        .strip()
        .splitlines()[-1]
        .startswith("wanbench: compressor 'topp' is unknown; did you mean 'topk'?")
    )


def test_list_refuses_what_cannot_be_listed():
    assert "'algorithms', 'compressors', 'workloads', 'profiles', 'experiments'" in refused("list", "things")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("algorithm", kind) for kind in registry.kinds()),
        *(("workload", name) for name in BUILTINS),
        *(("profile", name) for name in ["uniform", *catalog_names()]),
        *(("experiment", name) for name in builtin_names()),
    ],
)
def test_every_listed_name_can_be_shown(kind, name):
    assert len(wanbench("show", kind, name).stdout) > 20
    assert data("show", kind, name)


def test_show_describes_every_kind_of_name():
    assert "Zhu, Lu, Lin and Han" in wanbench("show", "algorithm", "dts").stdout
    assert data("show", "workload", "resnet50-v100")["params"] == 25_557_032
    assert wanbench("show", "experiment", "smoke").stdout.strip() == read("smoke").strip()
    assert data("show", "experiment", "smoke") == Spec.load("smoke").to_dict()


@pytest.mark.parametrize(
    ("kind", "name", "near"),
    [
        ("algorithm", "dtss", "dts"),
        ("workload", "resnet50-v10", "resnet50-v100"),
        ("profile", "wrld4", "world4"),
        ("experiment", "smok", "smoke"),
    ],
)
def test_show_refuses_an_unknown_name_and_suggests_a_similar_one(kind, name, near):
    message = refused("show", kind, name)
    assert message.startswith("wanbench: ")
    assert f"did you mean '{near}'?" in message
    assert "\n" not in message
