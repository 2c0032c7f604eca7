"""The built-in experiments, and the text of a spec by path or name."""

from __future__ import annotations

import difflib
from pathlib import Path

from wanbench.harness.errors import SpecError

_BUILT_IN = Path(__file__).parent / "experiments"


def builtin_names() -> list[str]:
    """Experiments that ship with the package."""
    return sorted(path.stem for path in _BUILT_IN.glob("*.toml"))


def find(source: str) -> Path:
    """The file of a path or a built-in name. Raises: SpecError."""
    if source in builtin_names():
        return _BUILT_IN / f"{source}.toml"
    path = Path(source)
    if path.is_file():
        return path
    close = difflib.get_close_matches(source, builtin_names(), 1)
    hint = f"did you mean {close[0]!r}?" if close else f"built-in experiments: {', '.join(builtin_names())}"
    raise SpecError(f"{source}: no such file and no such experiment; {hint}")


def read(source: str) -> str:
    """The text of a spec, by path or built-in name. Raises: SpecError."""
    try:
        return find(source).read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{source}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{source}: not a text file; expected TOML in UTF-8") from None
