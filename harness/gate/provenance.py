"""Whose files a side runs: they are its own, and that is proved, or nothing is compared."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from wanbench.harness.process.git import git

HOOK = Path(__file__).parent / "own"


class OtherFiles(Exception):
    """A side ran files that are not its own, or it cannot be known. The message is one line."""


@dataclass(frozen=True)
class OwnFiles:
    """The files of a side.

    Attributes:
        root: its checkout. others: the other checkouts of the repository. All are real paths.
    """

    root: str
    others: tuple[str, ...]

    def environment(self, record: Path) -> dict[str, str]:
        """The variable for `own/sitecustomize.py`, which writes the record."""
        return {"WAN_OWN_FILES": json.dumps([self.root, self.others, str(record)])}

    def copied(self, path: Path) -> Path:
        """The copy, at its place in this checkout, of a file of another one; any other file itself."""
        copy = self._place(path)
        if copy != path:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
        return copy

    def code(self, files: Iterable[str]) -> dict[str, str]:
        """Digests of these files as this side has them, by their path in the checkout, or their own if in none."""
        found = {}
        for file in files:
            path = self._place(Path(os.path.realpath(file)))
            if path.is_file():
                name = os.path.relpath(path, self.root) if path.is_relative_to(self.root) else file
                found[name] = sha256(path.read_bytes()).hexdigest()[:12]
        return found

    def prove(self, role: str, record: Path, scripts: Iterable[Path]) -> dict[str, str]:
        """Digests of the modules of a record, and of these scripts of commands, by path in the checkout.

        Raises:
            OtherFiles: one of them is a file of another checkout, or there is no record.
        """
        if not record.is_file():
            raise OtherFiles(
                f"whose files the {role} ran is not known: its Python wrote no record of imports ({record})"
            )
        modules = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
        files = sorted({*modules, *map(os.path.realpath, scripts)})
        for file in files:
            top = self._checkout(file)
            if top is not None and top != self.root and not _ignored(Path(file)):
                raise OtherFiles(
                    f"the {role} did not run its own files: {file} in place of {self.root}{file.removeprefix(top)}; "
                    "commit what is new, name scripts relative to the spec, and build in gate.setup what must be built"
                )

        return self.code(file for file in files if self._checkout(file) == self.root)

    def _place(self, path: Path) -> Path:
        """The place in this checkout of a file of any checkout; any other file itself."""
        top = self._checkout(str(path))
        return path if top is None else Path(self.root, path.relative_to(top))

    def _checkout(self, file: str) -> str | None:
        tops = sorted((self.root, *self.others), key=len, reverse=True)
        return next((top for top in tops if file.startswith(f"{top}/")), None)


def _ignored(file: Path) -> bool:
    """Whether git ignores a file, as it does what was built or installed beside the sources."""
    return bool(git("ls-files", "--others", "--ignored", "--exclude-standard", "--", file.name, cwd=file.parent))
