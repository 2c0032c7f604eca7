"""Fills the pages of docs/reference/ from the code when the site is built, so that they are never out of date.

`<!-- generated: NAME -->` marks the place of the part NAME on a page. Generated text is not committed.
"""

from __future__ import annotations

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

from wanbench_docs.pages import fill


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("source-read", _fill)
    app.connect("env-get-outdated", lambda *_: _generated(app))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write MathML, which a browser shows without a font, a script or a network."""
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _block(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def _fill(_app: Sphinx, name: str, source: list[str]) -> None:
    if name.startswith("reference/"):
        source[0] = fill(source[0])


def _generated(app: Sphinx) -> list[str]:
    """Return the pages to read again even if their files did not change, because the code can have changed."""
    return [name for name in app.env.found_docs if name.startswith("reference/")]
