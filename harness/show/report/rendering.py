"""From a template and plain data to one self-contained page: the engine escapes every value."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from markupsafe import Markup

Row = Mapping[str, Any]

_HERE = Path(__file__).parent


def rendered(template: str, scripts: Sequence[str], **values: Any) -> str:
    """The page of a template, with the style of all pages and these scripts."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(template).render(
        css=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
        js=Markup("\n".join((_HERE / name).read_text(encoding="utf-8") for name in scripts)),
        **values,
    )


def for_script(data: object) -> Markup:
    """JSON that cannot end the <script> element around it."""
    from markupsafe import Markup

    text = json.dumps(data, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def relative(file: Path, page: Path) -> str:
    """The address of a file in a link on a page."""
    return quote(os.path.relpath(file, page.parent).replace(os.sep, "/"))
