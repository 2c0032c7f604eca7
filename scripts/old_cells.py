import json, sys
from pathlib import Path
from harness.spec import Spec
from harness.cells import expand

p = Path(sys.argv[1])
where = sys.argv[2]
spec = Spec.from_dict(json.loads(p.read_text()), where) if p.suffix == ".json" else Spec.load(p)
print(
    json.dumps(
        [
            {
                "key": c.key,
                "cell": c.slug,
                "axes": dict(c.axes),
                "label": c.label,
                "workers": c.workers,
                "testbed": c.config["testbed"],
                "emulator": c.config["emulator"],
            }
            for c in expand(spec, where)
        ]
    )
)
