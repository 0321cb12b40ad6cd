"""Encoders of ours with a reference's weights, through a conversion table written in the test.

Families that polyseme does not read yet prove the slots of the Transformer this way.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

from polyseme.convert.conversion_table import Table, read
from spread import SPREAD

SomeModule = TypeVar("SomeModule", bound=nn.Module)


def redrawn(reference: SomeModule) -> SomeModule:
    """A reference whose attention is not flat, in float64, ready for inference."""
    generator = torch.Generator().manual_seed(7)
    for parameter in reference.parameters():
        nn.init.normal_(parameter, std=SPREAD, generator=generator)
    return reference.double().eval()


def filled(ours: SomeModule, table: Table, reference: nn.Module) -> SomeModule:
    """Ours with the reference's weights, in float64; every parameter filled, every key taken."""
    tensors = read(table, reference.state_dict(), type(reference).__name__).tensors
    ours = ours.double().eval()
    parameters = dict(ours.named_parameters())
    assert parameters.keys() == tensors.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            assert parameter.shape == tensors[name].shape, name
            parameter.copy_(tensors[name])
    return ours
