"""Addresses of files and the type of a row, for all parts of a page."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

Row = Mapping[str, Any]


def relative(file: Path, page: Path) -> str:
    """The address of a file in a link on a page."""
    return quote(os.path.relpath(file, page.parent).replace(os.sep, "/"))
