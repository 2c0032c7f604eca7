"""Values and file addresses as text, for all parts of a page."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

Row = Mapping[str, Any]


def relative(file: Path, page: Path) -> str:
    """The address of a file in a link on a page."""
    return quote(os.path.relpath(file, page.parent).replace(os.sep, "/"))


def plain(value: Any) -> str:
    """A value as text: short numbers, and JSON for tables and lists."""
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value, sort_keys=True) if isinstance(value, Mapping | list) else str(value)
