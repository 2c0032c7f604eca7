"""Load a profile by name from the catalog, or by path from a user's file."""

from __future__ import annotations

from pathlib import Path as File

from wanbench.netprofiles.csv_file import load_csv
from wanbench.netprofiles.errors import ProfileError, did_you_mean
from wanbench.netprofiles.profile import Profile
from wanbench.netprofiles.toml_file import load_toml

_CATALOG = File(__file__).parent / "catalog"


def catalog_names() -> list[str]:
    """Return the names of the built-in profiles, sorted."""
    return sorted(file.stem for file in _CATALOG.glob("*.toml"))


def load(name_or_path: str) -> Profile:
    """Load a built-in profile by name, or the profile in a `.toml` or `.csv` file.

    Raises:
        ProfileError: no such profile or file, or the file is invalid.
    """
    file = File(name_or_path)
    if file.suffix == ".toml":
        return load_toml(file)
    if file.suffix == ".csv":
        return load_csv(file)
    names = catalog_names()
    if name_or_path not in names:
        near = did_you_mean(name_or_path, names)
        raise ProfileError(
            f"no profile {name_or_path!r}; expected one of {', '.join(names)}, or a .toml or .csv file{near}"
        )
    return load_toml(_CATALOG / f"{name_or_path}.toml")
