"""The code and commands in docs/ run as printed, and a training loop runs on two ranks of gloo."""

from __future__ import annotations

import os
import socket

import pytest
import warm
from documents import blocks, commands, matches, typed, write_files
from warm import WANBENCH, Warm

from wanbench.harness.api import Run

CLAIMED_TOO_MUCH = """
Mine.promises = wanbench.Promises(agrees=True)
try:
    wanbench.testing.check(Mine, period=4)
except AssertionError as error:
    print(error)
"""


def start(folder, program, *arguments, **environment):
    """Start a program in a folder, which Python would put on its path."""
    with (folder / "errors").open("a") as errors:
        program = "import sys; sys.path.insert(0, '')\n" + program
        return Warm(program, arguments, folder=folder, err=errors.fileno(), environment={**os.environ, **environment})


def output(folder, *programs):
    """Return the output of each program, when all have ended."""
    written = [program.communicate(timeout=200)[0] for program in programs]
    assert [program.returncode for program in programs] == [0] * len(programs), (folder / "errors").read_text()
    return written


def on_two_ranks(folder, program):
    """Return the output of each rank."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    return output(folder, *(start(folder, program, **common, RANK=str(rank)) for rank in range(2)))


def test_the_tutorials_algorithm_holds_what_it_claims(tmp_path):
    write_files("how-to/own-algorithm.md", tmp_path)
    program = (tmp_path / "check_mine.py").read_text() + CLAIMED_TOO_MUCH
    (shown,) = output(tmp_path, start(tmp_path, program))
    assert shown == "".join(blocks("how-to/own-algorithm.md", "text"))


def test_an_algorithm_that_sends_and_receives_holds_what_it_claims(tmp_path):
    write_files("reference/comm.md", tmp_path)
    (shown,) = output(tmp_path, start(tmp_path, (tmp_path / "check_ring.py").read_text()))
    assert "the mean of the replicas moves as in synchronous SGD" in shown.splitlines()


def test_the_tutorials_experiment_runs(tmp_path):
    write_files("how-to/own-algorithm.md", tmp_path)
    arguments = ("run", "mine.toml", "--testbed", "virtual", "--out", "out", "--no-figures")
    output(tmp_path, start(tmp_path, WANBENCH, *arguments))
    found = Run.open(str(tmp_path / "out/mine")).results().query("workers == 4 and rep == 0")
    rows = {(row["algorithm"], row["rtt_ms"]): row for row in found.to_dict("records")}
    assert {label for label, _ in rows} == {"ssgd", "mine-p4", "mine-p16"}
    slow = [rows[label, 100]["scalability"] for label in ("ssgd", "mine-p4", "mine-p16")]
    assert slow == sorted(slow)
    row = rows["mine-p4", 100]
    assert abs(row["step_time_s"] / row["predicted_step_time_s"] - 1) < 0.1


def test_the_loop_of_the_library_document_runs_on_two_ranks(tmp_path):
    whole, *others = [block for block in blocks("how-to/own-loop.md", "python") if not block.startswith("# ")]
    on_two_ranks(tmp_path, whole)
    assert (tmp_path / "model.pt").is_file()
    loop, end, _ = whole.partition("training.final()")
    assert end
    accuracies = on_two_ranks(tmp_path, "\n".join([loop, *others]))
    assert all(float(out.split()[-1]) > 0.4 for out in accuracies)  # 0.25 by chance


@pytest.mark.long  # the README's example in Python runs each time
def test_results_are_read_in_python_as_the_page_shows(tmp_path):
    write_files("how-to/python.md", tmp_path)
    (shown,) = output(tmp_path, start(tmp_path, (tmp_path / "results.py").read_text()))
    assert "dts-d4-p2" in shown
    assert (tmp_path / "report.html").is_file()


@pytest.mark.parametrize(
    ("document", "lines"),
    [
        ("tutorial.md", 7),
        ("changing-networks.md", 3),
        ("how-to/own-script.md", 1),
        ("how-to/own-model.md", 2),
        ("how-to/own-profile.md", 3),
        ("explanation/payload-scale.md", 4),
        ("how-to/two-sites.md", 4),
    ],
)
def test_a_reader_sees_what_the_document_shows(tmp_path, document, lines):
    write_files(document, tmp_path)
    (tmp_path / "train.py").touch()  # the reader's script in how-to/own-script.md
    simulated = [line for line in commands(document) if line.needs == ""]
    assert len(simulated) == lines
    for line in simulated:
        done = typed(line, tmp_path, warm.path())
        assert done.returncode == 0, done.stdout
        assert matches(done.stdout, line.output), f"$ {line.command}\n{done.stdout}"
