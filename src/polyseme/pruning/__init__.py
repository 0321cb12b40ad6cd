"""Pruning: which attention heads a model can do without, and the model without them."""
