"""Small things that all parts of a page use."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

Row = Mapping[str, Any]


def relative(file: Path, page: Path) -> str:
    """The address of a file for a link on a page."""
    return quote(os.path.relpath(file, page.parent).replace(os.sep, "/"))


def plain(value: Any) -> str:
    """A value as people write it."""
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value, sort_keys=True) if isinstance(value, Mapping | list) else str(value)
