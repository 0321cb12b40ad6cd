"""Plots: figures for pages and papers, and their counterparts in the terminal.

Figures need matplotlib (the extra `plots`) and do not touch its global state; the terminal needs nothing beyond the
core. Nothing here writes to disk: `figure_bytes` returns the bytes of a file.
"""

from __future__ import annotations

from polyseme.plots.similarity_heatmaps import figure_bytes, similarity_figure
from polyseme.plots.similarity_terminal import SimilarityTable, similarity_tables
from polyseme.plots.word_uses import Use, WordUses

__all__ = ["SimilarityTable", "Use", "WordUses", "figure_bytes", "similarity_figure", "similarity_tables"]
