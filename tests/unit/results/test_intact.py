"""`verify` names files that were edited or damaged, and rows that their steps contradict."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command_line import as_it_was, wanbench  # noqa: F401  # the fixture is used by all

from wanbench.harness import api
from wanbench.harness.results import digests
from wanbench.harness.results.record import record
from wanbench.harness.results.steps import ProgramStep, Steps, step_time_s
from wanbench.harness.results.store import RunFolder
from wanbench.harness.results.verify import file_objections, files_not_known

REFERENCE = Path(__file__).resolve().parents[3] / "results" / "reference"


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The folder of a simulated run."""
    out = tmp_path_factory.mktemp("measured")
    api.run("smoke", testbed="virtual", out=out, figures=False)
    return out / "smoke"


@pytest.fixture
def run(tmp_path, measured):
    """A copy of it."""
    return RunFolder(shutil.copytree(measured, tmp_path / "results" / "smoke"))


def said(run) -> list[str]:
    return [one.text for one in file_objections(run)]


def rep(run) -> Path:
    """The folder of the first repetition of a cell with several workers."""
    return min(path.parent for path in run.path.glob("cells/ssgd-*/rep-0/result.json"))


def edit(path: Path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes, indent=1))


def test_a_run_as_it_was_written_is_intact(run):
    assert said(run) == []
    assert files_not_known(run) is None


def test_a_window_begins_with_its_first_step_and_not_where_the_step_before_ended(tmp_path):
    steps = Steps()
    for step, end_s in enumerate((1.0, 2.5, 3.5)):  # TCP's windows were read for half a second
        steps.add(ProgramStep(0, step, int(end_s * 1e9), 1.0))
    steps.write(tmp_path / "steps.parquet")
    assert step_time_s(tmp_path / "steps.parquet", 1, 2) == pytest.approx(1.0, rel=1e-9)


def test_a_row_that_was_edited_is_named_with_what_the_steps_say(run):
    path = rep(run) / "result.json"
    before = json.loads(path.read_text())["step_time_s"]
    edit(path, step_time_s=before / 2)
    assert said(run) == [
        "rep 0: result.json is not as it was written",
        f"rep 0: the step time is {before / 2:.6g} s, but {before:.6g} s by steps.parquet",
    ]
    assert {one.cell for one in file_objections(run)} == {rep(run).parent.name}


def test_an_edit_of_a_row_and_of_its_digest_is_seen_by_its_steps_alone(run):
    path = rep(run) / "result.json"
    edit(path, step_time_s=1.0)
    digests.note(run.path, path)
    assert [text for text in said(run) if "not as" in text] == []
    assert len(said(run)) == 1


def test_a_row_that_is_damaged_or_missing_is_named(run):
    path = rep(run) / "result.json"
    path.write_bytes(path.read_bytes()[:100])
    steps = rep(run).parent / "rep-0" / "steps.parquet"
    assert "rep 0: result.json is not as it was written" in said(run)
    path.unlink()
    assert "rep 0: result.json is missing" in said(run)
    assert steps.exists()


@pytest.mark.parametrize("name", ["steps.parquet", "network.json"])
def test_every_file_that_the_row_names_is_checked(run, name):
    path = rep(run) / name
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert said(run) == [f"rep 0: {name} is not as it was written"]
    path.unlink()
    assert said(run) == [f"rep 0: {name} is missing"]


def test_a_row_without_steps_is_refused(run):
    path = rep(run) / "result.json"
    row = json.loads(path.read_text())
    (rep(run) / "steps.parquet").unlink()
    del row["evidence"]["steps.parquet"]
    path.write_text(json.dumps(row))
    digests.note(run.path, path)
    (text,) = said(run)
    assert text == f"rep 0: steps.parquet is missing, so nothing shows that these {row['steps']} steps were measured"


def test_the_runs_own_files_have_digests_too(run):
    edit(run.path / "manifest.json", kernel="other")
    assert said(run) == ["manifest.json is not as it was written"]


def test_the_command_refuses_an_edited_run_and_says_what_digests_are_worth(run):
    edit(rep(run) / "result.json", scalability=0.5)
    result = wanbench("verify", "smoke")
    assert result.exit_code == 4
    assert "REFUSED  intact" in result.stdout
    assert "This finds damage and edits, but not forged digests" in result.stdout
    assert "result.json is not as it was written" in " ".join(result.stdout.split())


def test_a_run_of_an_earlier_version_is_read_and_said_to_be_unknown(run):
    for path in digests.journals(run.path, digests.FILE):
        path.unlink()
    for path in run.path.glob("cells/*/rep-*/result.json"):
        edit(path, evidence=None)
    assert said(run) == []
    assert files_not_known(run).startswith("no digests.jsonl: measured or recorded by an earlier version")


def test_repetitions_without_a_digest_are_counted(run):
    (journal,) = run.path.glob(f"workers/*/{digests.FILE}")
    noted = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(line for line in noted if "/rep-0/" not in line or "ssgd" not in line))
    assert files_not_known(run).endswith("no digest, so later changes there are not seen")


@pytest.mark.parametrize(
    "line", ['{"file": "../../../etc/passwd", "sha256": "0"}', '{"file": "/etc/passwd", "sha256": "0"}', '{"fi', "[]"]
)
def test_a_foreign_digest_is_not_followed_out_of_the_folder(run, line):
    with (run.path / digests.FILE).open("a") as file:
        file.write(line + "\n")
    assert said(run) == []


def test_a_recording_has_digests_of_its_own_and_none_of_files_that_it_lacks(run, tmp_path):
    recorded = record(run, tmp_path / "recorded", [])
    assert said(recorded) == []
    assert {row["evidence"] for row in recorded.rows()} == {None}
    rows = recorded.path / "rows.jsonl"
    rows.write_text(rows.read_text().replace('"rep": 0', '"rep": 7'))
    assert said(recorded) == ["rows.jsonl is not as it was written"]


@pytest.mark.parametrize("name", sorted(path.parent.name for path in REFERENCE.glob("*/rows.jsonl")))
def test_what_is_recorded_is_intact_as_far_as_is_known(name):
    recorded = RunFolder(REFERENCE / name)
    assert said(recorded) == []
    unknown = files_not_known(recorded)
    assert unknown is None or "not seen" in unknown  # if it was recorded before there were digests
