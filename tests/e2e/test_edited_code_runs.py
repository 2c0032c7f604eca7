"""On real sockets too, a row names the code that made it: of a program with helpers, and of workers that import."""

from __future__ import annotations

import json
import sys

import edited_project as project
import pytest
from cli_session import by_numbers

PROGRAM = f"""
schema = 1
name = "edited"

[workload]
command = [{sys.executable!r}, "-m", "pkg", "out.csv"]

[sweep]
workers = [2]
rtt = ["1ms"]

[run]
repeats = 2
"""
MAIN = """
import os, pathlib, sys

import helper


def main():
    from other import late

    with open(sys.argv[1], "a") as out:
        out.write(f"{helper.VERSION}{late.VERSION}")
    order = pathlib.Path("order")
    if order.exists():
        edited = pathlib.Path("helper." + os.environ["RANK"])  # both can have the same process id, in their namespaces
        edited.write_text(order.read_text())
        edited.replace("helper.py")


main()
"""


def program(bench):
    for folder in ("pkg", "other"):
        (bench.folder / folder).mkdir()
    (bench.folder / "pkg" / "__main__.py").write_text(MAIN)
    for module in ("helper.py", "other/late.py"):
        (bench.folder / module).write_text("VERSION = 1\n")
    return bench.spec(PROGRAM)


@pytest.mark.long  # simulated, an edited helper is other code each time
def test_a_program_whose_helper_was_edited_is_not_taken_for_the_one_that_was_measured(bench):
    spec = program(bench)
    bench.measure(spec, "--no-figures")
    rows = [row for row in bench.rows("edited") if row["status"] == "ok"]
    expected = {sys.executable, "helper", "other.late", "pkg.__main__", "pkg/__main__.py", "wanbench itself"}
    assert {*map(frozenset, (row["sources"] for row in rows))} == {frozenset(expected)}, "out.csv is written"
    (bench.folder / "other" / "late.py").write_text("VERSION = 2\n")
    refused = bench.run("run", spec, "--out", "out", "--no-figures")
    assert (refused.code, "another version of other.late" in refused.last_line) == (2, True), refused.err
    assert bench.run("run", spec, "--out", "out", "--no-figures", "--fresh").code == 0


def test_a_program_that_is_edited_while_it_runs_is_measured_again(bench):
    spec = program(bench)
    (bench.folder / "order").write_text("VERSION = 3\n")
    bench.measure(spec, "--jobs", "1", "--no-figures")
    failed = [json.loads(path.read_text())["row"] for path in bench.out.rglob("error.json")]
    assert [row["reason"] for row in failed] == ["helper changed while it was measured"]
    rows = [row for row in bench.rows("edited") if row["status"] == "ok"]
    assert len({row["sources"]["helper"] for row in rows}) == 1


@pytest.mark.long  # simulated, an edit during a sweep ends it each time
def test_workers_import_what_is_there_now_and_an_edit_ends_the_sweep(bench):
    project.write(bench.folder)
    spec = bench.spec(by_numbers("edited", project.ALGORITHM).replace("repeats = 1", "repeats = 2"))
    project.order(bench.folder, 2, "helpers", 2)
    ended = bench.run("run", spec, "--out", "out", "--no-figures", "--jobs", "1")
    assert (ended.code, "mylib.helpers changed after this run began" in ended.last_line) == (2, True), ended.err
    assert bench.run("run", spec, "--out", "out", "--no-figures", "--keep").code == 0
    rows = [row for row in bench.rows("edited") if row["status"] == "ok" and row["workers"] == 2]
    assert sorted((project.messages(row), project.said(row)) for row in rows) == [(11, 11), (12, 12)]
