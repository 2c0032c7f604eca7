"""The code of a user, of a model or of an algorithm, ends neither a command nor its exit code, and prints no data."""

from __future__ import annotations

import json

import pytest
import warm
from cli_session import by_numbers

MODEL = """
import os, signal, sys
import torch

{at_import}


def make(rank, world_size, seed, batch_size):
    {in_make}

    def loss(outputs, labels):
        {in_loss}
        return torch.nn.functional.cross_entropy(outputs, labels)

    return torch.nn.Linear(4, 2), [(torch.zeros(2, 4), torch.zeros(2, dtype=torch.long))], loss
"""
WAYS = {
    "sys.exit(0)": "sys.exit(0)",
    "os._exit(0)": "os._exit(0)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
}
NOISE = "print('NOISE', flush=True); os.write(1, b'NOISE'); os.system('echo NOISE')"


def model(bench, **code):
    (bench.folder / "mine.py").write_text(
        MODEL.format(**{"at_import": "", "in_make": "pass", "in_loss": "pass"} | code)
    )
    text = by_numbers("mine", "ssgd = {}", run='testbed = "virtual"')
    return bench.spec(text.replace("params = 100_000\ntensors = 4", 'model = "mine:make"') + "\n[train]\nlr = 0.1\n")


@pytest.mark.parametrize("place", ["at_import", "in_make"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_model_that_ends_its_process_is_an_error_of_the_spec(bench, place, way):
    spec = model(bench, **{place: way})
    result = bench.run("check", spec, "--baseline", "b.json", "--accept")
    assert (result.code, result.out) == (2, "")
    assert "workload.model: 'mine:make' " in result.last_line
    assert not (bench.folder / "b.json").exists()


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_model_that_exits_ends_no_command_with_status_0(bench, command):
    spec = model(bench, in_make=WAYS["os._exit(0)"])
    result = bench.run(command, spec)
    assert (result.code, result.out) == (2, "")


def test_a_loss_that_ends_its_process_fails_its_cells(bench):
    spec = model(bench, in_loss="pass")
    modules = [f"mine_{number}" for number in range(len(WAYS))]
    for module, way in zip(modules, WAYS.values(), strict=True):
        text = MODEL.format(at_import="", in_make="pass", in_loss=way)
        (bench.folder / f"{module}.py").write_text(text)
    text = (bench.folder / spec).read_text().replace('model = "mine:make"\n', "")
    axis = '"workload.model" = ' + json.dumps([f"{module}:make" for module in modules])
    bench.spec(text.replace("[sweep]", f"[sweep]\n{axis}"))
    result = bench.run("check", spec, "--baseline", "b.json", "--accept")
    assert result.code == 4, result.err
    assert result.out.splitlines()[-1] == f"{2 * len(WAYS)} failed."
    assert not (bench.folder / "b.json").exists()


@pytest.mark.parametrize("way", [WAYS["sys.exit(0)"], WAYS["os._exit(0)"]])
@pytest.mark.parametrize("command", [("plan", "spec.toml"), ("show", "algorithm", "mine:Mine")], ids=" ".join)
def test_an_algorithm_that_ends_its_process_is_an_error_of_the_spec(bench, command, way):
    (bench.folder / "mine.py").write_text(f"import os, sys\n{way}")
    bench.spec(by_numbers("mine", 'mine = { kind = "mine:Mine" }', run='testbed = "virtual"'))
    result = bench.run(*command)
    assert (result.code, result.out) == (2, "")
    assert "'mine:Mine' " in result.last_line


def test_what_a_model_prints_is_no_data(bench):
    spec = model(bench, at_import=NOISE, in_make=NOISE, in_loss=NOISE)
    result = bench.run("check", spec, "--baseline", "b.json", "--accept", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["code"].keys() == {"mine.py"}
    assert "NOISE" in result.err
    assert json.loads(bench.run("plan", spec, "--json").out)


def test_a_regression_is_exit_code_1_whoever_reads_the_report(bench):
    spec = model(bench)
    assert bench.run("check", spec, "--baseline", "b.json", "--accept").code == 0
    path = bench.folder / "b.json"
    data = json.loads(path.read_text())
    for entry in data["cells"].values():
        entry["step_time_s"] /= 2
    path.write_text(json.dumps(data))
    piped = ["env", f"PATH={warm.path()}", "bash", "-c", 'set -o pipefail; wanbench "$@" | true', "bash"]
    assert bench.run("check", spec, "--baseline", "b.json", program=piped).code == 1
