"""Measure what a GPU needs: steps of known models, compressors, copies from and to the host, and NCCL on one card.

    python benchmarks/gpu.py [--out build/gpu.json] [--toy]

Steps are of random data in the memory of the device: forward, backward and SGD with momentum, after some that are not
counted; a median with its coefficient of variation. NCCL is tried by four workers of `wanbench exec` that share the
card. With --toy, everything is tiny and runs on the processor, without NCCL. The whole takes under four minutes.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention  # noqa: E402

from wanbench.workloads.comm.local import run_replicas  # noqa: E402
from wanbench.workloads.compression import registry  # noqa: E402
from wanbench.workloads.compression.averaging import Averager  # noqa: E402
from wanbench.workloads.models.resnet import resnet50  # noqa: E402

GPT = {"gpt-124m": (12, 768, 12), "gpt-350m": (24, 1024, 16)}  # blocks, width, heads (Radford et al. 2019)
SYMBOLS, CONTEXT = 50_304, 1024
PRECISIONS = ("fp32", "tf32", "amp")
_UNCOUNTED, _COUNTED = 5, 20
_ALL_REDUCE = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(0)
vector = torch.ones(1 << 20, device="cuda")
dist.all_reduce(vector)
torch.cuda.synchronize()
print("sum", float(vector[0]))
"""


class Block(nn.Module):
    """Attention and a layer that is four times as wide inside, each added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.attention(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = (
            scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
            .transpose(1, 2)
            .reshape(batch, length, width)
        )
        x = x + self.projection(seen)
        return x + self.narrow(gelu(self.widen(self.norm2(x))))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Tokens of shape (batch, length) to scores of shape (batch, length, SYMBOLS); input and output share weights."""

    def __init__(self, blocks: int, width: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(SYMBOLS, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return self.norm(self.blocks(x)) @ self.tokens.weight.T  # type: ignore[no-any-return]


def main() -> None:
    """Measure everything, and write it as JSON after each part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu.json")
    parser.add_argument("--toy", action="store_true", help="tiny, on the processor")
    asked = parser.parse_args()
    if not asked.toy and not torch.cuda.is_available():
        sys.exit("gpu.py: torch finds no CUDA device; --toy runs on the processor")
    device = torch.device("cpu" if asked.toy else "cuda")
    name = platform.machine() if asked.toy else torch.cuda.get_device_name()
    measured: dict[str, Any] = {"device": name, "torch": torch.__version__, "cuda": torch.version.cuda}
    parts: dict[str, Callable[[], Any]] = {
        "steps": lambda: [*steps(device, asked.toy)],
        "compressors": lambda: [*compressors(device, asked.toy)],
        "copies": lambda: [*copies(device, asked.toy)],
        "nccl": lambda: None if asked.toy else nccl(),
    }
    for part, measure in parts.items():
        measured[part] = measure()
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
        print(part, json.dumps(measured[part]), flush=True)


def steps(device: torch.device, toy: bool) -> Iterator[dict[str, Any]]:
    """ResNet-50 by batch and precision, and transformers in bf16."""
    for precision in ("fp32",) if toy else PRECISIONS:
        for batch in (2,) if toy else (32, 64, 128, 256):
            module = resnet50(torch.Generator().manual_seed(1))
            side = 64 if toy else 224
            inputs, targets = torch.randn(batch, 3, side, side), torch.randint(1000, (batch,))
            yield {"model": "resnet50", "precision": precision, "batch": batch} | stepped(
                module, inputs, targets, device, precision, toy
            )
    for name, (blocks, width, heads) in {"gpt-toy": (2, 64, 2)}.items() if toy else GPT.items():
        tokens = torch.randint(SYMBOLS, (1 if toy else 8, 16 if toy else CONTEXT))
        yield {"model": name, "precision": "bf16", "batch": len(tokens), "tokens": tokens.numel()} | stepped(
            Transformer(blocks, width, heads), tokens, tokens, device, "amp", toy
        )


def stepped(
    module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, device: torch.device, precision: str, toy: bool
) -> dict[str, Any]:
    """Seconds of a step and their coefficient of variation; the reason if the device has too little memory."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "fp32"
    module, inputs, targets = module.to(device), inputs.to(device), targets.to(device)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        half: AbstractContextManager[Any] = nullcontext()
        if precision == "amp":
            half = torch.autocast(device.type, dtype=torch.bfloat16)
        with half:
            scores = module(inputs)
            loss = cross_entropy(scores.flatten(0, -2), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    try:
        times_s = timed(step, device, 1 if toy else _UNCOUNTED, 3 if toy else _COUNTED)
    except torch.cuda.OutOfMemoryError:
        return {"step_time_s": None, "step_cv": None, "why": "out of memory"}
    return {"step_time_s": statistics.median(times_s), "step_cv": statistics.stdev(times_s) / statistics.mean(times_s)}


def timed(call: Callable[[], object], device: torch.device, uncounted: int, counted: int) -> list[float]:
    """Seconds of each counted call, from and to a device that has nothing to do."""
    times_s = []
    for _ in range(uncounted + counted):
        synchronise(device)
        began = time.perf_counter()
        call()
        synchronise(device)
        times_s.append(time.perf_counter() - began)
    return times_s[uncounted:]


def synchronise(device: torch.device) -> None:
    """Wait until the device has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def compressors(device: torch.device, toy: bool) -> Iterator[dict[str, Any]]:
    """Nanoseconds a byte to compress a matrix and to restore it, by its bytes; null where the device cannot."""
    for side in (64,) if toy else (1024, 4096):
        v = torch.randn(side * side, device=device)
        for kind in registry.kinds():
            try:
                seconds = exchanged(kind, v, side, device)
            except (RuntimeError, TypeError) as error:
                yield {"kind": kind, "bytes": 4 * v.numel(), "ns_per_byte": None, "why": str(error).splitlines()[0]}
                continue
            yield {"kind": kind, "bytes": 4 * v.numel(), "ns_per_byte": 1e9 * seconds / (4 * v.numel())}


def exchanged(kind: str, v: torch.Tensor, side: int, device: torch.device) -> float:
    """Seconds to compress and restore a vector alone, in the median."""

    def body(comm: Any) -> list[float]:
        compressor = registry.create(kind)
        assert compressor is not None
        averager = Averager(compressor, comm, v, shapes=((side, side),))

        def exchange() -> None:
            begun = averager.begin(v)
            begun.wait()
            averager.done(begun)

        return timed(exchange, device, 1, 5)

    (times_s,) = run_replicas(1, body)
    return statistics.median(times_s)


def copies(device: torch.device, toy: bool) -> Iterator[dict[str, Any]]:
    """Bytes a second from the device to pinned memory of the host, and back."""
    for nbytes in (1 << 16,) if toy else (1 << 20, 25 << 20, 100 << 20):
        there = torch.zeros(nbytes, dtype=torch.uint8, device=device)
        here = torch.zeros(nbytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
        for name, target, source in (("to host", here, there), ("to device", there, here)):
            times_s = timed(lambda to=target, of=source: to.copy_(of), device, 2, 10)  # type: ignore[misc]
            yield {"copy": name, "bytes": nbytes, "bytes_per_s": nbytes / statistics.median(times_s)}


def nccl() -> dict[str, Any]:
    """Whether NCCL forms a group of four workers on this card over emulated paths, and what it said if not."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "all_reduce.py"
        program.write_text(_ALL_REDUCE, encoding="utf-8")
        command = [sys.executable, "-m", "wanbench", "exec", "--workers", "4", "--rtt", "20ms", "--rate", "1Gbit"]
        began = time.monotonic()
        try:
            done = subprocess.run(
                [*command, "--out", folder, "--", sys.executable, str(program)],
                cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"formed": False, "why": "no group after 60 s"}
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    formed = done.returncode == 0
    return {"formed": formed, "seconds": time.monotonic() - began, "why": None if formed else lines[-3:]}


if __name__ == "__main__":
    main()
