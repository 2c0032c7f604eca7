"""The tensors of GPTs, and the published speed of large ones, which are for timing only.

The shapes of the large ones are those of MosaicML's MPT models (llm-foundry): GPT-2's blocks with learned positions, a
vocabulary of 50 368, and the output layer tied to the embedding. A test compares their size with the published one.

The work of a tensor is its multiply-adds in the backward pass, for one token. The embedding's gradient is complete
last, because it is also the first layer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from wanbench.workloads.models.tensors import ParameterTensor

VOCABULARY = 50_368


@dataclass(frozen=True, slots=True)
class Throughput:
    """How fast a site trains, as published for a node of 8 GPUs.

    Attributes:
        tokens: of a step of a site. microbatch: tokens that a GPU takes at a time.
        per_s: tokens a second of the node, by device. gpus: of the node.
    """

    tokens: int
    microbatch: int
    per_s: Mapping[str, int]
    gpus: int = 8


@cache
def tensors(width: int, blocks: int, context: int) -> tuple[ParameterTensor, ...]:
    """The parameter tensors, in registration order: 12 of each block, and 4."""
    tied = ParameterTensor("tokens.weight", (VOCABULARY, width), float(2 * VOCABULARY * width))
    positions = ParameterTensor("positions.weight", (context, width), 0.0)
    layers = (tensor for number in range(blocks) for tensor in block(f"blocks.{number}", width))
    return (tied, positions, *layers, *norm("norm", width))


def block(name: str, width: int, context: int = 1) -> Iterator[ParameterTensor]:
    """A block of GPT-2, with the multiply-adds of its backward pass for so many tokens."""
    yield from norm(f"{name}.norm1", width, context)
    yield from _linear(f"{name}.attention", width, 3 * width, context)
    yield from _linear(f"{name}.projection", width, width, context)
    yield from norm(f"{name}.norm2", width, context)
    yield from _linear(f"{name}.widen", width, 4 * width, context)
    yield from _linear(f"{name}.narrow", 4 * width, width, context)


def _linear(name: str, inputs: int, outputs: int, context: int) -> Iterator[ParameterTensor]:
    yield ParameterTensor(f"{name}.weight", (outputs, inputs), float(2 * context * inputs * outputs))
    yield ParameterTensor(f"{name}.bias", (outputs,), 0.0)


def norm(name: str, width: int, context: int = 1) -> Iterator[ParameterTensor]:
    """A layer norm."""
    yield ParameterTensor(f"{name}.weight", (width,), float(5 * context * width))
    yield ParameterTensor(f"{name}.bias", (width,), 0.0)
