"""The source starts no shell with text from users, and unpickles nothing that could run code."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

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


@cache
def calls(path: Path) -> list[tuple[str, ast.Call]]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return [(ast.unparse(node.func), node) for node in nodes if isinstance(node, ast.Call)]


# The process for users' code unpickles what its parent asks. The parent reads the answers as plain data.
FROM_ITS_PARENT = {(ROOT / "harness/process/apart.py", "pickle.loads")}


def offences(path: Path) -> list[str]:
    return [
        f"{path}:{call.lineno}"
        for name, call in calls(path)
        if (name in SHELLS | UNPICKLERS or any(keyword.arg == "shell" for keyword in call.keywords))
        and (path, name) not in FROM_ITS_PARENT
    ]


def test_no_shell_is_started_and_nothing_is_unpickled():
    assert len(SOURCES) > 350
    assert [line for path in SOURCES for line in offences(path)] == []


# `gate.setup` consists of shell lines, which prepare a revision before its code runs.
SHELL_LINES = {"harness/gate/sides.py": 1}


def test_every_program_is_started_with_a_list_of_arguments():
    shells = Counter()
    for path in SOURCES:
        for name, call in calls(path):
            if name in STARTERS:
                command = call.args[0]
                assert not isinstance(command, ast.Constant | ast.JoinedStr | ast.BinOp), f"{path}:{call.lineno}"
                if isinstance(command, ast.List) and "'sh'" in ast.unparse(command):
                    shells[path.relative_to(ROOT).as_posix()] += 1
    assert shells == SHELL_LINES


def test_the_check_finds_a_shell(tmp_path):
    (tmp_path / "bad.py").write_text("import os\nos.system(f'rm {name}')\nsubprocess.run(line, shell=True)\n")
    assert len(offences(tmp_path / "bad.py")) == 2
