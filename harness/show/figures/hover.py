"""Figures for a web page: SVG with text as text, colours that follow the page, and a note on every data point."""

import html
import io
import re
from weakref import WeakKeyDictionary

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wanbench.harness.show.figures.style import wanbench_style

_HIT_PT = 6.0
# Values must not refer to axes, or to their figure: it would never be freed.
_NOTES: WeakKeyDictionary[Axes, list[tuple[float, float, str]]] = WeakKeyDictionary()


def note(axes: Axes, x: float, y: float, text: str) -> None:
    """Say `text` of the data point (x, y) to whoever points at it on a web page; elsewhere nothing is drawn."""
    _NOTES.setdefault(axes, []).append((x, y, text))


def inline_svg(figure: Figure, name: str, label: str) -> str:
    """An `<svg>` element to be put into a page.

    Args:
        name: makes the element's ids unique on the page. label: what a screen reader says of the whole figure.
    """
    buffer = io.StringIO()
    with wanbench_style(), matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<[^>]+>", lambda tag: _own(tag.group(), name), text)  # text between tags stays as it is
    text = re.sub(r'<svg [^>]*viewBox="([^"]+)"[^>]*>', lambda m: _opening(m.group(1), label), text, count=1)
    return text.replace("</svg>", f"{_hits(figure)}</svg>").strip()


def _own(tag: str, name: str) -> str:
    """A tag with ids and colours of its page."""
    tag = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', tag)
    tag = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", tag)
    # matplotlib writes colours in style attributes only; the page may redefine each of them.
    return re.sub(r"#[0-9a-f]{6}(?=[;\"])", lambda m: f"var(--c{m.group()[1:]}, {m.group()})", tag)


def _opening(view_box: str, label: str) -> str:
    namespaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg {namespaces} viewBox="{view_box}" role="group" aria-label="{html.escape(label)}">'


def _hits(figure: Figure) -> str:
    """One transparent circle a note, with the note as its name."""
    height = figure.bbox.height
    scale = 72 / figure.dpi
    circles = []
    for axes, (x, y, text) in ((panel, noted) for panel in figure.axes for noted in _NOTES.get(panel, [])):
        right, up = axes.transData.transform((x, y))
        escaped = html.escape(text)
        circles.append(
            f'<circle class="hit" cx="{right * scale:.1f}" cy="{(height - up) * scale:.1f}" r="{_HIT_PT:g}" '
            f'role="img" aria-label="{escaped}"><title>{escaped}</title></circle>'
        )
    return "".join(circles)
