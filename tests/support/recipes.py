"""The recipes of the documentation: programs that nobody here wrote, each with its real packages, and what they do."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from cli_session import Bench, Result

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/how-to/recipes.md").read_text()
RECIPES = dict(re.findall(r"^<!-- recipe: (\S+) -->\n```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
PACKAGES = ROOT / "build/recipes/bin"
PATH = os.pathsep.join([str(PACKAGES), str(Path(sys.executable).parent), os.environ["PATH"]])


def loss(out: str) -> str:
    (found,) = re.findall(r"loss (\d\.\d+)", out)
    return found


def alone(processes: int, script: str, **environment: str) -> str:
    """Return the loss of the same program on this host, without a network."""
    torchrun = [PACKAGES / "torchrun", "--standalone", "--nproc-per-node", str(processes), script]
    done = subprocess.run(torchrun, cwd=ROOT, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return loss(done.stdout)


def same_loss(processes: int, script: str, **environment: str) -> Callable[[str], bool]:
    return lambda out: loss(out) == alone(processes, f"examples/recipes/{script}", **environment)


DELAYED = {"WANBENCH_ALGORITHM": "delayed", "WANBENCH_PARAMS": '{"delay": 4}'}
MODEL_SPACE = {"WANBENCH_ALGORITHM": "dts", "WANBENCH_PARAMS": '{"delay": 3, "period": 2, "form": "model"}'}
ATTACHED = {
    "gpt.py": MODEL_SPACE,
    "with_accelerate.py": DELAYED,
    "with_lightning.py": DELAYED,
    "with_trainer.py": MODEL_SPACE,
}


def steps_took(at_least_ms: float) -> Callable[[str], bool]:
    return lambda out: min(map(float, re.findall(r"([\d.]+) ms per step", out))) > at_least_ms


CLAIMS: dict[str, Callable[[str], bool]] = {
    "ddp": steps_took(50),
    "fsdp": same_loss(2, "fsdp.py"),
    "gpt": same_loss(2, "gpt.py"),
    "accelerate": same_loss(2, "with_accelerate.py"),
    "lightning": same_loss(2, "with_lightning.py"),
    "torchrun": same_loss(4, "fsdp.py"),
    "trainer": same_loss(2, "with_trainer.py"),
    "gpt-dts": same_loss(2, "gpt.py", **MODEL_SPACE),
    "accelerate-delayed": same_loss(2, "with_accelerate.py", **DELAYED),
    "lightning-delayed": same_loss(2, "with_lightning.py", **DELAYED),
    "trainer-dts": same_loss(2, "with_trainer.py", **MODEL_SPACE),
    "torchrun-static": same_loss(4, "fsdp.py"),
    "torchrun-c10d": same_loss(2, "fsdp.py"),
    "accelerate-launch": same_loss(2, "with_accelerate.py"),
    "fabric": same_loss(4, "fsdp.py"),
    "torchft": lambda out: len(re.findall("replica . of 2", out)) == 2 and len({*re.findall(r"sum (\S+)", out)}) == 1,
    "hivemind": lambda out: re.findall(r"mean (\S+)", out) == ["0.5", "0.5"],
    "ray": lambda out: "ran on w0-0,w1-1; means [249999.5]" in out,
    "dask": lambda out: f"ran on w0-0,w1-1; sum {sum(range(20_000))}" in out,
    "mpi": lambda out: sorted(re.findall(r"on (\S+): mean 1.5", out)) == ["w0-0", "w1-1", "w2-2", "w3-3"],
}


def run(bench: Bench, name: str, *options: str, **more: object) -> Result:
    """Run a recipe with more options, and check that it does what it would without wanbench."""
    result = bench.run(*words(name, *options), **more)
    if name == "hivemind" and not (result.code == 0 and CLAIMS[name](result.out)):
        result = bench.run(*words(name, *options), **more)  # one of five rounds fails: peers lose parts of the mean
    assert result.code == 0, result.out + result.err
    assert "exchanged next to nothing" not in result.err
    assert CLAIMS[name](result.out), result.out
    return result


def words(name: str, *options: str) -> list[str]:
    """Return the arguments of a recipe's command, with more options."""
    program, *rest = shlex.split(RECIPES[name].replace("\\\n", ""))
    assert (program, rest[0]) == ("wanbench", "exec")
    return ["exec", "--timeout", "3min", *options, *rest[1:]]
