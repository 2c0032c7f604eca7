"""`advise` and `map` from the command line, on the simulated clock."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys

import pytest
import torch
from few_settings import FEW, FEWEST

SMALL = ("--workload", "params=20000,tensors=2,step_time=20ms", "--emulate", "0")
UNIFORM = ("uniform", "--rtt", "40ms", "--rate", "20Mbit", "--workers", "3")


def test_advice_is_the_fastest_setting_of_known_accuracy_and_comes_with_what_one_needs(bench):
    run = bench.run("advise", *UNIFORM, *SMALL, "--json")
    assert run.code == 0, run.err
    advice = json.loads(run.out)
    advised, no_risk = advice["advised"], advice["no_risk"]
    assert no_risk["algorithm"] == "ssgd"
    assert advised["tier"] in ("evidence", "no risk")
    assert advised["speedup"] >= no_risk["speedup"] > 1
    assert all(source["proxy"] and source["difference"] >= -0.01 for source in advised["sources"])
    assert advice["simulated"] >= 50
    assert advice["considered"] > 1000
    assert advice["hosts"] is None  # 100 kB fill the path
    folder = bench.folder / "results" / "advise-40ms-20Mbit-20000"
    lines = list(csv.DictReader((folder / "candidates.csv").read_text().splitlines()))
    assert len(lines) > advice["considered"]
    assert all(line["left_out"] or line["simulated_s"] for line in lines)
    for name in ("train.py", "trial.py"):
        compile((folder / name).read_text(), name, "exec")
    spec = bench.run("plan", str(folder / "advised.toml"), "--set", "run.testbed=virtual", "--json")
    assert {cell["algorithm"] for cell in json.loads(spec.out)["cells"]} >= {"ssgd", advised["algorithm"]}


def test_the_same_question_simulates_nothing_again(bench):
    first, again = (bench.run("advise", *UNIFORM, *SMALL, *FEWEST) for _ in range(2))
    assert "0 to do" not in first.err
    assert "0 to do" in again.err
    assert first.out == again.out
    assert [line.split()[0] for line in again.out.splitlines()][:2] == ["question", "binds"]


@pytest.mark.long  # tests/unit/advise has the parts of the answer
def test_advice_says_what_the_buffers_of_stock_hosts_cost_and_both_remedies(bench):
    fast_and_far = ("uniform", "--rtt", "200ms", "--rate", "2Gbit", "--workers", "2")
    large = ("--workload", "params=5000000,tensors=2,step_time=20ms", "--emulate", "0", *FEWEST)
    answers = {}
    for preset in ("tuned", "stock"):
        run = bench.run("advise", *fast_and_far, *large, "--preset", preset, "--out", preset, "--json")
        assert run.code == 0, run.err
        answers[preset] = json.loads(run.out)
    tuned, stock = answers["tuned"]["hosts"], answers["stock"]["hosts"]
    assert (tuned["preset"], tuned["other_preset"]) == ("tuned", "stock-6.1")
    assert (stock["preset"], stock["other_preset"]) == ("stock-6.1", "tuned")
    assert tuned["limits"]["carried_bps"] == 8 * (3 << 20) / 0.2
    assert tuned["limits"]["buffer_bytes"] >= 2e9 / 8 * 0.2
    no_risk = answers["tuned"]["no_risk"]["step_time_s"]
    assert tuned["step_time_s"]["no_risk"] > 1.5 * no_risk
    assert tuned["step_time_s_on_connections"]["no_risk"] == pytest.approx(no_risk, rel=0.1)
    # Each answer's speed-ups are those of its own hosts, and what it says of the others is what they say.
    assert answers["stock"]["no_risk"]["step_time_s"] == pytest.approx(tuned["step_time_s"]["no_risk"], rel=0.05)
    assert stock["step_time_s"]["baseline"] == pytest.approx(answers["tuned"]["baseline"]["step_time_s"], rel=0.05)


MODEL = """
import torch


def make(rank, world_size, seed, batch_size):
    module = torch.nn.Linear(8, 2)
    torch.nn.init.zeros_(module.weight)
    draw = torch.Generator().manual_seed(1000 * seed + rank)
    inputs = torch.randn(512, 8, generator=draw)
    labels = (inputs[:, 0] > 0).long()
    batches = [(inputs[i::16], labels[i::16]) for i in range(16)]
    accuracy = lambda: (module(inputs).argmax(1) == labels).float().mean()
    return module, batches, torch.nn.functional.cross_entropy, accuracy
"""


@pytest.mark.long  # its parts are tested each time, in tests/unit/advise and tests/unit/learning
def test_for_a_model_of_ones_own_there_is_a_design_and_what_it_recorded_is_the_evidence(bench):
    (bench.folder / "mine.py").write_text(MODEL)
    question = ("advise", *UNIFORM[:-1], "2", "--workload", "mine:make", "--emulate", "0", *FEW)
    first = bench.run(*question, "--budget", "1")
    design = bench.folder / "results" / "advise-40ms-20Mbit-mine-make" / "learn.toml"
    assert f"wanbench learn {design.relative_to(bench.folder)}" in " ".join(first.out.split())
    short = {
        "lr": "lr = [0.4]",
        "outer_lr": "outer_lr = [0.7]",
        "until": 'until = "200 steps"',
        "eval_every": "eval_every = 10",
        "warmup_steps": "",
    }
    lines = design.read_text().splitlines()
    design.write_text("\n".join(short.get(line.partition(" ")[0], line) for line in lines))
    learned = bench.run("learn", str(design))
    assert learned.code == 0, learned.err
    again = json.loads(bench.run(*question, "--json").out)
    assert again["advised"]["tier"] == "evidence"
    assert [(each["proxy"], each["workload"]) for each in again["advised"]["sources"]] == [(False, "mine:make")]
    assert again["train"]["lr"] == 0.4
    program = design.with_name("train.py").relative_to(bench.folder)
    alone = subprocess.run([sys.executable, str(program)], cwd=bench.folder, capture_output=True, text=True)
    assert alone.stderr.startswith("train.py: start it with torchrun, for 2 workers;")
    trained = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(program)],
        cwd=bench.folder, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    (accuracy,) = re.findall(r"^200 steps, accuracy (0\.\d+)$", trained.stdout, re.MULTILINE)
    assert float(accuracy) > 0.9
    assert torch.load(bench.folder / "model.pt")["weight"].shape == (2, 8)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("uniform", "--rtt", "40ms"), "no rate is known"),
        (("world5",), "world4"),
        ((*UNIFORM, "--workload", "resnet51"), "resnet"),
        ((*UNIFORM, "--workload", "params=x,step_time=1ms"), "'params=x': expected params, tensors"),
        ((*UNIFORM, "--memory", "1 parsec"), "--memory"),
        ((*UNIFORM, "--memory", "1kB"), "memory"),
        ((*UNIFORM, "--exclude", "sgpp"), "sgp"),
        ((*UNIFORM, "--exclude", "ssgd"), "excluded"),
        ((*UNIFORM, "--proxy", "imagenet"), "no such recording"),
        (("world4", "--place", "oregon:2"), "expected SITE=N"),
        ((*UNIFORM, "--target-loss", "1e-9"), None),
    ],
)
def test_a_wrong_question_has_one_clear_line_and_a_target_that_is_never_reached_leaves_what_has_no_risk(
    bench, arguments, reason
):
    workload = () if "--workload" in arguments else SMALL[:2]
    run = bench.run("advise", *arguments, *workload, "--emulate", "0", *FEWEST)
    if reason is None:
        assert run.code == 0, run.err
        assert "advised     the same" in run.out
        return
    assert run.code == 2
    assert reason in run.err
    assert run.err.count("\n") == 1


@pytest.mark.long  # its parts are tested each time, in tests/unit/advise
def test_a_map_has_a_point_for_every_network_and_names_the_proxy(bench):
    few = ("--proxy", "gpt", "--max-accuracy-drop", "11")
    run = bench.run("map", *SMALL[:2], "--workers", "3", "--rtts", "5ms,50ms", "--rates", "5Mbit,50Mbit", *few)
    assert run.code == 0, run.err
    folder = bench.folder / "results" / run.out.strip().rpartition("/")[2]
    points = list(csv.DictReader((folder / "map.csv").read_text().splitlines()))
    assert len(points) == 60 * 40
    assert all(float(point["gain_over_ssgd"]) >= 0.99 for point in points)
    assert len({point["best"] for point in points}) > 1
    assert (folder / "map.svg").stat().st_size > 10_000


@pytest.mark.long  # the law of such sites is tested by itself each time
def test_a_site_of_gpus_takes_as_long_on_the_simulated_clock_as_the_law_says(bench):
    site = ("uniform", "--rtt", "60ms", "--rate", "10Gbit", "--workers", "2", "--workload", "gpt-1b")
    advised = bench.run("advise", *site, "--json")
    assert advised.code == 0, advised.err
    advice = json.loads(advised.out)
    (way,) = (way for way in advice["ways"] if way["name"] == advice["advised"])
    spec = bench.folder / "results" / "advise-60ms-10Gbit-gpt-1b" / "advised.toml"
    changes = ("--set", "run.repeats=1", "--set", "workload.payload_scale=1", "--testbed", "virtual")
    label = "diloco-p30-o0.6-bf16"
    run = bench.run("run", str(spec), *changes, "--only", f"algorithm={label}")
    assert run.code == 0, run.err
    rows = json.loads(bench.run("results", "--format", "json").out)
    (simulated_s,) = (row["step_time_s"] for row in rows if row["algorithm"] == label)
    assert simulated_s == pytest.approx(way["law_step_time_s"], rel=0.03)  # steps vary by 2 %, and TCP's window opens
