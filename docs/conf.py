"""Sphinx configuration. Building and reading the site needs no network.   make docs"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

project = "wanbench"
author = "the wanbench authors"
copyright = "the wanbench authors, MIT licence"
extensions = ["myst_parser", "wanbench_docs.extension"]
exclude_patterns = ["_ext"]
smartquotes = False  # --help must keep its two hyphens
nitpicky = True  # with -W a broken reference fails the build
default_role = "literal"  # docstrings mark code with single backticks, as Markdown does
myst_enable_extensions = ["deflist", "dollarmath"]
html_math_renderer = "mathml"
myst_heading_anchors = 3
html_theme = "furo"
html_title = "wanbench"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # a page opened as a file cannot fetch summaries
html_show_sphinx = False
html_theme_options = {"top_of_page_buttons": []}
pygments_style = "tango"
pygments_dark_style = "monokai"
