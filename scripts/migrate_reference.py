"""Give recorded runs the identities and plans of the spine: migrate_reference.py CHECKOUT_BEFORE results/reference."""

import json, subprocess, sys, copy
from pathlib import Path
from wanbench.harness.plan.auto import FixedHost
from wanbench.harness.plan.plan import make
from wanbench.harness.spec.experiment import Spec
from wanbench.harness.results.store import write_json, write_text
from wanbench.harness.results.record import _line
from wanbench.harness.analysis.scalability import one_worker_step_times, scalability

ROOT = Path(sys.argv[2])
renamed = {}
for folder in sorted(p for p in ROOT.iterdir() if (p / "rows.jsonl").is_file()):
    src = folder / "spec.resolved.json"
    if not src.is_file():
        src = folder / "spec.toml"
    before = src.read_text()
    old = json.loads(
        subprocess.run(
            [sys.executable, str(Path(__file__).with_name("old_cells.py")), str(src), folder.name],
            cwd=sys.argv[1],
            env={"PYTHONPATH": sys.argv[1]},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    rows = [json.loads(l) for l in (folder / "rows.jsonl").read_text().splitlines()]
    emulators = {r["testbed"]: r["emulator"] for r in rows if r["emulator"]}

    class Host(FixedHost):
        def testbed(self):
            return next(iter(emulators), "netns")

        def emulator(self, t):
            return emulators.get(t, "relay")

    spec = Spec.from_dict(json.loads(before), folder.name) if src.suffix == ".json" else Spec.load(src)
    plan = make(spec, folder.name, Host())
    assert len(old) == len(plan.cells), (folder.name, len(old), len(plan.cells))
    m = {}
    for o, n in zip(old, plan.cells):
        assert (o["label"], o["workers"], o["axes"], o["testbed"], o["emulator"]) == (
            n.label,
            n.workers,
            dict(n.axes),
            n.testbed,
            n.emulator,
        ), (o, n)
        m[o["key"]] = n
    missing = {r["cell_key"] for r in rows} - set(m)
    assert not missing, (folder.name, len(missing), len(rows))
    names = {}
    for r in rows:
        n = m[r["cell_key"]]
        names[r["cell"]] = n.slug
        r.update(cell=n.slug, cell_key=n.key, base_key=n.base_key)
    alone = one_worker_step_times(rows)
    for r in rows:
        now = scalability(r, alone)
        assert (now is None) == (r["scalability"] is None) and (
            now is None or abs(now / r["scalability"] - 1) < 0.01
        ), (r["cell"], now, r["scalability"])
        r["scalability"] = now
    renamed.update(names)
    rows.sort(key=lambda r: (r["cell"], r["rep"]))
    write_json(folder / "spec.resolved.json", plan.to_json())
    write_text(folder / "rows.jsonl", "".join(map(_line, rows)))
    ev = folder / "evidence.jsonl"
    if ev.is_file():
        lines = [json.loads(l) for l in ev.read_text().splitlines()]
        for l in lines:
            l["cell"] = names[l["cell"]]
        lines.sort(key=lambda l: (l["cell"], l["rep"]))
        write_text(ev, "".join(map(_line, lines)))
    print(folder.name, len(rows), "rows", len(plan.cells), "cells", plan.auto)

for path in ROOT.glob("*/index.json"):
    text = path.read_text()
    for old, new in renamed.items():
        text = text.replace(f'"{old}"', f'"{new}"').replace(f'"{old} rep', f'"{new} rep')
    path.write_text(text)
