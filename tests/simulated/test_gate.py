"""`wanbench check` as a CI job runs it: repository, revisions, baseline and exit codes, on the simulated clock."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from cli_session import Bench
from git_command import git
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

ROOT = Path(__file__).parents[2]
# The code of the checkout: the working folder is first on the path.
HERE = [sys.executable, "-m", "wanbench.harness.cli"]
SPEC = """
schema = 1
name = "gate"

[workload]
params = 100_000
tensors = 4
step_time = "20ms"

[algorithms]
ssgd = {}
dts = { delay = 4, period = 2 }

[sweep]
workers = [2]
rtt = ["10ms", "40ms"]

[run]
testbed = "virtual"
repeats = 1
"""
CHATTY = '''

_quiet = SSGD.gradient


def _chatty(self, g):
    """Send one more message of one element per synchronisation."""
    averaged = _quiet(self, g)
    self.replica.comm.all_reduce(g.new_zeros(1)).wait()
    return averaged


SSGD.gradient = _chatty
'''
BROKEN = """


def _broken(self, g):
    raise ValueError("it broke")


SSGD.gradient = _broken
"""


class Repository:
    """wanbench in its own repository, with the revisions `base`, `comment`, `chatty` and `broken`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "repository"
        folder = self.folder
        for package in ("harness", "workloads", "netprofiles", "wanbench"):
            shutil.copytree(
                ROOT / package, folder / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        (folder / "spec.toml").write_text(SPEC)
        (folder / ".gitignore").write_text("__pycache__/\ntmp/\nstderr-*\n/results/\n*.json\n")
        self.git("init", "--quiet", "--initial-branch", "main")
        self.commit("base")
        algorithm = folder / "workloads" / "algorithms" / "ssgd.py"
        quiet = algorithm.read_text()
        algorithm.write_text(quiet + "\n# A remark that changes nothing.\n")
        self.commit("comment")
        algorithm.write_text(quiet + CHATTY)
        self.commit("chatty")
        algorithm.write_text(quiet + BROKEN)
        self.commit("broken")

    def commit(self, tag: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", tag)
        self.git("tag", tag)

    def git(self, *arguments: str) -> str:
        return git(self.folder, *arguments)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return Repository(tmp_path_factory.mktemp("repository"))


@pytest.fixture
def here(repository):
    """Return a working folder in the repository, at `base`."""
    repository.git("checkout", "--quiet", "--detach", "base")
    bench = Bench(repository.folder)
    yield bench
    bench.close()


def check(bench, *arguments, program=HERE):
    return bench.run("check", "spec.toml", "--allow-no-code", *arguments, program=program)


@pytest.mark.long  # a model that sends twice as much fails the gate of test_ci_examples.py each time
def test_one_more_message_fails_the_gate_and_a_changed_comment_passes(here, repository):
    accepted = check(here, "--baseline", "b.json", "--accept")
    assert (accepted.code, accepted.out.splitlines()[-1]) == (0, "5 accepted.")
    before = (here.folder / "b.json").read_bytes()

    repository.git("checkout", "--quiet", "comment")
    passed = check(here, "--baseline", "b.json")
    assert (passed.code, passed.out.splitlines()[-1]) == (0, "5 unchanged.")

    repository.git("checkout", "--quiet", "chatty")
    failed = check(here, "--baseline", "b.json", "--github")
    assert failed.code == 1
    changed = [line for line in failed.out.splitlines() if "REGRESSED" in line]
    assert [line[:12] for line in changed] == ["ssgd w2 10ms", "ssgd w2 40ms"]
    for line in changed:
        assert "messages_sent 46 -> 92 (+100 %)" in line
        assert "payload_bytes 18400000 -> 18400184 (+0.001 %)" in line
        assert "step_time_s 0.0" in line  # one more round trip
    assert failed.out.splitlines()[-1] == "2 regressed, 3 unchanged."
    assert "::error file=spec.toml,title=wanbench check::2 regressed: ssgd w2 10ms, ssgd w2 40ms" in failed.err
    assert (here.folder / "b.json").read_bytes() == before


def test_failed_cells_are_neither_a_regression_nor_a_baseline(here, repository):
    assert check(here, "--baseline", "f.json", "--accept").code == 0
    before = (here.folder / "f.json").read_bytes()
    repository.git("checkout", "--quiet", "broken")
    failed = check(here, "--baseline", "f.json", "--accept")
    assert failed.code == 4, failed.out + failed.err
    failures = [line for line in failed.out.splitlines() if "FAILED" in line]
    assert [line[:12] for line in failures] == ["ssgd w2 10ms", "ssgd w2 40ms"]
    assert all("it broke" in line for line in failures)
    assert failed.out.splitlines()[-1] == "2 failed, 3 unchanged."
    assert "not written because cells failed" in failed.out
    assert (here.folder / "f.json").read_bytes() == before


@pytest.mark.long  # `make gate` compares with baselines of other hosts each time
def test_a_baseline_does_not_depend_on_the_processor(here):
    """Simulate jitter, loss and varying steps with the vector instructions of numpy and the C library, and without."""
    vectors = [name for name in __cpu_dispatch__ if __cpu_features__[name]]
    if not vectors:
        pytest.skip("this processor has no vector instructions to switch off")
    text = SPEC.replace("[algorithms]", '[network]\njitter = "1ms"\nloss = "0.5%"\nrate = "100Mbit"\n\n[algorithms]')
    (here.folder / "noisy.toml").write_text(text)
    plain = ["env", f"NPY_DISABLE_CPU_FEATURES={' '.join(vectors)}",
             "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F", *HERE]  # fmt: skip
    try:
        first = here.run("check", "noisy.toml", "--allow-no-code", "--baseline", "noisy.json", "--accept", program=HERE)
        again = here.run("check", "noisy.toml", "--allow-no-code", "--baseline", "noisy.json", program=plain)
    finally:
        (here.folder / "noisy.toml").unlink()
    assert (first.code, again.code) == (0, 0), first.err + again.err
    assert again.out.splitlines()[-1] == "5 unchanged."


def test_each_revision_runs_its_own_code_and_leaves_nothing_in_the_repository(here, repository):
    kept = repository.git("for-each-ref"), repository.git("worktree", "list")
    worse = check(here, "--base", "base", "--head", "chatty", "--json")
    assert worse.code == 1, worse.err
    found = {cell["cell"]: cell["verdict"] for cell in json.loads(worse.out)["cells"]}
    assert found == {
        "one-worker w1": "unchanged",
        "dts-d4-p2 w2 10ms": "unchanged",
        "dts-d4-p2 w2 40ms": "unchanged",
        "ssgd w2 10ms": "regressed",
        "ssgd w2 40ms": "regressed",
    }
    assert kept == (repository.git("for-each-ref"), repository.git("worktree", "list"))
    assert repository.git("status", "--porcelain") == ""
    assert list((here.folder / "tmp").glob("wanbench-*")) == []


def test_a_base_that_does_not_know_the_algorithm_is_not_comparable(here):
    (here.folder / "mine.py").write_text(
        "from wanbench.workloads.algorithms.ssgd import SSGD\n\n\nclass Mine(SSGD):\n    pass\n"
    )
    (here.folder / "new.toml").write_text(SPEC.replace("ssgd = {}", 'mine = { kind = "mine:Mine" }'))
    try:
        result = here.run("check", "new.toml", "--base", "base", program=HERE)
    finally:
        (here.folder / "mine.py").unlink()
        (here.folder / "new.toml").unlink()
    assert result.code == 5, result.err
    assert "note: the base cannot run this spec: " in result.out
    assert result.out.splitlines()[-1] == "5 not comparable."


def test_an_interrupted_check_ends_its_sides_and_leaves_nothing(here):
    command = here.start("check", "spec.toml", "--allow-no-code", "--base", "base", "--head", "comment", program=HERE)
    command.until(lambda: "check: round 1 of 1, base" in command.log.read_text())
    command.process.send_signal(signal.SIGTERM)
    result = command.wait()
    assert (result.code, result.out, result.last_line) == (130, "", "wanbench: interrupted; nothing was judged")
    assert command.left_nothing()
    assert list((here.folder / "tmp").glob("wanbench-*")) == []


def test_the_sides_of_a_killed_check_end_and_clean_removes_its_checkouts(here):
    command = here.start("check", "spec.toml", "--allow-no-code", "--base", "base", "--head", "comment", program=HERE)
    command.until(lambda: "check: round 1 of 1, base" in command.log.read_text())
    os.kill(command.process.pid, signal.SIGKILL)
    command.wait()
    assert command.left_nothing()
    assert len(list((here.folder / "tmp").glob("wanbench-*"))) == 1
    assert here.run("clean", program=HERE).code == 0
    assert list((here.folder / "tmp").glob("wanbench-*")) == []
