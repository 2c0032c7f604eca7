"""What the network is: sites, the paths between them, and where each value comes from.

Layout
    errors.py      UnitError, ProfileError, PlacementError; the near miss that ends a message
    units.py       Delay, Rate, Size, Ratio: parsed once at the edge
    impairments/   delay, jitter, loss, ...: one file each, how it is called and written
    path.py        Site, Path, Provenance; SamePaths for uniform networks
    profile.py     Profile: validation, look-ups, scaling; uniform()
    placement.py   place(): the site of each rank
    values.py      what a file states about one path
    toml_file.py   strict TOML
    csv_file.py    plain CSV
    library.py     load() by name or path, catalog_names()
    describe.py    rows and a page of text for people
    catalog/       the built-in profiles: data, with a source for every value

Pure data and arithmetic on the standard library alone: no sockets, no torch, no third-party package.
"""

from wanbench.netprofiles.describe import describe, render
from wanbench.netprofiles.errors import PlacementError, ProfileError, UnitError, did_you_mean
from wanbench.netprofiles.library import catalog_names, load
from wanbench.netprofiles.path import Path, Provenance, Site
from wanbench.netprofiles.placement import place
from wanbench.netprofiles.profile import Profile, uniform
from wanbench.netprofiles.units import Delay, Rate, Ratio, Size

__all__ = [
    "Delay",
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
