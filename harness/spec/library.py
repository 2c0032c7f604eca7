"""Files by path, or by the name of one that ships with the package: specs, and the designs of `learn`.

A folder of built-in files is named after what they are, in the plural.
"""

import os
from pathlib import Path

from wanbench.harness.errors import SpecError, as_spec_error
from wanbench.netprofiles import FileError, did_you_mean
from wanbench.netprofiles.user_file import read_text

MOST_BYTES = 1 << 20  # of a spec
EXPERIMENTS = Path(__file__).parent / "experiments"


def builtin_names(folder: Path = EXPERIMENTS) -> list[str]:
    """What ships with the package."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def find(source: str, folder: Path = EXPERIMENTS) -> Path:
    """The file of a path or a built-in name. Raises: SpecError."""
    names, kind = builtin_names(folder), folder.name
    if source in names:
        return folder / f"{source}.toml"
    path = Path(source)
    if os.path.exists(path):  # false for a name that is too long
        return path
    hint = did_you_mean(source, names, f"built-in {kind}: {', '.join(names)}")
    raise SpecError(f"{source}: no such file and no such {kind.removesuffix('s')}{hint}")


def read(source: str, folder: Path = EXPERIMENTS) -> str:
    """The text of a file, by path or built-in name. Raises: SpecError."""
    with as_spec_error(source, FileError):
        return read_text(find(source, folder), "TOML", MOST_BYTES)
