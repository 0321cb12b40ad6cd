"""Other people's checkpoints ↔ ours: a table a family, read in both directions."""
