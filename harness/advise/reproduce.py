"""An answer as things to use: a spec that measures it, a snippet that trains with it, and a trial on real hosts."""

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from wanbench.harness.advise.question import Question
from wanbench.harness.advise.recipe import Recipe
from wanbench.harness.plan.cell import TrainingCell
from wanbench.harness.plan.pacing import network_environments
from wanbench.netprofiles.toml_text import document

_WINDOW = "20 steps"  # DDP on gloo can take many seconds a step
_TRIAL_S = 300
_KEYS = ("workload", "network", "train")
_BAND = 0.1  # simulated and emulated times agree so well in most cells


def emulation_spec(question: Question, cells: Sequence[TrainingCell], repeats: int) -> str:
    """A spec in TOML that emulates cells, each with its collective."""
    data = question.spec.to_dict()
    keys = _keys(cells)
    spec: dict[str, Any] = {
        "schema": 1,
        "name": f"{question.spec.name[:71]}-emulated",
        "description": "The settings that `wanbench advise` compared.",
        **{key: dict(data[key]) for key in _KEYS if data.get(key)},
        "algorithms": {
            (key := keys[cell.label]): {**({} if key == cell.kind else {"kind": cell.kind}), **cell.params}
            for cell in cells
        },
        "run": {"window": _WINDOW, "repeats": repeats},
    }
    if not question.reference.workload.learns:
        spec["workload"]["payload_scale"] = "auto"
    by_collective: dict[str, dict[str, None]] = {}
    for cell in cells:
        by_collective.setdefault(cell.collective, {})[keys[cell.label] + cell.label.removeprefix(cell.kind)] = None
    (first, labels), *rest = by_collective.items()
    spec["sweep"] = {"workers": [question.workers], "collective": [first], "algorithm": [*labels]}
    included = [
        {"workers": question.workers, "collective": collective, "algorithm": label}
        for collective, labels in rest
        for label in labels
    ]
    if included:
        spec["sweep"]["include"] = included
    return document(spec)


def _keys(cells: Sequence[TrainingCell]) -> dict[str, str]:
    """The key of each label in `[algorithms]`: the kind, and from the second of a kind on with a number."""
    keys: dict[str, str] = {}
    for cell in cells:
        if cell.label not in keys:
            same_kind = sum(key == cell.kind or key.startswith(f"{cell.kind}-") for key in keys.values())
            keys[cell.label] = cell.kind if not same_kind else f"{cell.kind}-{same_kind + 1}"
    return keys


def training(question: Question, cell: TrainingCell, recipe: Recipe, path: str) -> str:
    """A program that trains a model of the user with a setting, or the lines for a loop that is not known.

    Args:
        path: where it will be.
    """
    model = question.spec.workload.model
    lines = _network_settings(cell)
    params = "".join(f", {key}={value!r}" for key, value in recipe.params.items())
    wrapped = f"wrapped = wrap(model, optimizer, {cell.kind!r}{params})"
    begin = [*lines, f"dist.init_process_group({_backend(cell)!r})"]
    if model is None:
        imports = [*(["import os"] if lines else []), "import torch.distributed as dist", "from wanbench import wrap"]
        remarks = [f"# {line}" for line in textwrap.wrap(f"Train {recipe.words}.", 110)]
        return "\n".join([*imports, "", *begin, *remarks, wrapped, *_LOOP, ""])
    own = {**cell.train.model_dump(exclude_none=True), **({} if recipe.proxy else recipe.train)}
    return _PROGRAM.format(
        setting=cell.label,
        module=model.partition(":")[0],
        make=model.partition(":")[2],
        path=_in_docstring(shlex.quote(path)),
        workers=cell.workers,
        network=_in_docstring(shlex.quote(str(question.spec.network.profile))),
        how=_in_docstring(textwrap.fill(f"Trained {recipe.words}.", 110)),
        begin="\n".join(begin),
        wrapped=wrapped,
        lr=recipe.lr,
        steps=recipe.steps or _STEPS,
        warmup=recipe.train.get("warmup_steps", 0),
        batch=own["batch_size"],
        optimizer=_optimizer(own),
        after=_COSINE if recipe.train.get("schedule") == "cosine" else "1.0",
    )


def _in_docstring(text: str) -> str:
    """Text of others that cannot end the docstring in which it stands."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _optimizer(train: Mapping[str, Any]) -> str:
    """The call that makes torch's optimizer."""
    names = ("momentum", "nesterov", "weight_decay") if train["optimizer"] == "sgd" else ("weight_decay",)
    settings = "".join(f", {name}={train[name]!r}" for name in names if train.get(name))
    return f"torch.optim.{'SGD' if train['optimizer'] == 'sgd' else 'AdamW'}(model.parameters(), lr=LR{settings})"


_LOOP = (
    "for inputs, targets in batches:",
    "    optimizer.zero_grad()",
    "    loss(model(inputs), targets).backward()",
    "    optimizer.step()",
    "wrapped.final()  # one model: the mean of the workers' parameters and buffers",
    "if dist.get_rank() == 0:",
    '    torch.save(model.state_dict(), "model.pt")',
)
_COSINE = "(1 + math.cos(math.pi * (step - WARM_UP) / max(1, STEPS - WARM_UP))) / 2"
_STEPS = 500  # of a program whose number of steps nobody has said
_PROGRAM = '''"""Train {module}:{make} with {setting}, and save one model.

{how}
From the folder of {module}, on each of {workers} hosts, with an address of the first host and the rank of each:

    torchrun --nnodes {workers} --nproc-per-node 1 --node-rank RANK --master-addr FIRST_HOST {path}

or, on the emulated network:

    wanbench exec --profile {network} -n {workers} -- python {path}
"""

import math
import os
import sys

import torch
import torch.distributed as dist

from wanbench import wrap

sys.path.insert(0, os.getcwd())
from {module} import {make}  # noqa: E402

LR = {lr}
STEPS, WARM_UP, BATCH_SIZE, SEED = {steps}, {warmup}, {batch}, 1
if LR is None:
    raise SystemExit("train.py: set LR: no learning rate was measured on this model (`wanbench learn` does)")
if os.environ.get("WORLD_SIZE") != "{workers}":
    raise SystemExit("train.py: start it with torchrun, for {workers} workers; for others ask `wanbench advise`")

{begin}
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(SEED)
model, batches, loss, *accuracy = {make}(rank, world_size, SEED, BATCH_SIZE)
optimizer = {optimizer}


def share_of_lr(step):
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    return {after}


schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, share_of_lr)
{wrapped}
step = 0
while step < STEPS:
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        optimizer.step()
        schedule.step()
        step += 1
        if step == STEPS:
            break
wrapped.final()  # one model: the mean of the workers' parameters and buffers
if rank == 0:
    torch.save(model.state_dict(), "model.pt")
    model.eval()
    with torch.no_grad():
        print(f"{{step}} steps, accuracy {{float(accuracy[0]()):.4f}}" if accuracy else f"{{step}} steps")
dist.destroy_process_group()
'''


def _backend(cell: TrainingCell) -> str:
    return "gloo" if cell.collective == "gloo" else "wan"


def _network_settings(cell: TrainingCell) -> list[str]:
    """Lines that tell the process group `wan` of the network; none for gloo."""
    if _backend(cell) == "gloo":
        return []
    network = cell.profile, cell.placement, cell.mtu
    by_rank = network_environments(*network, collective=cell.collective, ring=cell.ring)
    alike = all(variables == by_rank[0] for variables in by_rank)
    lines = (
        [f"TOLD = {by_rank[0]!r}"] if alike else ["TOLD = [", *(f"    {variables!r}," for variables in by_rank), "]"]
    )
    own = "TOLD" if alike else 'TOLD[int(os.environ["RANK"])]'
    return [
        f"# What the process group knows of the network. Ranks are at {', '.join(map(repr, cell.placement))}.",
        *lines,
        f"os.environ |= {own}",
        "",
    ]


def trial(cell: TrainingCell, predicted_s: float) -> str:
    """A script that runs a setting under plain torchrun for five minutes, with gradients of zeros.

    Args:
        predicted_s: seconds of a step.
    """
    low, high = predicted_s * (1 - _BAND), predicted_s * (1 + _BAND)
    values: Mapping[str, Any] = {
        "SITES": list(cell.placement),
        "BACKEND": _backend(cell),
        "ALGORITHM": cell.kind,
        "PARAMS": dict(cell.params),
        "TENSORS": [tensor.numel for tensor in cell.workload.parameters],
        "STEP_TIMES_S": list(cell.each_step_time_s),
        "STEP_CV": cell.workload.step_cv,
        "PREDICTED_S": (round(low, 6), round(high, 6)),
        "WARM_UP": cell.window_begin + 3,
        "PERIOD": cell.algorithm().period_steps,
        "SECONDS": _TRIAL_S,
    }
    return _TRIAL.format(
        workers=cell.workers,
        constants="\n".join(f"{key} = {value!r}" for key, value in values.items()),
        told="\n".join(_network_settings(cell)),
    )


_TRIAL = '''"""A trial of five minutes on your own hosts: real messages, gradients of zeros, and emulated compute.

On each of {workers} hosts, with wanbench installed, with an address of the first host and the rank of each:

    torchrun --nnodes {workers} --nproc-per-node 1 --node-rank RANK --master-addr FIRST_HOST trial.py

Rank r is at SITES[r]. Rank 0 prints the time of a step beside the predicted one, and writes its steps to steps.jsonl.
"""

import json
import math
import os
import random
import time

import torch
import torch.distributed as dist

from wanbench import wrap

{constants}
SIGMA = math.sqrt(math.log1p(STEP_CV * STEP_CV))

{told}
dist.init_process_group(BACKEND)
model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(numel)) for numel in TENSORS])
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
wrapped = wrap(model, optimizer, ALGORITHM, **PARAMS)
for parameter in model:
    parameter.grad = torch.zeros_like(parameter)


def step():
    began = time.monotonic()
    time.sleep(STEP_TIMES_S[dist.get_rank()] * random.lognormvariate(-SIGMA * SIGMA / 2, SIGMA))
    optimizer.step()
    return time.monotonic() - began


for _ in range(WARM_UP):
    step()
a_period_s = torch.tensor(sum(step() for _ in range(PERIOD)))
dist.broadcast(a_period_s, src=0)  # all ranks make equally many steps
periods = max(3, int(SECONDS / a_period_s.item()))
began = time.monotonic()
times_s = [step() for _ in range(periods * PERIOD)]
mean_s = (time.monotonic() - began) / len(times_s)
wrapped.drain()
if dist.get_rank() == 0:
    with open("steps.jsonl", "w") as file:
        for number, seconds in enumerate(times_s):
            file.write(json.dumps({{"step": number, "seconds": seconds}}) + "\\n")
    low, high = PREDICTED_S
    verdict = "as predicted" if low <= mean_s <= high else "not as predicted; likely causes: how-to/advise"
    print(f"{{mean_s:.4f}} s a step; predicted {{low:.4f}} to {{high:.4f}}: {{verdict}}")
dist.destroy_process_group()
'''
