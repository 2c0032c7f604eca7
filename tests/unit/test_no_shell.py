"""The source starts no shell with text from users, and unpickles nothing that could run code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path for room in ("harness", "workloads", "netprofiles", "wanbench") for path in (ROOT / room).rglob("*.py")
)
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn"}
UNPICKLERS = {
    "pickle.load",
    "pickle.loads",
    "marshal.loads",
    "torch.load",
    "numpy.load",
    "np.load",
    "pd.read_pickle",
    "eval",
}
STARTERS = {"subprocess.run", "subprocess.Popen", "subprocess.check_output", "subprocess.check_call", "subprocess.call"}


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def ids(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_no_shell_is_started_and_nothing_is_unpickled(path):
    for name, call in calls(path):
        assert name not in SHELLS | UNPICKLERS, f"{path}:{call.lineno}"
        assert not any(keyword.arg == "shell" for keyword in call.keywords), f"{path}:{call.lineno}"


# `gate.setup` consists of shell lines, which prepare a revision before its code runs.
SHELL_LINES = {"harness/gate/sides.py": 1}


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_every_program_is_started_with_a_list_of_arguments(path):
    shells = []
    for name, call in calls(path):
        if name in STARTERS:
            command = call.args[0]
            assert not isinstance(command, ast.Constant | ast.JoinedStr | ast.BinOp), f"{path}:{call.lineno}"
            shells += [call.lineno] if isinstance(command, ast.List) and "'sh'" in ast.unparse(command) else []
    assert len(shells) == SHELL_LINES.get(ids(path), 0), f"{path}:{shells}"


def test_the_check_finds_a_shell(tmp_path):
    (tmp_path / "bad.py").write_text("import os\nos.system(f'rm {name}')\nsubprocess.run(line, shell=True)\n")
    with pytest.raises(AssertionError):
        test_no_shell_is_started_and_nothing_is_unpickled(tmp_path / "bad.py")
