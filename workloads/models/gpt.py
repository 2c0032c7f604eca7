"""Large GPTs by their tensors and their published speed: timing only, nothing is trained.

The shapes are those of MosaicML's MPT models (llm-foundry): GPT-2's blocks with learned positions, a vocabulary of
50 368, and the output layer tied to the embedding. A test compares their size with the published one.

The work of a tensor is its multiply-adds in the backward pass, for one token. The embedding's gradient is complete
last, because it is also the first layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from wanbench.workloads.models.tensors import ParameterTensor

VOCABULARY = 50_368
PUBLISHED_GPUS = 8


@dataclass(frozen=True, slots=True)
class Throughput:
    """How fast a site trains, as published for a node of 8 GPUs.

    Attributes:
        tokens: of a step of a site. microbatch: tokens that a GPU takes at a time.
        per_s: tokens a second of the node, by device.
    """

    tokens: int
    microbatch: int
    per_s: Mapping[str, int]


@cache
def tensors(width: int, blocks: int, context: int) -> tuple[ParameterTensor, ...]:
    """The parameter tensors, in registration order: 12 of each block, and 4."""
    tied = ParameterTensor("tokens.weight", (VOCABULARY, width), float(2 * VOCABULARY * width))
    positions = ParameterTensor("positions.weight", (context, width), 0.0)
    layers = (tensor for block in range(blocks) for tensor in _block(f"blocks.{block}", width))
    return (tied, positions, *layers, *_norm("norm", width))


def _block(name: str, width: int) -> Iterator[ParameterTensor]:
    yield from _norm(f"{name}.norm1", width)
    yield from _linear(f"{name}.attention", width, 3 * width)
    yield from _linear(f"{name}.projection", width, width)
    yield from _norm(f"{name}.norm2", width)
    yield from _linear(f"{name}.widen", width, 4 * width)
    yield from _linear(f"{name}.narrow", 4 * width, width)


def _linear(name: str, inputs: int, outputs: int) -> Iterator[ParameterTensor]:
    yield ParameterTensor(f"{name}.weight", (outputs, inputs), float(2 * inputs * outputs))
    yield ParameterTensor(f"{name}.bias", (outputs,), 0.0)


def _norm(name: str, width: int) -> Iterator[ParameterTensor]:
    yield ParameterTensor(f"{name}.weight", (width,), float(5 * width))
    yield ParameterTensor(f"{name}.bias", (width,), 0.0)
