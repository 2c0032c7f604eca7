"""The built-in experiments, and the text of a spec by path or name."""

from __future__ import annotations

import os
from pathlib import Path

from wanbench.harness.errors import SpecError
from wanbench.netprofiles import FileError, did_you_mean
from wanbench.netprofiles.user_file import read_text

MOST_BYTES = 1 << 20  # of a spec
_BUILT_IN = Path(__file__).parent / "experiments"


def builtin_names() -> list[str]:
    """Experiments that ship with the package."""
    return sorted(path.stem for path in _BUILT_IN.glob("*.toml"))


def find(source: str) -> Path:
    """The file of a path or a built-in name. Raises: SpecError."""
    if source in builtin_names():
        return _BUILT_IN / f"{source}.toml"
    path = Path(source)
    if os.path.exists(path):  # false for a name that is too long
        return path
    hint = did_you_mean(source, builtin_names(), f"built-in experiments: {', '.join(builtin_names())}")
    raise SpecError(f"{source}: no such file and no such experiment{hint}")


def read(source: str) -> str:
    """The text of a spec, by path or built-in name. Raises: SpecError."""
    try:
        return read_text(find(source), "TOML", MOST_BYTES)
    except FileError as error:
        raise SpecError(f"{source}: {error}") from None
