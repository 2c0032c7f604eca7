"""The notebook in docs/ runs, and its stored outputs are up to date."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_notebooks_stored_outputs_are_up_to_date():
    spec = importlib.util.spec_from_file_location("execute_notebook", ROOT / "scripts" / "execute_notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path = ROOT / "docs" / "results.ipynb"
    stored, fresh = json.loads(path.read_text()), module.execute(path)
    for before, after in zip(stored["cells"], fresh["cells"], strict=True):
        assert shown(after) == shown(before), "".join(before["source"])
    assert sum("image/png" in output["data"] for cell in fresh["cells"] for output in cell.get("outputs", [])) == 1


def shown(cell):
    """Return the outputs without pictures, whose bytes depend on versions of libraries."""
    return [{**output["data"], "image/png": None} for output in cell.get("outputs", [])]
