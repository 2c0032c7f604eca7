"""The code in docs/ runs as it stands there: the tutorial, and a training loop on two ranks of gloo."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

from documents import blocks, write_files


def run(folder, *arguments, **environment):
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def on_two_ranks(folder, program, **environment):
    """What each rank printed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, program],
            cwd=folder,
            env={**os.environ, **common, **environment, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    ended = [rank.communicate(timeout=200) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(err for _, err in ended)
    return [out for out, _ in ended]


def test_the_tutorials_algorithm_holds_what_it_claims(tmp_path):
    write_files("own-algorithm.md", tmp_path)
    shown, refusal = blocks("own-algorithm.md", "text")
    assert run(tmp_path, "check_mine.py") == shown
    source = (tmp_path / "my_sync.py").read_text()
    (tmp_path / "my_sync.py").write_text(source.replace("keeps_mean = True", "agrees = True"))
    code = "import wanbench, my_sync\ntry: wanbench.testing.check(my_sync.Mine, period=4)\nexcept AssertionError as e: print(e)"
    assert run(tmp_path, "-c", code) == refusal


def test_the_tutorials_experiment_runs(tmp_path):
    write_files("own-algorithm.md", tmp_path)
    wanbench = ["-P", "-m", "harness.cli"]
    run(tmp_path, *wanbench, "run", "mine.toml", "--testbed", "virtual", "--out", "out", PYTHONPATH=path(tmp_path))
    found = run(tmp_path, *wanbench, "results", "out/mine", "--format", "json", PYTHONPATH=path(tmp_path))
    rows = {
        (row["algorithm"], row["rtt_ms"]): row for row in json.loads(found) if row["workers"] == 4 and not row["rep"]
    }
    assert {label for label, _ in rows} == {"ssgd", "mine-period4", "mine-period16"}
    slow = [rows[label, 100]["scalability"] for label in ("ssgd", "mine-period4", "mine-period16")]
    assert slow == sorted(slow)
    row = rows["mine-period4", 100]
    assert abs(row["step_time_s"] / row["predicted_step_time_s"] - 1) < 0.1


def test_the_loop_of_the_library_document_runs_on_two_ranks(tmp_path):
    fragments = [block for block in blocks("library.md", "python") if not block.startswith("# ")]
    (tmp_path / "loop.py").write_text("\n".join(fragments))
    accuracies = on_two_ranks(tmp_path, "loop.py")
    assert all(float(out.split()[-1]) > 0.4 for out in accuracies)  # 0.25 by chance


def test_the_script_of_the_library_document_follows_its_environment(tmp_path):
    write_files("library.md", tmp_path)
    first, second = on_two_ranks(tmp_path, "train.py", WANBENCH_ALGORITHM="ssgd")
    assert first == second
    assert first.startswith("ssgd ")
    params = json.dumps({"delay": 12, "period": 4})
    for out in on_two_ranks(tmp_path, "train.py", WANBENCH_ALGORITHM="dts", WANBENCH_PARAMS=params):
        label, total = out.split()
        assert label == "dts-d12-p4"
        assert abs(float(total) - float(first.split()[1])) < 0.1


def path(folder):
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
