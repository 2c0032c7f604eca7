"""The folders of a run's cells, found by identity: an axis added later changes a cell's name, but not its folder."""

from __future__ import annotations

import os
from pathlib import Path

from wanbench.harness.plan.cell import Cell

_KEY = 6  # characters of the identity at the end of a name


class CellFolders:
    """The folders in `cells/`, which is listed once: to search it for each new cell would take ever longer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._by_key: dict[str, Path] | None = None

    def of(self, cell: Cell) -> Path:
        """The folder of a cell's repetitions, which may not exist yet."""
        folder = self._path / cell.slug
        if folder.is_dir():
            return folder
        if self._by_key is None:
            names = sorted(os.listdir(self._path), reverse=True) if self._path.is_dir() else []
            self._by_key = {name[-_KEY:]: self._path / name for name in names if name[-_KEY - 1 : -_KEY] == "-"}
        return self._by_key.get(cell.key[:_KEY], folder)

    def made(self, cell: Cell, folder: Path) -> None:
        """Remember a new folder."""
        if self._by_key is not None:
            self._by_key.setdefault(cell.key[:_KEY], folder)

    def forget(self) -> None:
        """List the folders again when next needed, because others can have changed them."""
        self._by_key = None
