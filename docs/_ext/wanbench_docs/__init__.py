"""The parts of the documentation that are made from the code.

commands.py   what every command says of itself, as data
markdown.py   text and docstrings as Markdown
pages.py      the generated parts of docs/reference/
manual.py     the man page
extension.py  fills the pages when Sphinx reads them; nothing else needs Sphinx
"""
