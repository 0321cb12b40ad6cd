"""At least single precision, where half precision would be too coarse: losses, samples, sums."""

from __future__ import annotations

import torch
from torch import Tensor


def single_precision(numbers: Tensor) -> Tensor:
    """The numbers in single precision if they are in half, else as they are."""
    return numbers.to(torch.promote_types(numbers.dtype, torch.float32))
