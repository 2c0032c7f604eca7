"""Code that is edited: each row names the code that made it, and no old result is taken for one of the new code."""

from __future__ import annotations

import json
import shutil

import edited_project as project
import pytest
from cli_session import by_numbers

REPEATS = 3


def stored(bench):
    return [row for row in bench.rows("edited") if row["status"] == "ok" and row["workers"] == 2]


@pytest.fixture
def spec(bench):
    project.write(bench.folder)
    text = by_numbers("edited", project.ALGORITHM, run='testbed = "virtual"')
    return bench.spec(text.replace("repeats = 1", f"repeats = {REPEATS}"))


def test_an_edited_helper_is_other_code_until_it_is_kept_or_measured_again(bench, spec):
    bench.measure(spec, "--no-figures")
    assert {(project.messages(row), project.said(row)) for row in stored(bench)} == {(11, 11)}
    assert set(stored(bench)[0]["sources"]) == {"wanbench itself", *project.FILES}
    (bench.folder / "mylib" / "helpers.py").write_text(project.times(2))
    refused = bench.run("run", "--out", "out", "--no-figures", spec)
    assert refused.code == 2
    cell = stored(bench)[0]["cell"]
    assert refused.last_line == (
        f"wanbench: out/edited: 3 repetitions were measured by other code (e.g. {cell}: another version of "
        "mylib.helpers); --keep keeps them, --fresh measures everything again"
    )
    assert bench.run("run", "--out", "out", "--no-figures", spec, "--keep", "--set", "run.repeats=4").code == 0
    assert sorted(map(project.messages, stored(bench))) == [11, 11, 11, 12]
    verified = bench.run("verify", "out/edited")
    assert verified.code == 4
    assert "mylib.helpers: measured with 2 versions of the code" in verified.out
    assert bench.run("run", "--out", "out", "--no-figures", spec, "--fresh").code == 0
    assert {(project.messages(row), project.said(row)) for row in stored(bench)} == {(12, 12)}


def test_an_edit_during_a_sweep_ends_it_and_no_row_names_the_new_code_for_the_old(bench, spec):
    project.order(bench.folder, 2, "helpers", 2)
    ended = bench.run("run", "--out", "out", "--no-figures", spec, "--jobs", "1")
    assert ended.code == 2, ended.err
    assert ended.last_line == (
        "wanbench: out/edited: mylib.helpers changed after this run began, so the run ends; finished repetitions are "
        "kept; the same command goes on with the new code, and asks for --keep or --fresh if the old code measured some"
    )
    assert [(row["rep"], project.messages(row), project.said(row)) for row in stored(bench)] == [(0, 11, 11)]
    assert bench.run("run", "--out", "out", "--no-figures", spec).code == 2
    assert bench.run("run", "--out", "out", "--no-figures", spec, "--keep").code == 0
    rows = sorted(stored(bench), key=lambda row: row["rep"])
    assert [(project.messages(row), project.said(row)) for row in rows] == [(11, 11), (12, 12), (12, 12)]
    assert len({row["code"] for row in rows}) == 2


def test_a_module_that_changes_before_anything_depends_on_it_is_measured_again(bench, spec):
    project.order(bench.folder, 1, "late", 2)
    result = bench.run("run", "--out", "out", "--no-figures", spec, "--jobs", "1")
    assert result.code == 0, result.err
    assert "invalid, will be measured again: mylib.late changed while it was measured" in result.err
    assert [(project.messages(row), project.said(row)) for row in stored(bench)] == REPEATS * [(21, 21)]


@pytest.mark.long  # an edited helper is other code each time
def test_a_project_of_the_same_names_in_another_folder_is_other_code(bench, spec):
    bench.measure(spec, "--no-figures")
    other = bench.folder / "other"
    shutil.copytree(bench.folder / "mylib", other / "mylib")
    (other / "mylib" / "late.py").write_text(project.times(3))
    shutil.copy(bench.folder / spec, other)
    moved = ["env", "-C", str(other), *bench.program]
    arguments = ("run", spec, "--out", str(bench.out), "--no-figures")
    refused = bench.run(*arguments, program=moved)
    assert (refused.code, "another version of mylib.late" in refused.last_line) == (2, True), refused.err
    (other / "mylib" / "late.py").write_text(project.times(1))
    assert bench.run(*arguments, program=moved).code == 0


def test_check_lists_all_modules_that_an_algorithm_imports(bench, spec):
    result = bench.run("check", spec, "--baseline", "b.json", "--accept", "--json")
    assert result.code == 0, result.err
    assert set(json.loads(result.out)["code"]) == {*project.FILES.values()} - {"mylib/late.py"}
