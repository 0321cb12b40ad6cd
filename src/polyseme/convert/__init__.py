"""Other people's checkpoints ↔ ours: one table per family, read in both directions."""
