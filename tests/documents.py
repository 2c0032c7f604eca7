"""The code of documents: what stands in them is what runs."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def blocks(document: str, language: str) -> list[str]:
    """The blocks of a language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / document).read_text(), re.DOTALL | re.MULTILINE)


def write_files(document: str, folder: Path) -> None:
    """Write every block that begins with `# name.suffix` to a file of that name."""
    for block in [*blocks(document, "python"), *blocks(document, "toml")]:
        named = re.match(r"# (\w+\.\w+)\n", block)
        if named:
            (folder / named[1]).write_text(block)
