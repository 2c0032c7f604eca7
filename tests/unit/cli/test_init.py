"""`wanbench init`: write a spec to start from."""

import re

import pytest
from command_line import as_it_was, refused, wanbench  # noqa: F401
from on_relay import expand

from wanbench.harness.spec.experiment import Spec


@pytest.mark.parametrize(("file", "name"), [("my Network.toml", "my-network"), ("experiment.toml", "experiment")])
def test_the_starter_is_a_valid_experiment(tmp_path, file, name):
    result = wanbench("init", file)
    assert result.exit_code == 0
    assert result.stdout == f"{file}\n"
    spec = Spec.load(tmp_path / file)
    assert spec.name == name
    assert len(expand(spec, file)) == 1 + 5 * 3


def test_every_commented_alternative_is_a_key_that_exists(tmp_path):
    wanbench("init")
    text = (tmp_path / "experiment.toml").read_text()
    trained = text.replace("# [train]", "[train]").replace("# lr", "lr").replace("# momentum", "momentum")
    trained = trained.replace("# until", "until")
    named = trained.replace("params = 25_000_000", "#").replace("tensors = 160", "#").replace("step_time =", "# ")
    named = named.replace("step_cv =", "# ").replace("payload_scale =", "# ").replace("# name = ", "name = ")
    (tmp_path / "named.toml").write_text(named)
    assert Spec.load(tmp_path / "named.toml").train.until == "300 steps"
    expand(Spec.load(tmp_path / "named.toml"), "named.toml")


def test_the_commented_command_is_a_valid_workload(tmp_path):
    wanbench("init")
    text = (tmp_path / "experiment.toml").read_text()
    for line in ("command =", "step_times =", "warmup =", "H     ="):
        assert text.count(f"# {line}") == 1
        text = text.replace(f"# {line}", line)
    tables = text.split("\n[")
    tables = [table for table in tables if not table.startswith(("comm]", "algorithms]"))]
    ours = ("params =", "tensors =", "step_time =", "step_cv =", "payload_scale =")
    text = "\n".join(line for line in "\n[".join(tables).splitlines() if not line.startswith(ours))
    cells = expand(Spec.from_toml(text, "x.toml"), "x.toml")
    assert [cell.label for cell in cells if cell.axes.get("rtt") == "20ms"] == ["train-H1", "train-H8", "train-H64"]


def test_the_claim_of_the_starter_can_be_checked(tmp_path):
    wanbench("init")
    text, claim, lines = (tmp_path / "experiment.toml").read_text().partition("# [[gate.require]]")
    (tmp_path / "claim.toml").write_text(text + re.sub("(?m)^# ", "", claim + lines))
    only = ("--only", "algorithm=dts-d20-p4", "--only", "rtt=500ms", "--set", "run.repeats=1")
    result = wanbench("check", "claim.toml", "--testbed", "virtual", "--allow-no-code", *only)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "no cell was compared; 1 requirement met.")


def test_an_existing_file_is_not_changed(tmp_path):
    (tmp_path / "experiment.toml").write_text("mine")
    assert refused("init") == "wanbench: experiment.toml: already exists; choose another name"
    assert (tmp_path / "experiment.toml").read_text() == "mine"


def test_a_missing_folder_is_reported_in_one_line():
    assert (
        refused("init", "no/where.toml", code=3)
        == "wanbench: no/where.toml: cannot be written: No such file or directory"
    )


def test_the_name_must_end_in_toml():
    assert refused("init", "x.yaml") == "wanbench: x.yaml: expected a name that ends in .toml"
