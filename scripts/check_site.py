"""Check a built site: every internal link has a target, and no page loads anything from another host.

python scripts/check_site.py build/site
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src"}


class _Page(HTMLParser):
    """The links of a page, the files it loads, and the anchors on it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[key] for key in ("id", "name") if key in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(values["href"])
        elif tag in _LOADS and _LOADS[tag] in values:
            self.loads.append(values[_LOADS[tag]])


def problems(site: Path) -> list[str]:
    """Return a line for each link without a target and for each file from another host."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    if not pages:
        return [f"{site}: no pages; expected *.html"]
    found = []
    for path, page in pages.items():
        where = path.relative_to(site)
        found += [f"{where}: loads {address}" for address in page.loads if urlsplit(address).netloc]
        for address in [*page.links, *page.loads]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                found.append(f"{where}: {address}: no such file")
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{where}: {address}: no such anchor on that page")
    return found


if __name__ == "__main__":
    lines = problems(Path(sys.argv[1]).resolve())
    for line in lines:
        print(line, file=sys.stderr)
    sys.exit(1 if lines else 0)
