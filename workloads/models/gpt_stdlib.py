"""A small transformer that predicts the next byte (after Radford et al. 2019, GPT-2: pre-norm blocks, GELU).

It has no dropout, because trainings are short and text is plentiful. Layer norm has no running statistics, so replicas
with equal parameters are equal.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from wanbench.workloads.data.stdlib import CONTEXT, SYMBOLS
from wanbench.workloads.models import gpt
from wanbench.workloads.models.tensors import ParameterTensor

if TYPE_CHECKING:
    import torch
    from torch import nn

_BLOCKS = 2
_WIDTH = 64
_HEADS = 4
_HIDDEN = 4 * _WIDTH
_STD = 0.02


def tensors() -> tuple[ParameterTensor, ...]:
    """Its 29 parameter tensors (136 960 elements), with the multiply-adds of their layers' backward pass per sample."""
    blocks = [tensor for number in range(_BLOCKS) for tensor in gpt.block(f"blocks.{number}", _WIDTH, CONTEXT)]
    return (
        ParameterTensor("tokens.weight", (SYMBOLS, _WIDTH), float(CONTEXT * _WIDTH)),
        ParameterTensor("positions.weight", (CONTEXT, _WIDTH), float(CONTEXT * _WIDTH)),
        *blocks,
        *gpt.norm("norm", _WIDTH, CONTEXT),
        ParameterTensor("head.weight", (SYMBOLS, _WIDTH), float(2 * CONTEXT * SYMBOLS * _WIDTH)),
    )


def module_of(generator: torch.Generator) -> nn.Module:
    """The transformer: bytes of shape (batch, CONTEXT) to scores of shape (batch, CONTEXT, SYMBOLS)."""
    from torch import nn

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(SYMBOLS, _WIDTH)
            self.positions = nn.Embedding(CONTEXT, _WIDTH)
            self.blocks = nn.ModuleList(_transformer_block() for _ in range(_BLOCKS))
            self.norm = nn.LayerNorm(_WIDTH)
            self.head = nn.Linear(_WIDTH, SYMBOLS, bias=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))  # type: ignore[no-any-return]

    module = Transformer()
    _initialise(module, generator)
    return module


def _transformer_block() -> nn.Module:
    """Attention and a layer that is wider inside, each added to its input."""
    from torch import nn
    from torch.nn.functional import gelu, scaled_dot_product_attention

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1 = nn.LayerNorm(_WIDTH)
            self.attention = nn.Linear(_WIDTH, 3 * _WIDTH)
            self.projection = nn.Linear(_WIDTH, _WIDTH)
            self.norm2 = nn.LayerNorm(_WIDTH)
            self.widen = nn.Linear(_WIDTH, _HIDDEN)
            self.narrow = nn.Linear(_HIDDEN, _WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.projection(self._attend(self.norm1(x)))
            return x + self.narrow(gelu(self.widen(self.norm2(x))))  # type: ignore[no-any-return]

        def _attend(self, x: torch.Tensor) -> torch.Tensor:
            batch, length, _ = x.shape
            heads = self.attention(x).view(batch, length, 3, _HEADS, _WIDTH // _HEADS).permute(2, 0, 3, 1, 4)
            seen = scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
            return seen.transpose(1, 2).reshape(batch, length, _WIDTH)

    return Block()


def _initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Initialise as GPT-2: normal weights, smaller in layers that add to the residual stream."""
    from torch import nn

    for name, parameter in module.named_parameters():
        if parameter.dim() > 1:
            adds = "projection" in name or "narrow" in name
            nn.init.normal_(parameter, 0.0, _STD / math.sqrt(2 * _BLOCKS) if adds else _STD, generator=generator)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
        else:
            nn.init.ones_(parameter)
