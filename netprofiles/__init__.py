"""The network: sites, the paths between them, and the provenance of each value.

Layout
    errors.py      UnitError, ProfileError, PlacementError, FileError; the "did you mean" at the end of a message
    units.py       Delay, Rate, Size, Ratio, Packets: parsed once, when a file or an option is read
    impairments.py delay, jitter, loss, ...: a record each, with its name and its unit
    path.py        Site, Path, Provenance; SamePaths for uniform networks
    profile.py     Profile: validation, look-ups, scaling; uniform()
    placement.py   place(): the site of each rank
    user_file.py   files that users name: their bounds, TOML, and the lines and numbers of a table
    toml_text.py   plain data as TOML
    csv_file.py    plain CSV: a line per path or site, or a table of round trips
    library.py     load() by name or path, catalog_names(); strict TOML
    describe.py    a profile as rows, and as a page of text
    catalog/       the built-in profiles: data, with a source for every value

Pure data and arithmetic with the standard library only: no sockets, no torch, no third-party package.
"""

from wanbench.netprofiles.describe import describe, render
from wanbench.netprofiles.errors import FileError, PlacementError, ProfileError, UnitError, did_you_mean
from wanbench.netprofiles.library import catalog_names, load
from wanbench.netprofiles.path import Path, Provenance, Site
from wanbench.netprofiles.placement import place
from wanbench.netprofiles.profile import Profile, uniform
from wanbench.netprofiles.units import Delay, Packets, Rate, Ratio, Size

__all__ = [
    "Delay",
    "FileError",
    "Packets",
    "Path",
    "PlacementError",
    "Profile",
    "ProfileError",
    "Provenance",
    "Rate",
    "Ratio",
    "Site",
    "Size",
    "UnitError",
    "catalog_names",
    "describe",
    "did_you_mean",
    "load",
    "place",
    "render",
    "uniform",
]
