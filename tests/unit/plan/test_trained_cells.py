"""Cells that train on a data set: where it is, what identifies it, and that simulated workers learn from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from data_sets import mnist
from on_relay import expand
from small_spec import edited

from wanbench.harness.errors import SpecError
from wanbench.harness.rep.sources import sources_before
from wanbench.harness.run.host import check_host
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.testbeds.virtual.simulate import simulate
from wanbench.harness.testbeds.virtual.tcp import Tcp
from wanbench.workloads.data import stdlib

NUMBERS = 'params = 1000\ntensors = 2\nstep_time = "10ms"'
VIRTUAL = ("[sweep]", '[run]\ntestbed = "virtual"\n\n[sweep]')


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Run in an empty folder, without the variable."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("WANBENCH_DATA", raising=False)


def cell_of(workload, where="x.toml", *changes):
    return expand(Spec.from_toml(edited((NUMBERS, workload), VIRTUAL, *changes), str(where)), str(where))[-1]


def test_the_default_folder_is_beside_the_spec_then_in_the_working_folder(tmp_path):
    where = tmp_path / "specs" / "x.toml"
    here, beside = Path.cwd() / "data" / "mnist", where.parent / "data" / "mnist"
    assert cell_of("name = 'mnist-cnn'", where).task.data == str(here)
    beside.mkdir(parents=True)
    assert cell_of("name = 'mnist-cnn'", where).task.data == str(beside)
    assert cell_of("name = 'digits-cnn'", where).task.data is None


def test_a_variable_moves_the_default_and_a_key_has_the_last_word(tmp_path, monkeypatch):
    monkeypatch.setenv("WANBENCH_DATA", str(tmp_path))
    assert cell_of("name = 'mnist-cnn'").task.data == str(tmp_path / "mnist")
    assert cell_of("name = 'resnet50-imagenet'").task.data == str(tmp_path / "imagenet")
    assert cell_of("name = 'mnist-cnn'\ndata = '/other/mnist'").task.data == "/other/mnist"


def test_writing_the_default_folder_keeps_the_identity_and_another_set_changes_it():
    default, written, other = (
        cell_of(f"name = 'mnist-cnn'\n{key}").key for key in ("", "data = '/my/mnist'", "data = '/my/fashion-mnist'")
    )
    assert default == written != other


def test_without_the_data_a_run_is_refused_before_it_starts():
    with pytest.raises(SpecError, match=f"^workload.data: {Path.cwd()}/data/mnist: no such folder; expected the four "):
        check_host([cell_of("name = 'mnist-cnn'")])


def test_the_code_hash_depends_on_the_text_of_this_python_and_only_for_the_workload_that_reads_it(monkeypatch):
    learning, digits = cell_of("name = 'gpt-stdlib'"), cell_of("name = 'digits-cnn'")
    before = sources_before(learning.inputs), sources_before(digits.inputs)
    sources = (*stdlib.sources(), ("new.py", b"print(1)"))
    monkeypatch.setattr(stdlib, "sources", lambda: sources)
    stdlib.digest.cache_clear()
    after = sources_before(learning.inputs), sources_before(digits.inputs)
    stdlib.digest.cache_clear()
    assert (after[0] == before[0], after[1] == before[1]) == (False, True)


@pytest.mark.parametrize(
    ("workload", "chance", "shards"),
    [
        ("mnist-cnn", 0.1, "dirichlet:0.5"),
        ("gpt-stdlib", 1 / 256, "iid"),
        pytest.param("mnist-cnn", 0.1, "iid", marks=pytest.mark.long),
        pytest.param("gpt-stdlib", 1 / 256, "dirichlet:0.5", marks=pytest.mark.long),
    ],
)
def test_simulated_workers_learn_from_it(tmp_path, workload, chance, shards):
    data = f"data = '{mnist(tmp_path / 'mnist')}'" if workload == "mnist-cnn" else ""
    train = f"[train]\nuntil = '60 steps'\nlr = 0.05\nmomentum = 0.9\nbatch_size = 8\nshards = '{shards}'\n\n[sweep]"
    cell = cell_of(f"name = '{workload}'\n{data}", "x.toml", ("[sweep]", train))
    found = simulate(cell.repetition(0).jobs, cell.emulated_network, Tcp())
    assert found.outcomes[0].evaluations[-1].accuracy > 2 * chance
    assert found.outcomes[0].final_loss < 0.8 * found.steps.first_rank[0].loss
