"""Training: the loop, its effects, and the folder of a run."""
