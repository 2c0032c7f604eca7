"""The self-contained HTML page of a run (`wanbench report`).

Layout
    content.py     the content as plain data; cells.py has its table and its chart
    page.html.j2   the structure of the page of a run; the template engine escapes every value
    page.css       light, dark, print, phone
    page.js        sorting, notes on data points, copying
    view.js        the filters, and links to what they leave; chart.js draws it
    map.js         the point on the map

Everything that comes from result files is untrusted: it reaches the page as text, never as markup.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from wanbench.harness.results.disk import write_text
from wanbench.harness.results.store import RunFolder
from wanbench.harness.show.report.content import content_of

_HERE = Path(__file__).parent
_SCRIPTS = ("page.js", "chart.js", "map.js", "view.js")


def write_report(folder: RunFolder, path: Path, *, across_hosts: bool = False) -> Path:
    """Write the page of a run to `path` in one step. Links to raw files are relative to it.

    Args:
        across_hosts: summarise the repetitions of hosts together that are not alike.

    Raises:
        OSError: the page cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page(folder, path, across_hosts=across_hosts))
    return path


def page(folder: RunFolder, path: Path, *, across_hosts: bool = False) -> str:
    """The HTML of a run, with links relative to `path`."""
    css, *scripts = (Markup((_HERE / name).read_text(encoding="utf-8")) for name in ("page.css", *_SCRIPTS))
    content = content_of(folder, path, across_hosts=across_hosts)
    return _template().render(css=css, js=Markup("\n").join(scripts), page=content)


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["for_script"] = _for_script
    return environment.get_template("page.html.j2")


def _for_script(data: Any) -> Markup:
    """JSON that cannot end the <script> element around it."""
    text = json.dumps(data, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
