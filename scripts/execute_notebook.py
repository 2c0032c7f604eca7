"""Execute a notebook in this process and store its outputs, without Jupyter.

    python scripts/execute_notebook.py docs/results.ipynb

Code cells can hold plain Python. The value of the last expression is shown as a notebook shows it: as HTML or a PNG
if it offers that, else as text.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any


def execute(path: Path) -> dict[str, Any]:
    """Return the notebook with new outputs; cells run in its folder. Raises: whatever a cell raises."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    namespace: dict[str, Any] = {}
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        for count, cell in enumerate(code, 1):
            cell["execution_count"] = count
            cell["outputs"] = _run("".join(cell["source"]), namespace, count)
    finally:
        os.chdir(before)
    return notebook


def _run(source: str, namespace: dict[str, Any], count: int) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(tree, f"cell {count}", "exec"), namespace)
        value = None
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), namespace)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append(
            {"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(keepends=True)}
        )
    if value is not None:
        outputs.append(
            {"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": _shown(value)}
        )
    return outputs


def _shown(value: Any) -> dict[str, Any]:
    data: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "savefig"):
        buffer = io.BytesIO()
        value.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
        data["image/png"] = base64.b64encode(buffer.getvalue()).decode()
    elif hasattr(value, "_repr_png_"):
        data["image/png"] = base64.b64encode(value._repr_png_()).decode()
    elif hasattr(value, "_repr_html_"):
        data["text/html"] = value._repr_html_().splitlines(keepends=True)
    return data


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(json.dumps(execute(target), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
