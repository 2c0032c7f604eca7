"""`wanbench report`: one self-contained HTML page per run.

Layout
    content.py     the content as plain data; its parts: headline.py, cell_table.py, findings.py, view.py, map.py
    plain.py       values and addresses as text
    page.html.j2   the structure; the template engine escapes every value
    page.css       light, dark, print, phone
    page.js        sorting, notes on data points, copying
    view.js        the filters, and links to what they leave; chart.js draws it
    map.js         the point on the map

Everything that comes from result files is untrusted: it reaches the page as text, never as markup.
"""

from __future__ import annotations

import json
from pathlib import Path

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
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    content = content_of(folder, path, across_hosts=across_hosts)
    template = environment.get_template("page.html.j2")
    return template.render(
        page=content,
        css=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
        js=Markup("\n".join((_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS)),
        # The drawings are our own markup. Text from the run is already escaped in them.
        svg={figure.name: Markup(figure.svg) for figure in content.figures}
        | ({"map": Markup(content.map.svg)} if content.map else {}),
        data=Markup(_for_script(content.results)),
        view=Markup(_for_script(content.view.to_json() if content.view else None)),
        map_data=Markup(_for_script(content.map.data if content.map else None)),
    )


def _for_script(data: object) -> str:
    """JSON that cannot end the <script> element around it."""
    text = json.dumps(data, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
