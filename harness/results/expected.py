"""Which cells a run should have: those of its spec as it was run, and all that was measured."""

from __future__ import annotations

import json

from wanbench.harness.errors import SpecError
from wanbench.harness.plan.cell import expand
from wanbench.harness.results.store import RunFolder
from wanbench.harness.spec.experiment import Spec


def expected_cells(folder: RunFolder) -> dict[str, str]:
    """Slug of every cell by its identity. Raises: SpecError, if the resolved spec cannot be read."""
    path = folder.path / "spec.resolved.json"
    try:
        resolved = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError) as error:
        raise SpecError(f"{path}: cannot be read ({error}); `wanbench run` of the same experiment writes it") from None
    wanted = {cell.key: cell.slug for cell in expand(Spec.from_dict(resolved, str(path)), str(path))}
    return wanted | {row["cell_key"]: row["cell"] for row in folder.rows()}
