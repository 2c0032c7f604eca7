"""Whatever a crash, a full disk or an editor did to a run folder, it is read, and what is lost is named."""

from __future__ import annotations

import json
import shutil

from command_line import as_it_was, finished, wanbench  # noqa: F401  # the fixture is used by all
from fuzzing import CASES, DEEP, damaged_json, fuzz, is_clear, or_refused
from hypothesis import strategies as st

from wanbench.harness.errors import SpecError
from wanbench.harness.results.planned import FILE
from wanbench.harness.results.store import RunFolder, open_run
from wanbench.harness.results.verify import objections
from wanbench.harness.show.tables import render

FORMS = ("table", "pivot", "md", "csv", "json")
SHOWN, COMMANDED = 10, 500  # of so many cases, one is also shown, and one goes through the command line


@CASES
def test_a_damaged_run_is_shown_without_what_is_lost_or_refused_clearly(cases, tmp_path):
    finished(tmp_path, statuses=("ok", "ok", "failed"))
    folder = tmp_path / "results" / "smoke"
    files = {path: path.read_text() for path in sorted(folder.rglob("*.json"))}
    of_a_row = next(path for path in files if path.name == "result.json")
    tried, named = [0], [0]

    def check(case):
        path, text = case
        tried[0] += 1
        path.write_bytes(text.encode())
        try:
            found = read(tried[0])
            named[0] += bool(found)
            assert path.read_bytes() == text.encode()
            if tried[0] % COMMANDED == 0:
                result = wanbench("verify", "smoke")
                assert result.exit_code in (0, 2, 4), result.output
        finally:
            path.write_text(files[path])

    def read(number):
        found = None
        with or_refused(SpecError, where="results"):
            found = open_run("smoke", tmp_path / "results").read()
        if found is None:
            return []
        assert all(is_clear(problem) for problem in found.problems), found.problems
        objections(found.rows, {})
        with or_refused(ValueError):
            if number % SHOWN == 0:
                render(found.rows, FORMS[number // SHOWN % len(FORMS)])
        return found.problems

    damaged = st.sampled_from(sorted(files)).flatmap(
        lambda path: st.tuples(st.just(path), damaged_json(json.loads(files[path])))
    )
    row = json.loads(files[of_a_row])
    corpus = [(of_a_row, text) for text in ("", "null", "[]", "{}", '"text"', "[" * 100_000)]
    buckets = {**row, "law_inputs": {**(row["law_inputs"] or {}), "buckets": [[float("inf"), 0.1]]}}
    corpus += [(of_a_row, json.dumps(buckets).replace("Infinity", "1e400"))]
    of_the_plan = next(path for path in files if path.name == FILE)
    plan = json.loads(files[of_the_plan])
    runs = (None, [], {"repeats": None}, {"repeats": "x"}, {"repeats": float("inf")})
    corpus += [(of_the_plan, json.dumps({**plan, "spec": {**plan["spec"], "run": run}})) for run in runs]
    corpus += [(of_a_row, json.dumps(row | {"seed": 2**63 - 1})), (of_a_row, json.dumps(row | {"params": DEEP}))]
    corpus += [(of_a_row, json.dumps(row | {"algorithm": text})) for text in ("=1+1", "\x1b]0;x\x07", "n" * 300)]
    fuzz(cases, damaged, check, corpus)
    assert named[0] > cases // 10


def test_a_run_with_folders_in_place_of_files_is_shown_without_them(tmp_path):
    finished(tmp_path)
    folder = tmp_path / "results" / "smoke"
    for path in sorted(folder.rglob("result.json"))[:2]:
        path.unlink()
        path.mkdir()
    rep = next(path for path in folder.glob("cells/*/rep-0") if (path / "result.json").is_file())
    for name in ("rep-1", "rep-x", "rep-0.failed-1", "rep-0.failed-x", "rep-0.part", "rep-0 copy"):
        shutil.copytree(rep, rep.with_name(name))
    found = RunFolder(folder).read()
    copied = [problem for problem in found.problems if "rep-1/result.json: not a result" in problem]
    folders = [problem for problem in found.problems if "Is a directory" in problem]
    assert (len(copied), len(folders), len(found.problems)) == (1, 2, 3)
    assert len(found.rows) + len(found.earlier) == 3
