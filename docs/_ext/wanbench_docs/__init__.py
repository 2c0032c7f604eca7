"""The parts of the documentation that are generated from the code.

commands.py   the help of every command, as data
markdown.py   text and docstrings as Markdown
pages.py      the generated parts of docs/reference/
costs.py      the cost of an algorithm, whose formulas are in its page
claims.py     the claims of the papers, read, and answered from recorded runs, as tables
curves.py     the recorded curve of every algorithm, as SVG
learned.py    the recordings of the learning library, as tables
manual.py     the man page
extension.py  fills the pages when Sphinx reads them, and typesets equations; only this needs Sphinx
"""
