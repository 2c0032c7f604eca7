"""Ways to have measured nothing or too little. None is green."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from command_line import as_it_was, wanbench  # noqa: F401
from gate_rows import row
from small_spec import GOOD

from wanbench.harness.gate import claims, exact
from wanbench.harness.gate.measured import Sides, findings
from wanbench.harness.gate.noise import HostNoise
from wanbench.harness.gate.verdict import Judgement, Report, Verdict
from wanbench.harness.spec.tables import GateTable, Requirement

SPEC = GOOD.replace("[sweep]", '[run]\ntestbed = "virtual"\nrepeats = 1\n\n[sweep]')
REQUIRE = '\n[[gate.require]]\nmetric = "scalability"\nwhere = { algorithm = "ssgd" }\nmin = 0.1\n'
CELL = "ssgd w2 10ms"
CHECK = ("check", "t.toml", "--baseline", "b.json", "--allow-no-code")


@pytest.fixture(scope="module")
def accepted(tmp_path_factory):
    """Return the text of a baseline as `--accept` writes it."""
    folder, before = tmp_path_factory.mktemp("accepted"), os.getcwd()
    os.chdir(folder)
    try:
        (folder / "t.toml").write_text(SPEC)
        assert wanbench(*CHECK, "--accept").exit_code == 0
    finally:
        os.chdir(before)
    return (folder / "b.json").read_text()


@pytest.fixture
def folder(tmp_path, accepted):
    (tmp_path / "t.toml").write_text(SPEC)
    (tmp_path / "b.json").write_text(accepted)
    return tmp_path


def test_the_unchanged_baseline_is_green_and_says_how_much_was_judged(folder):
    result = wanbench(*CHECK)
    assert (result.exit_code, result.stdout.splitlines()[-2:]) == (
        0,
        ["2 comparisons and 0 requirements judged; your code: none", "2 unchanged."],
    )


# ---------------------------------------------------------------- the file is not a baseline of this experiment

TEXTS = {
    "an empty file": "",
    "blanks": " \n\n",
    "no JSON": "all good",
    "a list": "[]",
    "null": "null",
    "true": "true",
    "a number": "1",
    "a string": '"cells"',
    "an empty object": "{}",
    "a NaN": "NaN",
    "100000 brackets": "[" * 100_000,
    "100000 nested objects": '{"cells":' * 100_000,
    "an object without cells": '{"experiment": "t", "schema": 2}',
    "an object without an experiment": '{"cells": {}, "schema": 2}',
    "a number of 5000 digits": "1" * 5000,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_file_that_is_no_baseline_is_refused(folder, text):
    (folder / "b.json").write_text(text)
    refused_before_measuring(folder)


def refused_before_measuring(folder, *arguments):
    result = wanbench(*CHECK, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("wanbench: ")
    assert result.stderr.count("\n") == 1
    assert not (folder / "results").exists()


def _without(path):
    path.unlink()


def _cut(path):
    path.write_text(path.read_text()[:-40])


def _merged(path):
    path.write_text("<<<<<<< ours\n" + path.read_text())


def _twice(path):
    path.write_text(path.read_text().replace(' "cells": {', f' "cells": {{\n  "{CELL}": {{}},'))


def _fifo(path):
    path.unlink()
    os.mkfifo(path)


def _device(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def _dangling(path):
    path.unlink()
    path.symlink_to("nowhere")


def _large(path):
    with path.open("ab") as file:
        file.truncate(100 << 20)


def _latin(path):
    path.write_bytes(b"\xff" + path.read_bytes())


@pytest.mark.parametrize("spoil", [_without, _cut, _merged, _twice, _fifo, _device, _dangling, _large, _latin])
def test_a_spoilt_file_is_refused(folder, spoil):
    spoil(folder / "b.json")
    refused_before_measuring(folder)


def edit(name, value):
    return lambda data: data["cells"][CELL].__setitem__(name, value)


EDITS = {
    "of another experiment": lambda data: data.update(experiment="other"),
    "of no experiment": lambda data: data.update(experiment=None),
    "without cells": lambda data: data.update(cells={}),
    "cells null": lambda data: data.update(cells=None),
    "cells a list": lambda data: data.update(cells=[]),
    "cells a string": lambda data: data.update(cells="all"),
    "a cell null": lambda data: data["cells"].update({CELL: None}),
    "a cell a list": lambda data: data["cells"].update({CELL: []}),
    "a cell a string": lambda data: data["cells"].update({CELL: "ok"}),
    "a cell empty": lambda data: data["cells"].update({CELL: {}}),
    "only cells of other names": lambda data: data.update(cells={"other": data["cells"][CELL]}),
    "a cell without testbed": lambda data: data["cells"][CELL].pop("testbed"),
    "a cell without identity": lambda data: data["cells"][CELL].pop("cell"),
    "an unknown value": edit("speed", 1.0),
    "a time null": edit("step_time_s", None),
    "a time a string": edit("step_time_s", "fast"),
    "a time infinite": edit("step_time_s", float("inf")),
    "a time not a number": edit("step_time_s", float("nan")),
    "a time negative": edit("step_time_s", -1.0),
    "a time zero": edit("step_time_s", 0.0),
    "a time a list": edit("step_time_s", [0.1]),
    "a time nested": edit("step_time_s", {"a": {"b": {}}}),
    "a time a truth": edit("step_time_s", True),
    "a scalability infinite": edit("scalability", float("-inf")),
    "messages a fraction": edit("messages_sent", 1.5),
    "messages negative": edit("messages_sent", -1),
    "bytes infinite": edit("payload_bytes", float("inf")),
    "steps a string": edit("steps", "20"),
    "a loss infinite": edit("final_loss", float("inf")),
    "no spec": lambda data: data.pop("spec"),
}


@pytest.mark.parametrize("change", EDITS.values(), ids=EDITS)
def test_a_baseline_with_values_that_were_not_measured_is_refused(folder, change):
    data = json.loads((folder / "b.json").read_text())
    change(data)
    (folder / "b.json").write_text(json.dumps(data))
    refused_before_measuring(folder)


# ---------------------------------------------------------------- a part cannot be compared

PARTS = {
    "a cell is new": lambda data: data["cells"].pop(CELL),
    "a cell is gone": lambda data: data["cells"].update({"ssgd w9 10ms": data["cells"][CELL]}),
    "a cell has no values": lambda data: data["cells"].update({CELL: {"cell": data["cells"][CELL]["cell"],
                                                                     "testbed": "virtual", "emulator": None}}),
    "a time is missing": lambda data: data["cells"][CELL].pop("step_time_s"),
    "counts are missing": lambda data: data["cells"][CELL].pop("messages_sent"),
    "other steps": edit("steps", 7),
    "another testbed": edit("testbed", "netns"),
    "another spec": lambda data: data["cells"][CELL].update(cell="0", step_time_s=9.0),
    "another version of wanbench": lambda data: data.update(wanbench="0.0.1"),
    "another version, and slower": lambda data: (data.update(wanbench="0.0.1"), edit("step_time_s", 1e-9)(data)),
    "no version of wanbench": lambda data: data.pop("wanbench"),
    "an earlier schema": lambda data: data.update(schema=1),
}  # fmt: skip


@pytest.mark.parametrize("change", PARTS.values(), ids=PARTS)
def test_what_cannot_be_compared_is_exit_code_5_and_no_regression(folder, change):
    data = json.loads((folder / "b.json").read_text())
    change(data)
    (folder / "b.json").write_text(json.dumps(data))
    result = wanbench(*CHECK)
    assert result.exit_code == 5
    assert "REGRESSED" not in result.stdout


def test_another_version_of_wanbench_asks_for_a_new_baseline(folder):
    data = json.loads((folder / "b.json").read_text())
    (folder / "b.json").write_text(json.dumps(data | {"wanbench": "0.0.1"}))
    result = wanbench(*CHECK, "--inconclusive", "pass")
    assert result.exit_code == 5, "nothing was judged"
    assert "re-baseline: written by wanbench 0.0.1" in result.stdout
    assert wanbench(*CHECK, "--accept").exit_code == 0
    assert wanbench(*CHECK).exit_code == 0


# ---------------------------------------------------------------- the command asks for nothing

NOTHING = {
    "no baseline, base or requirement": (SPEC, ("--allow-no-code",)),
    "only drops the only requirement": (
        SPEC.replace("ssgd = {}", "ssgd = {}\nsparse = { period = 2 }") + REQUIRE,
        ("--allow-no-code", "--only", "algorithm=sparse-p2"),
    ),
    "a requirement without a cell": (SPEC + REQUIRE.replace("ssgd", "dts"), ("--allow-no-code",)),
    "a requirement without a bound": (SPEC + REQUIRE.replace("min = 0.1", ""), ("--allow-no-code",)),
    "a requirement that all meet": (SPEC + REQUIRE.replace("min = 0.1", "max = inf"), ("--allow-no-code",)),
    "a requirement on no metric": (SPEC + REQUIRE.replace("scalability", "speed"), ("--allow-no-code",)),
    "a tolerance for everything": (SPEC + "\n[gate]\ntolerance = inf\n", CHECK[2:]),
    "a slowdown for everything": (SPEC + "\n[gate]\nmax_slowdown = inf\n", CHECK[2:]),
    "no code of the user": (SPEC + REQUIRE, ()),
    "no code of the user, with a baseline": (SPEC, ("--baseline", "b.json")),
    "a run folder and nothing to compare": (SPEC, ("--allow-no-code", "--base", "nowhere", "--head", "nowhere")),
    "a folder for a baseline": (SPEC, ("--allow-no-code", "--baseline", ".")),
    "only keeps no cell": (SPEC, (*CHECK[2:], "--only", "algorithm=dts")),
}


@pytest.mark.parametrize(("text", "arguments"), NOTHING.values(), ids=NOTHING)
def test_a_check_of_nothing_is_refused(folder, text, arguments):
    (folder / "t.toml").write_text(text)
    result = wanbench("check", "t.toml", *arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert not list(folder.glob("results/*/cells"))


# ---------------------------------------------------------------- reports


def report(*verdicts, claims=()):
    return Report("t", "", tuple(Judgement(str(i), one) for i, one in enumerate(verdicts)),
                  tuple(Judgement(str(i), one) for i, one in enumerate(claims)))  # fmt: skip


V = Verdict
UNDECIDED = {
    "nothing": report(),
    "a new cell": report(V.NEW),
    "a cell that cannot be compared": report(V.NOT_COMPARABLE),
    "an inconclusive cell": report(V.INCONCLUSIVE),
    "an inconclusive requirement": report(claims=[V.INCONCLUSIVE]),
}


@pytest.mark.parametrize("found", UNDECIDED.values(), ids=UNDECIDED)
def test_a_report_without_a_judgement_is_not_green_even_if_what_is_undecided_may_pass(found):
    assert (found.exit_code(), found.exit_code(undecided=0)) == (5, 5)


@pytest.mark.parametrize("verdict", [V.NEW, V.NOT_COMPARABLE, V.INCONCLUSIVE])
def test_beside_a_judgement_what_is_undecided_is_red_unless_it_may_pass(verdict):
    found = report(V.UNCHANGED, verdict)
    assert (found.exit_code(), found.exit_code(undecided=0)) == (5, 0)


# ---------------------------------------------------------------- rows


def values(**changed):
    return {**row("ssgd", 0, testbed="virtual"), **changed}


FAILED = {
    "the second repetition failed": [values(), values(rep=1, status="failed", reason="it broke")],
    "the second repetition is invalid": [values(), values(rep=1, status="invalid", reason="late")],
    "the first repetition is missing": [values(rep=1)],
    "the loss is infinite": [values(final_loss=float("inf"))],
    "the loss is not a number": [values(final_loss=float("nan"))],
}


@pytest.mark.parametrize("rows", FAILED.values(), ids=FAILED)
def test_a_cell_with_a_repetition_that_failed_is_not_compared(rows):
    base = exact.entries([values()])
    (found,) = exact.compare(base, rows, GateTable())
    assert found.verdict is V.FAILED


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_metric_that_is_no_number_meets_no_requirement(value):
    require = Requirement(metric="step_time_s", where={"algorithm": "ssgd"}, min=0.0)
    (found,) = claims.judge([require], [values(step_time_s=value)], "t")
    assert found.verdict is V.FAILED


def test_a_ratio_over_zero_meets_no_requirement():
    require = Requirement(metric="step_time_s", where={"algorithm": "ssgd"}, over={"algorithm": "one-worker"}, min=0.0)
    (found,) = claims.judge([require], [values(), row("one-worker", step_time_s=0.0)], "t")
    assert found.verdict is V.FAILED


SIDES = {
    "both sides are empty": ([], []),
    "only the base": ([values(testbed="netns")], []),
    "only the head": ([], [values(testbed="netns")]),
    "one pair is too few": ([values(testbed="netns")], [values(testbed="netns")]),
    "no repetition in common": ([values(testbed="netns")], [values(testbed="netns", rep=1)]),
    "other networks": ([values(testbed="netns")], [values(testbed="netns", rtt_ms=7.0)]),
}


@pytest.mark.parametrize(("base", "head"), SIDES.values(), ids=SIDES)
def test_sides_without_enough_pairs_are_not_green(tmp_path, base, head):
    sides = Sides(base, head, GateTable())
    found, together = findings(sides, GateTable(), 1, HostNoise({}))
    assert replace(report(), cells=tuple(found), overall=together).exit_code() != 0
