"""From torch's tensors to the flat memory that travels, and back."""

from __future__ import annotations

import torch


class Staging:
    """The flat tensors of one operation. A contiguous tensor is used as it is; others are copied.

    `finish` copies back what has arrived.
    """

    def __init__(self) -> None:
        self._back: list[tuple[torch.Tensor, torch.Tensor]] = []

    def given(self, tensor: torch.Tensor) -> torch.Tensor:
        """A flat tensor with the values of a tensor, which is only read."""
        return _flat(tensor.detach())

    def filled(self, tensor: torch.Tensor) -> torch.Tensor:
        """A flat tensor with the values of a tensor, which is filled from it at the end."""
        tensor = tensor.detach()
        flat = _flat(tensor)
        if flat.data_ptr() != tensor.data_ptr():
            self._back.append((tensor, flat))
        return flat

    @torch.inference_mode()
    def finish(self) -> None:
        """Fill the tensors that are not contiguous."""
        for tensor, flat in self._back:
            tensor.copy_(flat.view(tensor.shape))


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in order: the tensor's own memory, or a copy."""
    return tensor.resolve_conj().resolve_neg().contiguous().view(-1)
