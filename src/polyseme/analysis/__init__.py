"""Analysis of models: the properties of a text that single cells of a recurrent model follow."""

from __future__ import annotations

from polyseme.analysis.cell_page import CellView, cells
from polyseme.analysis.recurrent_cells import Cell, CorrelatedCell, correlated_cells

__all__ = ["Cell", "CellView", "CorrelatedCell", "cells", "correlated_cells"]
