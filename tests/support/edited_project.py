"""A user's algorithm in several files, which a repetition can edit while it runs; its messages tell which code ran."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

SYNC = """
from dataclasses import dataclass
from pathlib import Path

from wanbench import Algorithm

from mylib.helpers import TIMES

HERE = Path(__file__).parent


@dataclass
class Mine(Algorithm):
    \"\"\"Sends as many messages in a step as two modules say, one of which is imported in the first step.\"\"\"

    def stepped(self):
        from mylib.late import TIMES as MORE

        order = HERE / f"order-{self.replica.seed}"
        if order.exists():
            name, text = order.read_text().split(":")
            order.unlink()
            (HERE / name).write_text(text)
        for _ in range(TIMES + 10 * MORE):
            self.replica.comm.all_reduce(self.replica.w.clone()).wait()
"""
ALGORITHM = 'mine = { kind = "mylib.sync:Mine" }'
FILES = {"mylib": "mylib/__init__.py", "mylib.helpers": "mylib/helpers.py", "mylib.late": "mylib/late.py",
         "mylib.sync": "mylib/sync.py"}  # fmt: skip


def times(number: int) -> str:
    """Return a module that says how many messages are sent."""
    return f"TIMES = {number}\n"


def write(folder: Path) -> None:
    """Write the project: 11 messages a step."""
    (folder / "mylib").mkdir()
    (folder / "mylib" / "__init__.py").touch()
    (folder / "mylib" / "sync.py").write_text(SYNC)
    for name in ("helpers", "late"):
        (folder / "mylib" / f"{name}.py").write_text(times(1))


def order(folder: Path, seed: int, module: str, number: int) -> None:
    """Let the repetition with this seed edit a module while it runs."""
    (folder / "mylib" / f"order-{seed}").write_text(f"{module}.py:{times(number)}")


def messages(row: dict[str, Any]) -> int:
    """Return the number of messages of a step, by the row's count."""
    return round(row["messages_sent"] / row["steps_total"] / row["workers"])


def said(row: dict[str, Any]) -> int:
    """Return the number of messages of a step, by the code that the row names."""
    numbers = {hashlib.sha256(times(number).encode()).hexdigest()[:12]: number for number in range(10)}
    return numbers[row["sources"]["mylib.helpers"]] + 10 * numbers[row["sources"]["mylib.late"]]
