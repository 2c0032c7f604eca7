"""The self-contained HTML page of a run (`wanbench report`).

Layout
    content.py     the content as plain data; its parts: cell_table.py, findings.py, map.py
    rendering.py   from a template to a page; the template engine escapes every value
    page.html.j2   the structure of the page of a run
    page.css       light, dark, print, phone
    page.js        sorting, notes on data points, copying
    view.js        the filters, and links to what they leave; chart.js draws it
    map.js         the point on the map

Everything that comes from result files is untrusted: it reaches the page as text, never as markup.
"""

from __future__ import annotations

from pathlib import Path

from wanbench.harness.results.disk import write_text
from wanbench.harness.results.store import RunFolder
from wanbench.harness.show.report.content import content_of
from wanbench.harness.show.report.rendering import for_script, rendered

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
    from markupsafe import Markup

    content = content_of(folder, path, across_hosts=across_hosts)
    return rendered(
        "page.html.j2",
        _SCRIPTS,
        page=content,
        # The drawings are our own markup. Text from the run is already escaped in them.
        svg={figure.name: Markup(figure.svg) for figure in content.figures}
        | ({"map": Markup(content.map.svg)} if content.map else {}),
        data=for_script(content.results),
        view=for_script(content.view.to_json() if content.view else None),
        map_data=for_script(content.map.data if content.map else None),
    )
