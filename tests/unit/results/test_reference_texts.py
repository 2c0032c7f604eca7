"""Keys and columns are described where they are, and none is forgotten: reference and command line say the same."""

from __future__ import annotations

from command_line import as_it_was, data, wanbench  # noqa: F401  # the fixture is used by all
from on_relay import expand

from wanbench.harness.results import columns
from wanbench.harness.results.row import describe
from wanbench.harness.spec import experiment
from wanbench.harness.spec.experiment import Spec

COMMAND = {
    "schema": 1,
    "name": "own",
    "workload": {"command": ["true"]},
    "network": {"rtt": "1ms"},
    "run": {"testbed": "netns"},
}


def test_every_key_of_a_spec_has_a_meaning():
    assert [key.name for key in experiment.described_keys() if not key.meaning] == []


def test_a_key_says_what_it_takes_and_what_holds_without_it():
    found = {key.name: key for key in experiment.described_keys()}
    assert (found["run.repeats"].takes, found["run.repeats"].default) == ("whole number", "3")
    assert found["run.emulator"].takes == '"auto" or "netem" or "relay"'
    assert found["network.place"].takes == '"blocked" or "round-robin" or table'
    assert found["workload.command"].takes == "list of strings"
    assert found["workload.name"].default == ""
    assert found["schema"].default == "required"


def test_a_row_has_the_columns_of_the_catalogue_and_no_others():
    for spec in (Spec.load("smoke"), Spec.from_dict(COMMAND, "x")):
        assert list(describe(expand(spec, "x")[-1], 0)) == list(columns.COLUMNS)


def test_list_tells_keys_and_columns():
    assert data("list", "keys")["network.rtt"].startswith("(string)  Uniform only: round-trip time")
    assert data("list", "columns")["step_time_s"].endswith("Never a median over steps.")
    assert wanbench("list", "keys").stdout.splitlines()[0].startswith("schema ")
